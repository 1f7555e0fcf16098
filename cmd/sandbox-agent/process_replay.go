package main

import (
	"bytes"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
)

// questions are what a program asks a terminal, which answers as if somebody typed: what it is, its
// state, its modes, its size, its keyboard, its colours, its clipboard, its capabilities.
var questions = pattern.New(`\x1b(?:Z|\[[>=]?0?c|\[\??[0-9;]+n|\[\??[0-9;]+\$p|\[>0?q|\[[01]?x|\[\?u|\[(?:1[1345689]|2[01])(?:;[0-9]*)*t|\](?:[0-9;?]+|52;[a-z0-9]*;)\?(?:\x07|\x1b\\)|P[+$]q[^\x1b]*\x1b\\)`)

// begun is the end of a text which may be the beginning of a question.
var begun = pattern.New(`\x1b(?:\[[?>=]?[0-9;]*\$?|\][0-9;?a-z]*\x1b?|P(?:[+$](?:q[^\x1b]*\x1b?)?)?)?$`)

// longestQuestion bounds what is held back because it may be the beginning of one.
const longestQuestion = 1 << 10

// replay is output that is shown again. What programs asked in it was answered when it was new, or
// nobody waits for the answer any more: a terminal that answered now would type into the program.
type replay struct {
	held []byte // may be the beginning of a question
}

// without returns what follows in the output, without questions.
func (r *replay) without(output []byte) []byte {
	b := questions.ReplaceAll(append(r.held, output...), nil)
	r.held = nil
	from := max(0, len(b)-longestQuestion)
	if at := begun.FindIndex(b[from:]); at != nil {
		r.held = bytes.Clone(b[from+at[0]:])
		b = b[:from+at[0]]
	}
	return b
}

// rest returns what was held back.
func (r *replay) rest() []byte {
	b := r.held
	r.held = nil
	return b
}
