package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func completionCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish|agents|sessions|models|modes",
		Description: `The scripts complete commands and flags, and ask the gateway for agents, sessions,
models and modes; completion agents and so on prints what they offer. Models and
modes are those of all agents, or of the one behind them.

bash: source <(sandbox-agent completion bash)
zsh:  source <(sandbox-agent completion zsh)
fish: sandbox-agent completion fish | source`,
		Flags: targetFlags(),
		Action: func(c *cli.Context) error {
			if what := c.Args().First(); offers[what] != nil && c.NArg() <= 2 {
				return offer(c, std.out, what, c.Args().Get(1))
			}
			args, err := cmdline.Exactly(c, "the shell")
			if err != nil {
				return err
			}
			write := map[string]func(*strings.Builder, *cli.App){"bash": bashScript, "zsh": zshScript, "fish": fishScript}[args[0]]
			if write == nil {
				return cmdline.Usagef(c, "there is no completion for %q: use bash, zsh or fish", args[0])
			}
			var b strings.Builder
			write(&b, c.App)
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
	all := []completion{{words: append(commandWords(app.Commands), word{"help", "show the help of a command"}, word{"--help", "show help"})}}
	return append(all, below("", app.Commands)...)
}

func below(path string, commands []*cli.Command) []completion {
	var all []completion
	for _, c := range commands {
		at := strings.TrimSpace(path + " " + c.Name)
		words := commandWords(c.Subcommands)
		for _, f := range slices.Concat(c.Flags, behind(c).Passed) {
			if slices.Contains(texts(words), "--"+f.Names()[0]) {
				continue // its own goes before the one that it passes on
			}
			usage := ""
			if d, ok := f.(cli.DocGenerationFlag); ok {
				usage = d.GetUsage()
			}
			words = append(words, word{"--" + f.Names()[0], usage})
		}
		if c.Name == "completion" {
			for _, what := range append([]string{"bash", "zsh", "fish"}, slices.Sorted(maps.Keys(offers))...) {
				words = append(words, word{what, ""})
			}
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

func bashScript(b *strings.Builder, app *cli.App) {
	b.WriteString(`_sandbox_agent() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path="" agent="" before="" w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$before" in --agent) agent="$w" ;; esac
    case "$path $w" in *" -"*|" help") ;; *) path="${path:+$path }$w" ;; esac
    before="$w"
  done
  local words="" asked=""
  case "$prev" in
`)
	for _, name := range slices.Sorted(maps.Keys(offeredFlags)) {
		fmt.Fprintf(b, "    --%s) asked=%s ;;\n", name, offeredFlags[name])
	}
	for _, name := range slices.Sorted(maps.Keys(knownValues)) {
		fmt.Fprintf(b, "    --%s) words=%q ;;\n", name, strings.Join(knownValues[name], " "))
	}
	b.WriteString("  esac\n  if [ -z \"$asked$words\" ]; then\n  case \"$path\" in\n")
	for _, c := range deepestFirst(completions(app)) {
		fmt.Fprintf(b, "    %s) words=%q ;;\n", shellPattern(c.path), strings.Join(texts(c.words), " "))
	}
	b.WriteString("  esac\n  case \"$path\" in\n")
	for _, args := range slices.Sorted(maps.Keys(offeredArgs)) {
		fmt.Fprintf(b, "    %s) case \"$cur\" in -*) ;; *) asked=%s ;; esac ;;\n", quoted(pathsWith(app.Commands, "", args), "|"), offeredArgs[args])
	}
	b.WriteString(`  esac
  fi
  [ -z "$asked" ] || words="$words $(sandbox-agent completion "$asked" $agent 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  [ ${#COMPREPLY[@]} -gt 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _sandbox_agent sandbox-agent
`)
}

// zshScript has no variable path: in zsh that is PATH.
func zshScript(b *strings.Builder, app *cli.App) {
	b.WriteString(`#compdef sandbox-agent
_sandbox_agent() {
  local at="" agent="" before="" asked="" w
  local -a entries
  for w in "${words[@]:1:$((CURRENT-2))}"; do
    case "$before" in --agent) agent="$w" ;; esac
    case "$at $w" in *" -"*|" help") ;; *) at="${at:+$at }$w" ;; esac
    before="$w"
  done
  case "$before" in
`)
	for _, name := range slices.Sorted(maps.Keys(offeredFlags)) {
		fmt.Fprintf(b, "    --%s) asked=%s ;;\n", name, offeredFlags[name])
	}
	for _, name := range slices.Sorted(maps.Keys(knownValues)) {
		fmt.Fprintf(b, "    --%s) entries=(%s) ;;\n", name, strings.Join(knownValues[name], " "))
	}
	b.WriteString("  esac\n  if [ -z \"$asked$entries\" ]; then\n  case \"$at\" in\n")
	for _, c := range deepestFirst(completions(app)) {
		fmt.Fprintf(b, "    %s) entries=(", shellPattern(c.path))
		for _, w := range c.words {
			fmt.Fprintf(b, "%s ", quoteAlways(strings.ReplaceAll(w.text, ":", `\:`)+":"+w.usage))
		}
		b.WriteString(") ;;\n")
	}
	b.WriteString("  esac\n  case \"$at\" in\n")
	for _, args := range slices.Sorted(maps.Keys(offeredArgs)) {
		fmt.Fprintf(b, "    %s) asked=%s ;;\n", quoted(pathsWith(app.Commands, "", args), "|"), offeredArgs[args])
	}
	b.WriteString(`  esac
  fi
  [ -z "$asked" ] || entries+=(${${(f)"$(command sandbox-agent completion $asked ${=agent} 2>/dev/null)"}//:/\\:})
  _describe 'sandbox-agent' entries || _files
}
compdef _sandbox_agent sandbox-agent
`)
}

func fishScript(b *strings.Builder, app *cli.App) {
	b.WriteString(`function __sandbox_agent_at
  set -l words (commandline -opc | string match -v -- '-*')
  test "$words[2]" = help; and set -e words[2]
  set -l path (string join ' ' $words[2..-1])
  if test "$path" = "$argv[1]"
    return 0
  end
  test -n "$argv[1]"; and test "$argv[2]" = leaf; and string match -q -- "$argv[1] *" "$path"
end
function __sandbox_agent_named
  set -l words (commandline -opc)
  if set -l at (contains -i -- --agent $words)
    test (count $words) -gt $at; and echo $words[(math $at + 1)]
  end
end
`)
	for _, c := range completions(app) {
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
				if what := offeredFlags[long]; what != "" {
					how += " -x -a " + quoteAlways("(sandbox-agent completion "+what+" (__sandbox_agent_named) 2>/dev/null)")
				} else if values := knownValues[long]; values != nil {
					how += " -x -a " + quoteAlways(strings.Join(values, " "))
				}
			}
			fmt.Fprintf(b, "complete -c sandbox-agent -n %s %s -d %s\n", quoteAlways(fmt.Sprintf("__sandbox_agent_at %s %s", quoteAlways(c.path), kind)), how, quoteAlways(w.usage))
		}
	}
	for _, args := range slices.Sorted(maps.Keys(offeredArgs)) {
		for _, path := range pathsWith(app.Commands, "", args) {
			fmt.Fprintf(b, "complete -c sandbox-agent -f -n %s -a %s\n", quoteAlways("__sandbox_agent_at "+quoteAlways(path)+" leaf"), quoteAlways("(sandbox-agent completion "+offeredArgs[args]+" 2>/dev/null)"))
		}
	}
}

// quoted joins words in double quotes.
func quoted(words []string, between string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strconv.Quote(w)
	}
	return strings.Join(all, between)
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
func shellPattern(path string) string {
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
