package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves flags before the other arguments of their command, so that
// both orders work: the library takes everything behind the first argument for
// arguments. What follows "--", or the name of a program to run, is left alone.
func flagsFirst(app *cli.App, args []string) []string {
	var out []string
	program := false // what follows is a command line, whose flags are its own
	commands, known := app.Commands, app.Flags
	i := 0
	for ; i < len(args); i++ { // the names of commands
		c := find(commands, args[i])
		if c == nil {
			break
		}
		out = append(out, args[i])
		commands, known, program = c.Subcommands, c.Flags, c.ArgsUsage == commandLine
	}
	var flags, rest []string
	for ; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			flags = append(flags, a)
			rest = append(rest, args[i+1:]...)
			break
		}
		if program && (len(a) < 2 || a[0] != '-') {
			flags = append(flags, "--")
			rest = append(rest, args[i:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			rest = append(rest, a)
			continue
		}
		flags = append(flags, a)
		if !strings.Contains(a, "=") && takesValue(known, strings.TrimLeft(a, "-")) && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return append(append(out, flags...), rest...)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// takesValue reports whether the flag's value is the next argument.
func takesValue(flags []cli.Flag, name string) bool {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			d, ok := f.(cli.DocGenerationFlag)
			return ok && d.TakesValue()
		}
	}
	return false
}
