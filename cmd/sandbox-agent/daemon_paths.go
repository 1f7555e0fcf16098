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
		if !strings.HasPrefix(arg, "-") || !slices.ContainsFunc(files, func(f *cli.StringFlag) bool { return f.Name == name }) {
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
		abs, err := filepath.Abs(value)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", value, err)
		}
		args[at] = before + abs
	}
	return args, nil
}

// absoluteEnv returns this program's environment, in which the variables of the
// server command that name files mean the same in every working directory.
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
	return env, nil
}
