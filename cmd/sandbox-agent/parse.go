package main

import (
	"errors"
	"fmt"
	"strings"
)

// parseCommands reads agents of the form NAME=COMMAND LINE.
func parseCommands(values []string) (map[string][]string, error) {
	commands := map[string][]string{}
	for _, v := range values {
		name, line, ok := strings.Cut(v, "=")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t/") {
			return nil, fmt.Errorf("%q is not of the form NAME=COMMAND LINE", v)
		}
		argv, err := splitWords(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if len(argv) == 0 {
			return nil, fmt.Errorf("%s: the command line is empty", name)
		}
		if commands[name] != nil {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		commands[name] = argv
	}
	return commands, nil
}

// splitWords splits a command line as a shell does: blanks separate words,
// quotes and backslashes keep them together. Nothing is expanded.
func splitWords(line string) ([]string, error) {
	var out []string
	var word strings.Builder
	open := false // a word has begun
	var quote rune
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			if quote == '"' && r != '"' && r != '\\' && r != '$' && r != '`' {
				word.WriteRune('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, open = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if open {
				out = append(out, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quote != 0 || escaped {
		return nil, errors.New("the command line ends inside a quote")
	}
	if open {
		out = append(out, word.String())
	}
	return out, nil
}
