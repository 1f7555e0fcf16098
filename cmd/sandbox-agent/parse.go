package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes such as 32MiB, 1GB or 65536.
func parseSize(s string) (int64, error) {
	units := []struct {
		name string
		size float64
	}{
		{"kib", 1 << 10},
		{"mib", 1 << 20},
		{"gib", 1 << 30},
		{"kb", 1e3},
		{"mb", 1e6},
		{"gb", 1e9},
		{"k", 1 << 10},
		{"m", 1 << 20},
		{"g", 1 << 30},
		{"b", 1},
	}
	num, factor := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(num, u.name); ok {
			num, factor = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseFloat(num, 64)
	if n *= factor; err != nil || !(n >= 1) || n > math.MaxInt32*1024 {
		return 0, fmt.Errorf("%q is not a size: use for example 32MiB", s)
	}
	return int64(n), nil
}

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
