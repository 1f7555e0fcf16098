package main

import (
	"regexp"
	"strings"
	"testing"

	"charm.land/lipgloss/v2"
	"github.com/google/go-cmp/cmp"
)

// What agents write is shown as they mean it, and never wider than the terminal.
func TestChatMarkdown(t *testing.T) {
	styles := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	for _, tt := range []struct{ name, in, want string }{
		{"paragraphs", "one\ntwo\n\nthree", "one two\n\nthree"},
		{"heading", "## A **bold** title\ntext", "## A bold title\n\ntext"},
		{"list", "- a\n- b\n  - c\n\n1. x\n2. y", "• a\n• b\n  • c\n\n1. x\n2. y"},
		{"code", "run `go test`:\n\n```go\nfunc f() {\n\treturn\n}\n```\nend", "run go test:\n\n  func f() {\n      return\n  }\n\nend"},
		{"code that is not ended yet", "```\nx := 1", "  x := 1"},
		{"quote", "> said\n> so", "│ said so"},
		{"link", "see [the page](https://example.com) and <https://example.org>", "see the page (https://example.com) and\nhttps://example.org"},
		{"tasks", "- [ ] open\n- [x] done\n\n~~gone~~", "☐ open\n☑ done\n\ngone"},
		{"table", "The sums:\n| name | n |\n|:-|--:|\n| apples | 1 |\n| **a** `b` | 22 |\n\nafter", "The sums:\n\n name   │  n\n────────┼────\n apples │  1\n a b    │ 22\n\nafter"},
		{"table wider than the terminal", "| what | why |\n|---|---|\n| a | the quick brown fox jumps over the lazy dog, twice |", " what │ why\n──────┼─────────────────────────────────────\n a    │ the quick brown fox jumps over the\n      │ lazy dog, twice"},
		{"table that is not complete yet", "| a | b |\n| ", "| a | b |\n|"},
		{"html", "a <b>word</b>\n\n<div>\nblock\n</div>", "a <b>word</b>\n\n  <div>\n  block\n  </div>"},
		{"nothing", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const width = 44
			got := styles.ReplaceAllString(newChatStyles(true).render(tt.in, width), "")
			for line := range strings.Lines(got) {
				if w := lipgloss.Width(strings.TrimSuffix(line, "\n")); w > width {
					t.Errorf("%q is %d wide", line, w)
				}
			}
			lines := strings.Split(got, "\n")
			for i := range lines {
				lines[i] = strings.TrimRight(lines[i], " ")
			}
			if diff := cmp.Diff(tt.want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The output of a command is shown without the marks of the block that agents put it into.
func TestChatTool_ABlockOfCodeIsItsInside(t *testing.T) {
	for in, want := range map[string]string{
		"```console\none\n  two\n```":       "one\n  two",
		"```\none\n\n```\n":                 "one\n",
		"```sh\nnot ended":                  "not ended",
		"````md\n```go\nx\n```\n````":       "```go\nx\n```",
		"```\n```":                          "",
		"before\n```\nx\n```":               "before\n```\nx\n```",
		"```\nx\n```\nbetween\n```\ny\n```": "```\nx\n```\nbetween\n```\ny\n```",
		"```only this line```":              "```only this line```",
		"``":                                "``",
		"":                                  "",
	} {
		if got := unfenced(in); got != want {
			t.Errorf("%q became %q, not %q", in, got, want)
		}
	}
}
