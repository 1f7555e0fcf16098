package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func completionCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: `bash: source <(sandbox-agent completion bash)
zsh:  source <(sandbox-agent completion zsh)
fish: sandbox-agent completion fish | source`,
		Action: func(c *cli.Context) error {
			args, err := exactly(c, "the shell")
			if err != nil {
				return err
			}
			write := map[string]func(*strings.Builder, []completion){"bash": bashScript, "zsh": zshScript, "fish": fishScript}[args[0]]
			if write == nil {
				return usagef(c, "there is no completion for %q: use bash, zsh or fish", args[0])
			}
			var b strings.Builder
			write(&b, completions(c.App))
			_, err = fmt.Fprint(std.out, b.String())
			return err
		},
	}
}

// completion is what may follow the words of a command.
type completion struct {
	path  string // "" or for example "sessions list"
	words []word
}

type word struct{ text, usage string }

// completions lists every command's words.
func completions(app *cli.App) []completion {
	all := []completion{{words: append(commandWords(app.Commands), word{"--help", "show help"})}}
	return append(all, below("", app.Commands)...)
}

func below(path string, commands []*cli.Command) []completion {
	var all []completion
	for _, c := range commands {
		at := strings.TrimSpace(path + " " + c.Name)
		words := commandWords(c.Subcommands)
		for _, f := range c.Flags {
			usage := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				usage = d.GetUsage()
			}
			words = append(words, word{"--" + f.Names()[0], usage})
		}
		if c.Name == "completion" {
			words = append(words, word{"bash", ""}, word{"zsh", ""}, word{"fish", ""})
		}
		all = append(all, completion{at, append(words, word{"--help", "show help"})})
		all = append(all, below(at, c.Subcommands)...)
	}
	return all
}

func commandWords(commands []*cli.Command) []word {
	var words []word
	for _, c := range commands {
		if !c.Hidden && c.Name != "help" {
			words = append(words, word{c.Name, c.Usage})
		}
	}
	return words
}

func bashScript(b *strings.Builder, all []completion) {
	b.WriteString(`_sandbox_agent() {
  local cur=${COMP_WORDS[COMP_CWORD]} path="" w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$w" in -*) ;; *) path="${path:+$path }$w" ;; esac
  done
  local words=""
  case "$path" in
`)
	for _, c := range deepestFirst(all) {
		fmt.Fprintf(b, "    %s) words=%q ;;\n", pattern(c.path), strings.Join(texts(c.words), " "))
	}
	b.WriteString(`  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _sandbox_agent sandbox-agent
`)
}

func zshScript(b *strings.Builder, all []completion) {
	b.WriteString(`#compdef sandbox-agent
_sandbox_agent() {
  local path="" w
  local -a entries
  for w in "${words[@]:1:$((CURRENT-2))}"; do
    case "$w" in -*) ;; *) path="${path:+$path }$w" ;; esac
  done
  case "$path" in
`)
	for _, c := range deepestFirst(all) {
		fmt.Fprintf(b, "    %s) entries=(", pattern(c.path))
		for _, w := range c.words {
			fmt.Fprintf(b, "%s ", quoteAlways(strings.ReplaceAll(w.text, ":", `\:`)+":"+w.usage))
		}
		b.WriteString(") ;;\n")
	}
	b.WriteString(`  esac
  _describe 'sandbox-agent' entries || _files
}
compdef _sandbox_agent sandbox-agent
`)
}

func fishScript(b *strings.Builder, all []completion) {
	b.WriteString(`function __sandbox_agent_at
  set -l words (commandline -opc | string match -v -- '-*')
  set -l path (string join ' ' $words[2..-1])
  test "$path" = "$argv[1]"; or test -n "$argv[1]"; and string match -q -- "$argv[1] *" "$path"; and test "$argv[2]" = leaf
end
`)
	for _, c := range all {
		kind := "leaf"
		for _, w := range c.words {
			if !strings.HasPrefix(w.text, "-") {
				kind = "group"
			}
		}
		for _, w := range c.words {
			how := "-a " + quoteAlways(w.text)
			if long, ok := strings.CutPrefix(w.text, "--"); ok {
				how = "-l " + long
			}
			fmt.Fprintf(b, "complete -c sandbox-agent -n %s %s -d %s\n", quoteAlways(fmt.Sprintf("__sandbox_agent_at %s %s", quoteAlways(c.path), kind)), how, quoteAlways(w.usage))
		}
	}
}

// deepestFirst orders commands so that a pattern comes before the shorter ones
// that match as well.
func deepestFirst(all []completion) []completion {
	out := make([]completion, 0, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		out = append(out, all[i])
	}
	return out
}

// pattern matches a command and its arguments.
func pattern(path string) string {
	if path == "" {
		return `""`
	}
	return fmt.Sprintf("%q|%q*", path, path+" ")
}

func texts(words []word) []string {
	var out []string
	for _, w := range words {
		out = append(out, w.text)
	}
	return out
}

// quoteAlways is s in single quotes, for shells.
func quoteAlways(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
