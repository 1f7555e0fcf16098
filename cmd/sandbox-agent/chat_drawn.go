package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// chatDrawn says how much of a long text of the agent is drawn for good, so that what is
// added costs the rendering of the end only. The zero value is for a text of which nothing is.
type chatDrawn struct {
	lines int    // as many
	from  int    // where the rest begins in the text
	fence string // the line that begins the block of code that the rest is in
	piece int    // how much is looked at to find a place to part the text; 0 for chatPiece
}

// chatPiece is how much of a text is rendered each time when more was added.
const chatPiece = 4 << 10

// draw returns the lines of the text. lines are those that it returned before, for the
// same look and a text that was the beginning of this one.
func (d *chatDrawn) draw(lines []string, text string, look chatLook) []string {
	lines = lines[:d.lines]
	for d.piece = max(d.piece, chatPiece); len(text)-d.from > 2*d.piece; {
		end := d.from + d.piece
		for !utf8.RuneStart(text[end]) {
			end--
		}
		piece := text[d.from:end]
		kept, n, fence := part(d.fence, piece, look)
		if n == 0 {
			d.piece *= 2 // it is one table, or so
			continue
		}
		lines = append(lines, kept...)
		*d = chatDrawn{lines: len(lines), from: d.from + n, fence: fence}
		d.piece = chatPiece
	}
	return append(lines, look.drawn(d.fence+text[d.from:])...)
}

func (look chatLook) drawn(source string) []string {
	return strings.Split(look.render(source, look.width), "\n")
}

// part finds a place near the end of the piece at which it can be drawn in two parts that
// look as one. It returns the lines of the first part, how long that is, and the line that
// begins the block of code that the second is in. n is 0 when there is no such place.
func part(fence, piece string, look chatLook) (kept []string, n int, inside string) {
	whole := look.drawn(fence + piece)
	fits := func(n int, between []string, inside string) bool {
		kept = append(look.drawn(fence+piece[:n]), between...)
		return slices.Equal(slices.Concat(kept, look.drawn(inside+piece[n:])), whole)
	}
	late := strings.LastIndexByte(piece[:len(piece)*7/8], '\n') // the end of what was looked at may mean something else in the whole text
	if n := strings.LastIndex(piece[:late+1], "\n\n") + 2; n > 2 && fits(n, []string{""}, "") {
		return kept, n, ""
	}
	if open := openFence(fence + piece[:late+1]); late >= 0 && fits(late+1, nil, open) {
		return kept, late + 1, open
	}
	// Between two words, where a line of a paragraph ends.
	lines := len(whole) * 7 / 8
	words := 0
	for _, l := range whole[:lines] { // there is no space in what makes colours
		words += len(strings.Fields(l))
	}
	n = afterWords(piece, words)
	if fence == "" && n > 0 && n < len(piece) && fits(n, nil, "") {
		return kept, n, ""
	}
	return nil, 0, ""
}

// openFence returns the line that begins the block of code at the end of the text, "" when
// there is none.
func openFence(text string) (open string) {
	for line := range strings.Lines(text) {
		mark := strings.TrimLeft(line, " ")
		switch {
		case !strings.HasPrefix(mark, "```") && !strings.HasPrefix(mark, "~~~"):
		case open == "":
			open = line
		case strings.TrimSpace(mark) == strings.TrimRight(strings.TrimSpace(open), "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-# "):
			open = ""
		}
	}
	return open
}

// afterWords returns where the text goes on behind its first words.
func afterWords(text string, words int) int {
	for i, in := 0, false; i < len(text); i++ {
		space := text[i] == ' ' || text[i] == '\n' || text[i] == '\t'
		switch {
		case !space && !in:
			if words == 0 {
				return i
			}
			words--
			in = true
		case space:
			in = false
		}
	}
	return len(text)
}
