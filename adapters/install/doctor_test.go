package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// examine returns the checks of a report by agent and name.
func examine(t *testing.T, in *Installer, agents ...string) (Report, map[string]Check) {
	t.Helper()
	rep, err := in.Doctor(t.Context(), agents)
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]Check{}
	for _, c := range rep.Checks {
		checks[strings.TrimSpace(c.Agent+" "+c.Name)] = c
		if c.Found == "" || (c.Status == CheckOK) != (c.Remedy == "") {
			t.Errorf("check %+v", c)
		}
	}
	return rep, checks
}

func wantCheck(t *testing.T, checks map[string]Check, name string, status CheckStatus, words ...string) {
	t.Helper()
	c, ok := checks[name]
	if !ok {
		t.Errorf("there is no check %q in %v", name, checks)
		return
	}
	if c.Status != status {
		t.Errorf("%s is %s, want %s: %+v", name, c.Status, status, c)
	}
	for _, w := range words {
		if !strings.Contains(c.Found+" / "+c.Remedy, w) {
			t.Errorf("%s: %q / %q does not say %q", name, c.Found, c.Remedy, w)
		}
	}
}

// Where a key and a login are both there, it says which one counts, also before the agent is
// installed.
func TestDoctor_Credentials(t *testing.T) {
	onPath(t, map[string]string{"node": "echo v22.1.0"})
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "CLAUDE_CONFIG_DIR": "", "CODEX_HOME": "", "ANTHROPIC_API_KEY": "sk-ant-secret", "ANTHROPIC_AUTH_TOKEN": "", "CLAUDE_CODE_OAUTH_TOKEN": "",
		"OPENAI_API_KEY": "sk-secret", "CODEX_API_KEY": "",
	} {
		t.Setenv(name, value)
	}
	login, auth := filepath.Join(home, ".claude", ".credentials.json"), filepath.Join(home, ".codex", "auth.json")
	for file, content := range map[string]string{
		login: `{"claudeAiOauth":{"accessToken":"oat-secret","refreshToken":"r","expiresAt":1}}`,
		auth:  `{"tokens":{"access_token":"chatgpt-secret","refresh_token":"r"}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := newMaker(t)
	m.putClaude("2.0.1", program("2.0.1 (Claude Code)"))
	in := m.installer(t, Options{})
	mustInstall(t, in, Request{Agent: "claude", Sources: []Source{Vendor}})
	rep, checks := examine(t, in, "claude", "codex")
	wantCheck(t, checks, "claude credentials", CheckOK, "it takes ANTHROPIC_API_KEY, and not "+login)
	wantCheck(t, checks, "codex program", CheckFailed)
	wantCheck(t, checks, "codex credentials", CheckOK, "it takes "+auth+", and not OPENAI_API_KEY")
	if doc := string(asJSON(rep)); strings.Contains(doc, "secret") {
		t.Errorf("a secret is in the report: %s", doc)
	}
	t.Setenv("ANTHROPIC_API_KEY", "")
	if _, checks = examine(t, in, "claude"); checks["claude credentials"].Found != "" {
		t.Errorf("one login alone: %+v", checks["claude credentials"])
	}
}

func TestDoctor_AllIsWell(t *testing.T) {
	onPath(t, map[string]string{"npm": "[ \"$1\" = --version ] && { echo 10.9.0; exit; }\n" + fakeNPM, "node": "echo v22.1.0", "rg": "echo ripgrep 14.1.0", "uvx": "echo uvx 0.9"})
	m := newMaker(t)
	m.putClaude("2.0.1", program("2.0.1 (Claude Code)"))
	m.put("/amp/cli-version.txt", []byte("0.0.9"))
	m.putRelease("anomalyco/opencode", "v1.2.3", true, map[string][]byte{"opencode-linux-x64.tar.gz": tarGz(t, entry{name: "opencode", body: string(program("1.2.3"))})})
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"}))
	t.Setenv("NPM_LOG", filepath.Join(t.TempDir(), "log"))
	in := m.installer(t, Options{})
	for _, a := range []string{"claude", "opencode"} {
		mustInstall(t, in, Request{Agent: a, Sources: []Source{Vendor}})
	}
	rep, checks := examine(t, in)
	if !rep.OK || rep.Platform != "linux-x64" {
		t.Errorf("report %+v", rep)
	}
	for _, name := range []string{"platform", "PATH", "data directory", "temporary directory", "npm", "uvx"} {
		wantCheck(t, checks, name, CheckOK)
	}
	wantCheck(t, checks, "source vendor storage.googleapis.com", CheckOK, "0.0.9 is the newest version of amp")
	wantCheck(t, checks, "source vendor github.com", CheckWarning, "answered 404", "mirror") // the first of its agents has no release there
	wantCheck(t, checks, "source npm", CheckOK, "3.2.1")
	wantCheck(t, checks, "source registry", CheckOK, "lists 1 agents")
	wantCheck(t, checks, "claude program", CheckOK, "2.0.1 from vendor", "2.0.1 (Claude Code)")
	wantCheck(t, checks, "opencode program", CheckOK, "answers initialize")
	wantCheck(t, checks, "opencode rg", CheckOK, "14.1.0")
	wantCheck(t, checks, "mock program", CheckOK)
	wantCheck(t, checks, "gemini program", CheckAbsent, "agents install gemini")
	if _, ok := checks["gemini node"]; ok {
		t.Error("the needs of an agent that nobody wants are checked")
	}
}

func TestDoctor_SaysWhatToDo(t *testing.T) {
	dir := onPath(t, map[string]string{"node": "echo v18.20.1", "gemini": "[ \"$1\" = --version ] && { echo 0.6.1; exit; }\n" + answersInitialize})
	m := newMaker(t)
	m.putClaude("2.0.1", program("2.0.1"))
	in := m.installer(t, Options{})
	r := mustInstall(t, in, Request{Agent: "claude", Sources: []Source{Vendor}})
	if err := os.WriteFile(r.Program, program("2.0.2"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SANDBOX_AGENT_AMP_BIN", filepath.Join(dir, "nothing"))
	broken := filepath.Join(t.TempDir(), "codex")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\n[ \"$1\" = --version ] && { echo codex-cli 1.0.0; exit; }\necho 'bwrap: Creating new namespace failed' >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SANDBOX_AGENT_CODEX_BIN", broken)
	rep, checks := examine(t, in, "claude", "codex", "opencode", "amp", "gemini")
	if rep.OK {
		t.Error("the report says that all is well")
	}
	wantCheck(t, checks, "claude program", CheckFailed, "is not the file that was installed", "agents install claude --reinstall")
	wantCheck(t, checks, "codex program", CheckOK, "1.0.0 from path")
	wantCheck(t, checks, "codex user namespaces", CheckFailed, "Creating new namespace failed", "seccomp")
	wantCheck(t, checks, "opencode program", CheckFailed, "not installed", "agents install opencode")
	wantCheck(t, checks, "opencode rg", CheckWarning, "rg is not in PATH", "search tools", "install rg")
	wantCheck(t, checks, "amp program", CheckFailed, "SANDBOX_AGENT_AMP_BIN names no program")
	wantCheck(t, checks, "gemini program", CheckOK, "answers initialize")
	wantCheck(t, checks, "gemini node", CheckFailed, "v18.20.1", "install node 20 or newer")
	wantCheck(t, checks, "npm", CheckWarning, "not found in PATH", "install Node.js")
	wantCheck(t, checks, "source npm", CheckWarning, "not found in PATH")

	m.Close()
	_, checks = examine(t, in, "claude")
	wantCheck(t, checks, "source vendor storage.googleapis.com", CheckWarning, "connection refused", "mirror")
	wantCheck(t, checks, "source registry", CheckWarning, "connection refused", "HTTPS_PROXY")

	t.Setenv("PATH", "")
	_, checks = examine(t, in, "mock")
	wantCheck(t, checks, "PATH", CheckFailed, "empty")
}

func TestDoctor_UnwritablePlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMaker(t)
	_, checks := examine(t, m.installer(t, Options{DataDir: file, Sources: []Source{Path}}), "mock")
	wantCheck(t, checks, "data directory", CheckFailed, "not a directory", "--data-dir")
	_, checks = examine(t, m.installer(t, Options{DataDir: filepath.Join(t.TempDir(), "later"), Sources: []Source{Path}, Platform: Platform{"plan9", "x64", false}}), "claude")
	wantCheck(t, checks, "data directory", CheckOK, "free")
	wantCheck(t, checks, "platform", CheckWarning, "plan9-x64", "_BIN")
	wantCheck(t, checks, "claude program", CheckFailed, "no source is known", "SANDBOX_AGENT_CLAUDE_BIN")
}

// Some agents need Node.js only when they were installed as packages.
func TestDoctor_NodeOfPackages(t *testing.T) {
	useNPM(t, fakeNPM, ".bin/pi")
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{NPM}})
	mustInstall(t, in, Request{Agent: "pi"})
	_, checks := examine(t, in, "pi")
	wantCheck(t, checks, "pi program", CheckOK)
	wantCheck(t, checks, "pi node", CheckFailed, "node is not in PATH", "install node")

	pack := tarGz(t, entry{name: "pi/pi", body: string(program("1.5.2"))})
	m.putRelease("earendil-works/pi", "v1.5.2", true, map[string][]byte{"pi-linux-x64.tar.gz": pack})
	in = m.installer(t, Options{Sources: []Source{Vendor}})
	mustInstall(t, in, Request{Agent: "pi"})
	rep, checks := examine(t, in, "pi")
	if _, ok := checks["pi node"]; ok || !rep.OK {
		t.Errorf("the maker's own program needs no Node.js: %+v", rep)
	}
}

func TestDoctor_Refuses(t *testing.T) {
	m := newMaker(t)
	putIndex(m, goose(obj{"archive": "https://files.test/goose", "cmd": "./goose"}))
	_, err := m.installer(t, Options{}).Doctor(t.Context(), []string{"nope"})
	wantProblem(t, err, problem.UnsupportedAgent, "no agent nope is known")
	_, err = m.installer(t, Options{}).Doctor(t.Context(), []string{"../x"})
	wantProblem(t, err, problem.InvalidRequest, "no agent's id")
}

func TestOlder(t *testing.T) {
	for _, tt := range []struct {
		version, least string
		want           bool
	}{{"22.1.0", "20", false}, {"20.0.0", "20", false}, {"18.20.1", "20", true}, {"22.18", "22.19.0", true}, {"22", "22.19", true}, {"", "1", true}, {"23", "22.19", false}} {
		if got := older(tt.version, tt.least); got != tt.want {
			t.Errorf("older(%q, %q) = %t", tt.version, tt.least, got)
		}
	}
}
