package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// serverFiles are the flags of the server command that name files or folders.
func serverFiles() []*cli.StringFlag {
	var files []*cli.StringFlag
	for _, f := range serverFlags() {
		if s, ok := f.(*cli.StringFlag); ok && s.TakesFile {
			files = append(files, s)
		}
	}
	return files
}

// absolutePaths returns arguments of the server command that mean the same in
// every working directory.
func absolutePaths(args []string) ([]string, error) {
	files := serverFiles()
	args = slices.Clone(args)
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		absolute := filepath.Abs
		switch {
		case !strings.HasPrefix(arg, "-"):
			continue
		case name == agentCommand:
			absolute = absoluteCommand
		case !slices.ContainsFunc(files, func(f *cli.StringFlag) bool { return f.Name == name }):
			continue
		}
		at, before := i, arg[:strings.Index(arg, name)]+name+"="
		if !joined {
			if at, before = i+1, ""; at == len(args) {
				break // the server says what is missing
			}
			value = args[at]
		}
		if value == "" {
			continue
		}
		abs, err := absolute(value)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", value, err)
		}
		args[at] = before + abs
	}
	return args, nil
}

// agentCommand is the flag with a command line, whose program may be named by a path.
const agentCommand = "agent-command"

// absoluteCommand returns the value of such a flag with the absolute path of its program. Of arguments nobody knows
// what they are, and what is no value of it the server says.
func absoluteCommand(value string) (string, error) {
	name, line, _ := strings.Cut(value, "=")
	words, err := splitWords(line)
	if err != nil || len(words) == 0 {
		return value, nil
	}
	path, err := absoluteProgram(words[0])
	if err != nil || path == words[0] {
		return value, err
	}
	words[0] = path
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return name + "=" + strings.Join(words, " "), nil
}

// absoluteProgram returns the absolute path of a program; a name that is looked up in PATH stays one.
func absoluteProgram(path string) (string, error) {
	if filepath.Base(path) == path {
		return path, nil
	}
	return filepath.Abs(path)
}

// absoluteEnv returns this program's environment, in which the variables that name files or programs for the server
// command mean the same in every working directory.
func absoluteEnv() ([]string, error) {
	env := os.Environ()
	for _, f := range serverFiles() {
		for _, name := range f.EnvVars {
			value := os.Getenv(name)
			if value == "" {
				continue
			}
			abs, err := filepath.Abs(value)
			if err != nil {
				return nil, fmt.Errorf("find %s: %w", value, err)
			}
			env = append(env, name+"="+abs) // of two the last one counts
		}
	}
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		absolute := absoluteProgram
		switch {
		case value == "":
			continue
		case name == "SANDBOX_AGENT_AGENT_COMMAND":
			absolute = absoluteCommand
		case !strings.HasPrefix(name, "SANDBOX_AGENT_") || !strings.HasSuffix(name, "_BIN"): // of an agent
			continue
		}
		abs, err := absolute(value)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", value, err)
		}
		if abs != value {
			env = append(env, name+"="+abs)
		}
	}
	return env, nil
}
