package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// terminal is how people use an agent's own program without a gateway: a first prompt,
// which may read files, and one that goes on with the conversation ID.
type terminal struct {
	first, again []string
	file         string         // of the conversation, a pattern below HOME; "" for what it prints
	id           *regexp.Regexp // of the conversation, in the name of its file or in what is printed
}

var terminals = map[string]terminal{
	"claude": {[]string{"-p", "TEXT"}, []string{"--resume", "ID", "-p", "TEXT"}, ".claude/projects/*/*.jsonl", regexp.MustCompile(`([0-9a-f-]{36})\.jsonl$`)},
	"codex": {
		[]string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "TEXT"},
		[]string{"exec", "resume", "--skip-git-repo-check", "ID", "TEXT"},
		".codex/sessions/*/*/*/*.jsonl", regexp.MustCompile(`([0-9a-f-]{36})\.jsonl$`),
	},
	"opencode": {[]string{"run", "--format", "json", "WORDS"}, []string{"run", "--session", "ID", "WORDS"}, "", regexp.MustCompile(`(ses_[0-9A-Za-z]+)`)},
	"pi":       {[]string{"-p", "TEXT"}, []string{"--session", "ID", "-p", "TEXT"}, ".pi/agent/sessions/*/*.jsonl", regexp.MustCompile(`_([^_/]+)\.jsonl$`)},
}

// fill puts the conversation and the prompt into arguments.
func fill(args []string, id, text string) (out []string) {
	for _, a := range args {
		if a == "WORDS" { // it puts quotes around an argument with blanks
			out = append(out, strings.Fields(text)...)
			continue
		}
		out = append(out, strings.NewReplacer("ID", id, "TEXT", text).Replace(a))
	}
	return out
}

// begin has a first prompt at the terminal and returns the id of its conversation.
func (u *terminal) begin(r *realRun, text string) string {
	r.t.Helper()
	names := r.shell(fill(u.first, "", text)...)
	if u.file != "" {
		found, err := filepath.Glob(filepath.Join(r.home, u.file))
		if err != nil || len(found) != 1 {
			r.t.Fatalf("the program has made %q, %v", found, err)
		}
		names = found[0]
	}
	m := u.id.FindStringSubmatch(names)
	if m == nil {
		r.t.Fatalf("no id is in %s", names)
	}
	return m[1]
}

// goOn has another prompt in the conversation and returns what the model was told last.
func (u *terminal) goOn(r *realRun, id, text string) scriptedmodel.Request {
	r.t.Helper()
	asked := len(r.model.Turns())
	r.shell(fill(u.again, id, text)...)
	var last scriptedmodel.Request
	for _, turn := range r.model.Turns()[asked:] { // some ask for a title, too
		if turn.Says(scriptedmodel.User, text) && len(turn.Body) > len(last.Body) {
			last = turn
		}
	}
	return last
}

// shell runs the agent's own program in its directory, and returns what it prints.
func (r *realRun) shell(args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*slowest)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program, args...)
	cmd.Dir, cmd.Env = r.dir, append(append(os.Environ(), r.base...), "PWD="+r.dir)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s %q: %v\n%s%s", r.id, args, err, out.String(), errOut.String())
	}
	return out.String()
}
