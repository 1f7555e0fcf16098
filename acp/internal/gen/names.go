package main

import (
	"strings"
	"unicode"
)

// initialisms are the words that Go writes in capitals.
var initialisms = map[string]string{
	"acp": "ACP", "fs": "FS", "http": "HTTP", "id": "ID", "llm": "LLM",
	"mcp": "MCP", "sse": "SSE", "uri": "URI", "url": "URL",
}

// goName turns a schema name (SessionId, user_message_chunk, date-time) into an
// exported Go name.
func goName(s string) string {
	var out strings.Builder
	for _, w := range words(s) {
		if up, ok := initialisms[strings.ToLower(w)]; ok {
			out.WriteString(up)
			continue
		}
		out.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return out.String()
}

// words splits at separators and where a capital follows a small letter.
func words(s string) []string {
	var out []string
	start, prev := 0, rune(0)
	for i, r := range s {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			if i > start {
				out = append(out, s[start:i])
			}
			start = i + 1
		case unicode.IsUpper(r) && unicode.IsLower(prev):
			if i > start {
				out = append(out, s[start:i])
			}
			start = i
		}
		prev = r
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// comment renders text as a Go comment with the given indent. The text starts
// with name unless name is empty.
func comment(indent, name, text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		if name == "" {
			return ""
		}
		text = "defined by the schema without a description."
	}
	if name != "" {
		text = name + ": " + text
	}
	var out strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		out.WriteString(strings.TrimRight(indent+"// "+line, " ") + "\n")
	}
	return out.String()
}
