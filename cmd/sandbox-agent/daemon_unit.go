package main

import (
	"encoding/xml"
	"fmt"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func daemonUnitCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "unit",
		Usage:     "print a service for systemd or launchd",
		ArgsUsage: serverLine,
		Description: `For this user's own services:

  file=~/.config/systemd/user/sandbox-agent.service
  mkdir -p "${file%/*}"
  sandbox-agent daemon unit > "$file.new" && mv "$file.new" "$file"
  systemctl --user enable --now sandbox-agent

  file=~/Library/LaunchAgents/dev.sandboxagent.plist
  mkdir -p "${file%/*}"
  sandbox-agent daemon unit --kind launchd > "$file.new" && mv "$file.new" "$file"
  launchctl load "$file"

For launchd it also makes the folder of the log, which launchd does not.`,
		Flags: []cli.Flag{
			dataDirFlag(),
			&cli.StringFlag{Name: "kind", Usage: "systemd or launchd", DefaultText: "what this system has"},
		},
		Action: func(c *cli.Context) error {
			d, err := daemonOf(c)
			if err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			kind := c.String("kind")
			if kind == "" {
				kind = "systemd"
				if goruntime.GOOS == "darwin" {
					kind = "launchd"
				}
			}
			args, err := absolutePaths(c.Args().Slice())
			if err != nil {
				return err
			}
			line := append([]string{program, "server"}, args...)
			line = append(line, "--data-dir", d.dataDir)
			switch kind {
			case "systemd":
				fmt.Fprint(std.out, systemdUnit(line))
			case "launchd":
				text, err := launchdPlist(line, d.file("log"))
				if err != nil {
					return err
				}
				// launchd ends a service whose log has no folder before it begins, and has nowhere to say why.
				if err := os.MkdirAll(d.file(""), 0o700); err != nil {
					return fmt.Errorf("make the folder of the service's log: %w", err)
				}
				fmt.Fprint(std.out, text)
			default:
				return cmdline.Usagef(c, "--kind %s: use systemd or launchd", kind)
			}
			return nil
		},
	}
}

// systemdUnit is a service that runs a command line.
func systemdUnit(line []string) string {
	quoted := make([]string, len(line))
	for i, word := range line {
		quoted[i] = systemdWord(word)
	}
	return `[Unit]
Description=Sandbox Agent
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=` + strings.Join(quoted, " ") + `
Restart=on-failure
RestartSec=2
# It ends its agents itself, in order, within 10 seconds.
KillMode=mixed
TimeoutStopSec=20
NoNewPrivileges=true

[Install]
WantedBy=default.target
`
}

// systemdWord is a word of a command line as systemd reads it.
func systemdWord(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$").Replace(s)
	if s != "" && !strings.ContainsAny(s, " \t\n\"'\\;") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

// launchdPlist is a launch agent that runs a command line.
func launchdPlist(line []string, log string) (string, error) {
	var b strings.Builder
	escaped := func(s string) error { return xml.EscapeText(&b, []byte(s)) }
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>dev.sandboxagent</string>
	<key>ProgramArguments</key>
	<array>
`)
	for _, word := range line {
		b.WriteString("\t\t<string>")
		if err := escaped(word); err != nil {
			return "", fmt.Errorf("write the service: %w", err)
		}
		b.WriteString("</string>\n")
	}
	b.WriteString("\t</array>\n\t<key>RunAtLoad</key>\n\t<true/>\n\t<key>KeepAlive</key>\n\t<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>\n\t<key>ExitTimeOut</key>\n\t<integer>20</integer>\n\t<key>StandardErrorPath</key>\n\t<string>")
	if err := escaped(log); err != nil {
		return "", fmt.Errorf("write the service: %w", err)
	}
	b.WriteString("</string>\n</dict>\n</plist>\n")
	return b.String(), nil
}
