package main

import (
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// configOf is what the server command makes of its arguments.
func configOf(t *testing.T, args ...string) (cfg serverConfig, err error) {
	t.Helper()
	app := newApp(stdio{err: newScreen(), out: newScreen(), in: strings.NewReader("")})
	for _, c := range app.Commands {
		if c.Name == "server" {
			c.Action = func(c *cli.Context) (err error) {
				cfg, err = serverConfigOf(c)
				return err
			}
		}
	}
	err = app.RunContext(t.Context(), append([]string{"sandbox-agent", "server"}, args...))
	return cfg, err
}

func TestServerConfig_Standard(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data")
	got, err := configOf(t)
	if err != nil {
		t.Fatal(err)
	}
	want := serverConfig{
		host: "127.0.0.1", port: "2468", dataDir: "/data/sandbox-agent", fsync: "turn", minFree: 64 << 20, maxMemory: defaultMemory(), maxIdleMemory: defaultMemory(), acpVersions: []int{1, 2},
		requestTimeout: 120 * time.Second, idleTimeout: 30 * time.Minute, unattachedTimeout: time.Minute, backgroundTimeout: 24 * time.Hour, maxBody: 32 << 20,
		commands: map[string][]string{}, log: cmdline.Log{Level: slog.LevelInfo},
		install: install.Options{DataDir: "/data/sandbox-agent"}, join: joinConfig{durability: session.Async},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(serverConfig{}, joinConfig{})); diff != "" {
		t.Errorf("configuration differs (-want +got):\n%s", diff)
	}
	t.Setenv("XDG_DATA_HOME", "relative")
	t.Setenv("HOME", "/home/x")
	if got, err = configOf(t); err != nil || got.dataDir != filepath.FromSlash("/home/x/.local/share/sandbox-agent") {
		t.Errorf("data directory %s, %v", got.dataDir, err)
	}
}

func TestServerConfig_FlagsAndVariables(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_TOKEN", "sesame")
	t.Setenv("SANDBOX_AGENT_ALLOWED_HOST", "a.example, b.example")
	t.Setenv("SANDBOX_AGENT_PORT", "0")
	t.Setenv("SANDBOX_AGENT_MAX_BODY", "1MB")
	t.Setenv("SANDBOX_AGENT_FS_ROOT", "/srv")
	got, err := configOf(t, "--host", "0.0.0.0", "--cors-allow-origin", "https://a", "--cors-allow-origin", "https://b",
		"--cors-allow-credentials", "--agent-command", "own=sh -c 'a, b'", "--log-format", "json", "--log-level", "debug", "--ephemeral")
	if err != nil {
		t.Fatal(err)
	}
	if got.host != "0.0.0.0" || got.port != "0" || got.maxBody != 1e6 || got.fsRoot != "/srv" || !got.ephemeral || got.log != (cmdline.Log{Level: slog.LevelDebug, JSON: true}) {
		t.Errorf("configuration %+v", got)
	}
	if diff := cmp.Diff(map[string][]string{"own": {"sh", "-c", "a, b"}}, got.commands); diff != "" {
		t.Errorf("commands differ (-want +got):\n%s", diff)
	}
	want := control.Guard{
		Bind: "0.0.0.0", Token: "sesame", AllowedHosts: []string{"a.example", "b.example"},
		CORS: control.CORS{Origins: []string{"https://a", "https://b"}, Credentials: true},
	}
	if diff := cmp.Diff(want, got.guard()); diff != "" {
		t.Errorf("guard differs (-want +got):\n%s", diff)
	}
}

func TestServerConfig_Install(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_MIRRORS", "https://a.example=http://mirror/a, https://b.example/x=https://u:p@mirror/b?k=v")
	t.Setenv("SANDBOX_AGENT_SOURCES", "npm,path,npm")
	t.Setenv("SANDBOX_AGENT_REGISTRY_URL", "https://mirror/registry.json")
	t.Setenv("SANDBOX_AGENT_REQUIRE_CHECKSUM", "1")
	t.Setenv("SANDBOX_AGENT_REQUIRE_SIGNATURE", "1")
	t.Setenv("SANDBOX_AGENT_REQUIRE_PREINSTALL", "true")
	got, err := configOf(t, "--data-dir", "/d")
	if err != nil || !got.requirePreinstall || got.dataDir != "/d" {
		t.Errorf("configuration %+v, %v", got, err)
	}
	want := install.Options{
		DataDir: "/d", Sources: []install.Source{install.NPM, install.Path}, RegistryURL: "https://mirror/registry.json", RequireChecksum: true, RequireSignature: true,
		Mirrors: map[string]string{"https://a.example": "http://mirror/a", "https://b.example/x": "https://u:p@mirror/b?k=v"},
	}
	if diff := cmp.Diff(want, got.install); diff != "" {
		t.Errorf("options differ (-want +got):\n%s", diff)
	}
	got, err = configOf(t, "--source", "vendor", "--source", "npm", "--mirror", "https://c=https://d", "--require-preinstall=false")
	if diff := cmp.Diff([]install.Source{install.Vendor, install.NPM}, got.install.Sources); diff != "" || err != nil || len(got.install.Mirrors) != 1 || got.requirePreinstall {
		t.Errorf("flags do not win over variables: %+v, %v", got.install, err)
	}
}

func TestServerConfig_Refusals(t *testing.T) {
	tests := []struct {
		args string
		want string // in the error; "" for none
	}{
		{"--host 0.0.0.0", "--no-token"},
		{"--host ::", "--no-token"},
		{"--host 192.0.2.1", "--no-token"},
		{"--host box.example", "--no-token"},
		{"--host 0.0.0.0 --no-token", ""},
		{"--host 0.0.0.0 --token x", ""},
		{"--host localhost", ""},
		{"--host 127.9.9.9", ""},
		{"--host ::1", ""},
		{"--host [::1]", ""},
		{"--token x --no-token", "both given"},
		{"--new-token --no-token", "--no-token and --new-token are both given"},
		{"--token x --token-file y", "--token and --token-file are both given"},
		{"--token-file /does/not/exist", "--token-file: read token: open /does/not/exist"},
		{"--cors-allow-origin *", "needs a token"},
		{"--cors-allow-origin * --token x", ""},
		{"--cors-allow-origin * --token x --cors-allow-credentials", "name the origins"},
		{"--cors-allow-origin app.example.com --token x", "is not an origin"},
		{"--cors-allow-origin https://app.example.com/page", "is not an origin"},
		{"--cors-allow-origin https://*.example.com", "is not an origin"},
		{"--cors-allow-origin https://App.example.com:8443/", ""},
		{"--cors-allow-origin null", ""},
		{"--cors-allow-origin vscode-webview://0a1b", ""},
		{"--allowed-host http://box/", "is not a host"},
		{"--allowed-host box/x", "is not a host"},
		{"--allowed-host box.example:8080,[::1],*", ""},
		{"--port 65536", "not a port"},
		{"--port http", "not a port"},
		{"--tls-cert c", "needed together"},
		{"--fsync sometimes", "turn, always, interval or never"},
		{"--log-level loud", "debug, info"},
		{"--log-format xml", "text or json"},
		{"--max-body 0", "not a size"},
		{"--max-body much", "not a size"},
		{"--request-timeout 0", "more than 0"},
		{"--idle-timeout -1s", "negative"},
		{"--mirror https://a", "not FROM=TO"},
		{"--mirror a=https://b", "what is replaced"},
		{"--mirror https://a=b", "asked instead"},
		{"--mirror https://a=https://b", ""},
		{"--source floppy", "path, vendor, npm, registry"},
		{"--registry-url x", "https or http address"},
		{"--agent-command x", "NAME=COMMAND LINE"},
		{"--agent-command x=", "is empty"},
		{"--agent-command x='", "inside a quote"},
		{"--agent-command x=a --agent-command x=b", "given twice"},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			_, err := configOf(t, strings.Fields(tt.args)...)
			if tt.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestSplitWords(t *testing.T) {
	tests := []struct {
		line string
		want []string
	}{
		{"", nil},
		{"  a  b\tc ", []string{"a", "b", "c"}},
		{`a 'b c' "d e"`, []string{"a", "b c", "d e"}},
		{`a'b'"c"d`, []string{"abcd"}},
		{`'' ""`, []string{"", ""}},
		{`a\ b "\"\\\n" '\'`, []string{"a b", `"\\n`, `\`}},
	}
	for _, tt := range tests {
		got, err := splitWords(tt.line)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tt.line, err, diff)
		}
	}
	for _, line := range []string{`'a`, `"a`, `a\`} {
		if got, err := splitWords(line); err == nil {
			t.Errorf("%s: %q, want an error", line, got)
		}
	}
}

func FuzzSplitWords(f *testing.F) {
	f.Add(`a 'b c' "d\"e" f\ g`)
	f.Fuzz(func(t *testing.T, line string) {
		got, err := splitWords(line)
		if err != nil {
			return
		}
		quoted := make([]string, len(got))
		for i, w := range got {
			quoted[i] = quoteAlways(w)
		}
		again, err := splitWords(strings.Join(quoted, " "))
		if diff := cmp.Diff(got, again); diff != "" || err != nil {
			t.Errorf("quoted words split differently: %v\n%s", err, diff)
		}
	})
}

func TestAnnounce_FirstCommand(t *testing.T) {
	tests := []struct {
		name string
		cfg  serverConfig
		addr net.TCPAddr
		want []string
	}{
		{"standard", serverConfig{host: "127.0.0.1"}, net.TCPAddr{Port: 2468}, []string{"listening on http://127.0.0.1:2468\n", "No token is needed", "Try: sandbox-agent prompt --agent mock \"hello\"\n"}},
		{"other port", serverConfig{host: "localhost"}, net.TCPAddr{Port: 7}, []string{`prompt --endpoint http://localhost:7 --agent mock`}},
		{"all interfaces", serverConfig{host: "::", token: "sesame"}, net.TCPAddr{Port: 7}, []string{"http://127.0.0.1:7\n", "A token is needed", "SANDBOX_AGENT_TOKEN=... sandbox-agent"}},
		{"token of this run", serverConfig{host: "127.0.0.1", token: "opened", newToken: true}, net.TCPAddr{Port: 2468}, []string{"Token of this run: opened\n", "Web page: http://127.0.0.1:2468/ui/#token=opened\n", "SANDBOX_AGENT_TOKEN=opened sandbox-agent prompt"}},
		{"open to all", serverConfig{host: "0.0.0.0"}, net.TCPAddr{Port: 7}, []string{"WARNING: no token is needed"}},
		{"token file", serverConfig{host: "127.0.0.1", token: "sesame", tokenFile: "/my files/token"}, net.TCPAddr{Port: 2468}, []string{"SANDBOX_AGENT_TOKEN_FILE='/my files/token' sandbox-agent prompt --agent"}},
		{"JSON in a file", serverConfig{host: "127.0.0.1", log: cmdline.Log{JSON: true}, logFile: "/log"}, net.TCPAddr{Port: 7}, []string{`"msg":"listening","url":"http://127.0.0.1:7"`}},
		{"JSON of warnings", serverConfig{host: "127.0.0.1", log: cmdline.Log{JSON: true, Level: slog.LevelWarn}}, net.TCPAddr{Port: 7}, []string{`"msg":"listening","url":"http://127.0.0.1:7"`}},
		{"TLS and IPv6", serverConfig{host: "2001:db8::1", token: "sesame", tlsCert: "c"}, net.TCPAddr{Port: 7}, []string{"https://[2001:db8::1]:7\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := newScreen()
			announce(tt.cfg, &tt.addr, slog.New(slog.DiscardHandler), out)
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out)
				}
			}
			if strings.Contains(out.String(), "sesame") {
				t.Errorf("the output has the token:\n%s", out)
			}
		})
	}
}

func TestServerConfig_BoundsOfSessions(t *testing.T) {
	got, err := configOf(t, "--data-dir", "/d", "--retain-age", "720h", "--retain-session-bytes", "64MiB", "--retain-bytes", "2GiB", "--max-idle-memory", "0")
	if err != nil {
		t.Fatal(err)
	}
	if want := (runtime.Retention{Age: 720 * time.Hour, SessionBytes: 64 << 20, Bytes: 2 << 30}); got.retention != want || got.maxIdleMemory != 0 {
		t.Errorf("%+v, idle processes may take %d bytes", got.retention, got.maxIdleMemory)
	}
	for _, args := range [][]string{{"--retain-age", "-1h"}, {"--retain-bytes", "many"}, {"--retain-session-bytes", "-1"}, {"--max-idle-memory", "x"}} {
		if _, err := configOf(t, append(args, "--data-dir", "/d")...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
