package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

func fsGitCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "git",
		Usage:       "see what differs from what was committed",
		Subcommands: []*cli.Command{fsGitStatusCommand(std), fsGitDiffCommand(std)},
	}
}

func fsGitStatusCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "list the files that differ",
		ArgsUsage:   "[REMOTE]",
		Description: "The first letter of a line is of the index, the second of the work tree, as git writes them.",
		Flags:       fsFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			remote, err := optional(c, "REMOTE", ".")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				st, err := files.GitStatus(ctx, remote)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, st)
					return nil
				}
				cmdline.List(std.out, "branch", st.Branch, "commit", st.Commit, "upstream", st.Upstream, "root", st.Root)
				for _, f := range st.Files {
					fmt.Fprintf(std.out, "%s%s %s\n", f.Index, f.WorkTree, cmdline.OneLine(f.Path))
				}
				if st.Truncated {
					note(std, "there are more files")
				}
				return nil
			})
		},
	}
}

func fsGitDiffCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "print what differs, as a patch",
		ArgsUsage: "[REMOTE]",
		Description: "What changed in the files, against the index. Files that are new are in it, also when nobody has\n" +
			"added them, but not those that git ignores. Files that are no text are only named, unless --binary is\n" +
			"given. Nothing is changed in the repository. A patch that would be too long is cut: then the exit code is 1,\n" +
			"or, with --json, `truncated` is true.",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "staged", Usage: "what is in the index, against the last commit"},
			&cli.StringFlag{Name: "base", Usage: "a commit to compare the files with, instead of the index"},
			&cli.BoolFlag{Name: "binary", Usage: "also what is in files that are no text, as git apply takes it"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			remote, err := optional(c, "REMOTE", ".")
			if err != nil {
				return err
			}
			o := fs.DiffOptions{Staged: c.Bool("staged"), Base: c.String("base"), Binary: c.Bool("binary")}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				patch, cut, err := files.GitDiff(ctx, remote, o)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, object{"patch": string(patch), "truncated": cut})
					return nil
				}
				if terminal(std.out) {
					patch = []byte(cmdline.Printable(string(patch)))
				}
				if _, err := std.out.Write(patch); err != nil {
					return fmt.Errorf("write the patch: %w", err)
				}
				if cut { // whoever applies it must not take it for the whole
					return errors.New("the patch is longer than this and was cut: name a folder or file")
				}
				return nil
			})
		},
	}
}
