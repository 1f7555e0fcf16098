package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
)

// announce says where the gateway listens and how to use it: as one log record
// when the log is JSON, for people otherwise. It shows a token only when it was made for this
// run.
func announce(cfg serverConfig, addr net.Addr, log *slog.Logger, w io.Writer) {
	url := cmdline.LocalURL(cfg.host, cfg.port, addr, cfg.tlsCert != "")
	open := cfg.token == ""
	exposed := open && !control.Loopback(cfg.host)
	if cfg.log.JSON {
		log.Info("listening", "url", url, "token", !open)
		if cfg.logFile != "" || cfg.log.Level > slog.LevelInfo { // who started it waits for this, whatever the log leaves out
			cmdline.Log{JSON: true}.To(w).Info("listening", "url", url, "token", !open)
		}
		if exposed {
			log.Warn("everybody who can reach the address can run agents here", "host", cfg.host)
		}
		return
	}
	if cfg.logFile != "" {
		log.Info("listening", "url", url, "token", !open)
	}
	fmt.Fprintf(w, "sandbox-agent %s listening on %s\n", version, url)
	switch {
	case exposed:
		fmt.Fprintf(w, "WARNING: no token is needed, and %s can be reached from other machines: everybody who can connect can run agents here\n", cfg.host)
		fmt.Fprintln(w, "Requests must name this machine: localhost, its host name, the address they come in by, or an --allowed-host ('*' is any).")
	case open:
		fmt.Fprintln(w, "No token is needed; only this machine can connect.")
	case cfg.newToken:
		fmt.Fprintf(w, "Token of this run: %s\n", cfg.token)
	default:
		fmt.Fprintln(w, "A token is needed.")
	}
	page := url + "/ui/"
	if cfg.newToken {
		page += "#token=" + cfg.token // the page takes it out of the address
	}
	if joins := cfg.join.announcement(); joins != "" {
		fmt.Fprintln(w, joins)
	}
	fmt.Fprintf(w, "Web page: %s\nTry: %s\n", page, firstCommand(cfg, url))
}

// firstCommand is a command to copy that works with this gateway.
func firstCommand(cfg serverConfig, url string) string {
	var b strings.Builder
	switch {
	case cfg.tokenFile != "":
		b.WriteString("SANDBOX_AGENT_TOKEN_FILE=" + quoteWord(cfg.tokenFile) + " ")
	case cfg.newToken:
		b.WriteString("SANDBOX_AGENT_TOKEN=" + cfg.token + " ")
	case cfg.token != "":
		b.WriteString("SANDBOX_AGENT_TOKEN=... ")
	}
	b.WriteString(quoteWord(programName()) + " prompt ")
	if url != defaultEndpoint {
		b.WriteString("--endpoint " + url + " ")
	}
	return b.String() + `--agent mock "hello"`
}

// programName is the word by which this program is started again: its plain name
// where PATH leads to it, else the way it was started this time.
func programName() string {
	const name = "sandbox-agent"
	self, err := os.Executable()
	if err != nil {
		return name
	}
	found, err := exec.LookPath(name)
	if err == nil && sameFile(found, self) || filepath.Base(os.Args[0]) != name {
		return name
	}
	return os.Args[0]
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// quoteWord is s as one word of a shell command.
func quoteWord(s string) string {
	if !strings.ContainsAny(s, " \t\n'\"\\$`&|;<>()*?[]{}#~!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
