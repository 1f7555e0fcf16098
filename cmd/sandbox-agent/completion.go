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
		ArgsUsage: "bash|zsh|fish|agents|sessions|nodes|models|modes",
		Description: `The scripts complete commands and flags, and ask the gateway that the line names for
agents, sessions, models and modes, and a hub for its nodes; completion agents and so on
prints what they offer. Models and modes are those of all agents, or of the one behind them.

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

// bashScript puts together again what bash takes apart at : and =, such as addresses.
func bashScript(b *strings.Builder, app *cli.App) {
	b.WriteString(`_sandbox_agent() {
  local cur=${COMP_WORDS[COMP_CWORD]} path="" agent="" before="" glue="" n=0 w
  local -a line=() target=()
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    n=${#line[@]}
    if [[ $n -gt 0 && $w == = && ${line[n-1]} == --* ]]; then
      glue=""
    elif [[ $n -gt 0 && ( -n $glue || $w == [:=] ) ]]; then
      line[n-1]+=$w glue=""
      [[ $w != [:=] ]] || glue=1
    elif [[ $w == --*=* ]]; then
      line+=("${w%%=*}" "${w#*=}")
    else
      line+=("$w")
    fi
  done
  COMPREPLY=()
  case "$glue/$cur" in 1/*|*/:) return ;; */=) cur="" ;; esac
  for w in ${line[@]+"${line[@]}"}; do
    case "$before" in --agent) agent="$w" ;; ` + targetPattern + `) target+=("$before" "$w") ;; esac
    case "$before" in
`)
	fmt.Fprintf(b, "    %s) before=\"\"; continue ;;\n    esac\n", strings.Join(valueFlags(app), "|"))
	b.WriteString(`    case "$path $w" in *" -"*|" help") ;; *) path="${path:+$path }$w" ;; esac
    before="$w"
  done
  local words="" asked=""
  case "$before" in
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
  [ -z "$asked" ] || words="$words $(sandbox-agent completion "$asked" $agent ${target[@]+"${target[@]}"} 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$cur")) || true
  [ ${#COMPREPLY[@]} -gt 0 ] || [ -n "$asked" ] || COMPREPLY=($(compgen -f -- "$cur"))
}
complete -F _sandbox_agent sandbox-agent
`)
}

// zshScript has no variable path: in zsh that is PATH.
func zshScript(b *strings.Builder, app *cli.App) {
	b.WriteString(`#compdef sandbox-agent
_sandbox_agent() {
  local at="" agent="" before="" asked="" w
  local -a entries target
  for w in "${words[@]:1:$((CURRENT-2))}"; do
    case "$w" in --*=*) before="${w%%=*}" w="${w#*=}" ;; esac
    case "$before" in --agent) agent="$w" ;; ` + targetPattern + `) target+=("$before" "${(Q)w}") ;; esac
    case "$before" in
`)
	fmt.Fprintf(b, "    %s) before=\"\"; continue ;;\n    esac\n", strings.Join(valueFlags(app), "|"))
	b.WriteString(`    case "$at $w" in *" -"*|" help") ;; *) at="${at:+$at }$w" ;; esac
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
  [ -z "$asked" ] || entries+=(${${(f)"$(command sandbox-agent completion $asked ${=agent} $target 2>/dev/null)"}//:/\\:})
  _describe 'sandbox-agent' entries || [[ -n $asked ]] || _files
}
compdef _sandbox_agent sandbox-agent
`)
}

func fishScript(b *strings.Builder, app *cli.App) {
	fmt.Fprintf(b, "set -g __sandbox_agent_valued %s\n", strings.Join(valueFlags(app), " "))
	b.WriteString(`function __sandbox_agent_at
  set -l words
  set -l before
  for w in (commandline -opc)
    if not contains -- "$before" $__sandbox_agent_valued; and not string match -q -- '-*' $w
      set -a words $w
    end
    set before $w
  end
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
function __sandbox_agent_target
  set -l before
  for w in (commandline -opc)
    switch $w
      case ` + strings.ReplaceAll(targetPattern, "|", "=\\* ") + `=\*
        echo $w
    end
    switch "$before"
      case ` + strings.ReplaceAll(targetPattern, "|", " ") + `
        printf '%s\n' $before $w
    end
    set before $w
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
					how += " -x -a " + quoteAlways("(sandbox-agent completion "+what+" (__sandbox_agent_named) (__sandbox_agent_target) 2>/dev/null)")
				} else if values := knownValues[long]; values != nil {
					how += " -x -a " + quoteAlways(strings.Join(values, " "))
				}
			}
			fmt.Fprintf(b, "complete -c sandbox-agent -n %s %s -d %s\n", quoteAlways(fmt.Sprintf("__sandbox_agent_at %s %s", quoteAlways(c.path), kind)), how, quoteAlways(w.usage))
		}
	}
	for _, args := range slices.Sorted(maps.Keys(offeredArgs)) {
		for _, path := range pathsWith(app.Commands, "", args) {
			fmt.Fprintf(b, "complete -c sandbox-agent -f -n %s -a %s\n", quoteAlways("__sandbox_agent_at "+quoteAlways(path)+" leaf"), quoteAlways("(sandbox-agent completion "+offeredArgs[args]+" (__sandbox_agent_target) 2>/dev/null)"))
		}
	}
}

// valueFlags are the flags with a value, as -n and --name: the word behind one is no command.
func valueFlags(app *cli.App) []string {
	takes := map[string]bool{}
	var add func(commands []*cli.Command)
	add = func(commands []*cli.Command) {
		for _, c := range commands {
			for _, f := range slices.Concat(c.Flags, behind(c).Passed) {
				_, alone := f.(*cli.BoolFlag)
				for _, name := range f.Names() {
					dashes := "--"
					if len(name) == 1 {
						dashes = "-"
					}
					before, known := takes[dashes+name]
					takes[dashes+name] = !alone && (before || !known) // one that has none in a command is taken as such
				}
			}
			add(c.Subcommands)
		}
	}
	add(app.Commands)
	maps.DeleteFunc(takes, func(_ string, takes bool) bool { return !takes })
	return slices.Sorted(maps.Keys(takes))
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
