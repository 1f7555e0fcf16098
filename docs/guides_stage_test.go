package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/freeport"
)

// programs is the folder in which a guide's programs are found.
func (s *stage) programs() string {
	path, _ := strings.CutPrefix(s.env[0], "PATH=")
	return path
}

// prepareEditors has an agent of the name claude that needs no account, and an editor that uses
// each of the page's settings as soon as they are copied.
func prepareEditors(t *testing.T, p page, s *stage) {
	t.Helper()
	symlink(t, agentcache.NPM(t, "acpx/dist/cli.js", "acpx@0.19.1"), filepath.Join(s.programs(), "acpx"))
	if err := os.MkdirAll(filepath.Join(s.home, ".local", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	symlink(t, filepath.Join(s.programs(), "sandbox-agent"), filepath.Join(s.home, ".local", "bin", "sandbox-agent"))
	editor, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.alone = true
	s.real = map[string]string{"https://sandbox.example.com": "http://127.0.0.1:" + standardPort, "/home/you": s.home}
	s.env = append(s.env, "SANDBOX_AGENT_AGENT_COMMAND=claude=sandbox-agent acp --agent mock")
	used := 0
	s.after = func(i int, b block) string {
		file, ok := strings.CutPrefix(b.mark, "file: ")
		if !ok {
			return ""
		}
		used++
		return fmt.Sprintf("%s=\"%s\" %s >$BLOCKS/%d 2>&1\n", settingsVariable, strings.Replace(file, "~", "$HOME", 1), editor, i)
	}
	t.Cleanup(func() {
		if used < 5 {
			t.Errorf("%s has the settings of %d editors", p.name, used)
		}
	})
}

// prepareChatPage has a registry with the packages that the page installs, and a visitor with a
// browser who comes when both servers run.
func prepareChatPage(t *testing.T, p page, s *stage) {
	t.Helper()
	const site, address = "8000", "http://127.0.0.1:8000/#agent=mock"
	if !strings.Contains(p.prose, "`"+address+"`") {
		t.Fatalf("%s does not say to open %s", p.name, address)
	}
	s.real = map[string]string{site: strconv.Itoa(freeport.Of(t))}
	s.env = append(s.env, "npm_config_registry="+startRegistry(t).url, "PYTHONUNBUFFERED=1")
	cache, err := agentcache.Dir() // where its browser is kept
	if err != nil {
		t.Fatal(err)
	}
	visit := fmt.Sprintf("SANDBOX_AGENT_TEST_CACHE='%s' ", cache) + typeScript(t, "sdk-ts", "test/visit.ts") + " " + strings.Replace(address, site, s.real[site], 1)
	servers := 0
	s.after = func(_ int, b block) string {
		if b.mark == "run: background" {
			servers++
		}
		if servers < 2 {
			return ""
		}
		return visit + "\n"
	}
	t.Cleanup(func() {
		if servers != 2 {
			t.Errorf("%s starts %d servers", p.name, servers)
		}
	})
}

// typeScript is the command that runs a program of this repository that is in TypeScript, with
// everything that this machine has.
func typeScript(t *testing.T, project, program string) string {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	loader := filepath.Join(root, "examples", "node_modules", "tsx", "dist", "loader.mjs")
	for _, needed := range []string{loader, filepath.Join(root, project, "node_modules")} {
		if _, err := os.Stat(needed); err != nil {
			t.Skip("the Node packages are missing: run ./task node:deps")
		}
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node is missing")
	}
	return fmt.Sprintf("PATH='%s' %s --import file://%s %s", os.Getenv("PATH"), node, loader, filepath.Join(root, project, program))
}

// prepareE2B has a double of E2B's cloud, of GitHub and of what npm and pip fetch.
func prepareE2B(t *testing.T, p page, s *stage) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	double := typeScript(t, "examples", "test/serve_e2b.ts")
	python := filepath.Join(root, "sdk-py", ".venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Skip("the environment of the Python package is missing: run ./task python:deps")
	}
	run := func(dir string, line ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		t.Helper()
		_ = os.Remove(name) // it may be a link to the real one
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	// GitHub has this repository, and the reader's project, of which they have a clone.
	repository, _ := clone(t)
	project := filepath.Join(t.TempDir(), "project")
	run(root, "git", "init", "--quiet", project)
	run(project, "git", "-c", "user.name=me", "-c", "user.email=me@localhost", "commit", "--quiet", "--allow-empty", "--message", "first")
	run(root, "git", "clone", "--quiet", project, filepath.Join(s.home, "project"))
	write(filepath.Join(s.home, ".gitconfig"), fmt.Sprintf(`[url "file://%s"]
	insteadOf = https://github.com/sandboxagent/sandbox-agent
[url "file://%s"]
	insteadOf = https://github.com/you/project
`, repository, project))

	// What npm ci installs is there already. pip has a stand-in for E2B's SDK, and our package
	// as it is.
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is missing")
	}
	write(filepath.Join(s.programs(), "npm"), fmt.Sprintf(`#!/bin/sh
case "$1" in
ci) cp -RPl "%[1]s/$(basename "$PWD")/node_modules" . 2>/dev/null || cp -RP "%[1]s/$(basename "$PWD")/node_modules" . ;;
*) exec %[2]s "$@" ;;
esac
`, root, npm))
	site, tls := t.TempDir(), t.TempDir()
	run(tls, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key", "-out", "cert",
		"-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
	write(filepath.Join(s.programs(), "pip"), fmt.Sprintf(`#!/bin/sh
[ "$1" = install ] || exit 2
shift
for name; do
	case $name in
	e2b) cp %[1]s/sdk-py/tests/standin/e2b.py %[2]s ;;
	../../sdk-py) cp -R %[1]s/sdk-py/src/sandbox_agent %[2]s ;;
	*) exit 1 ;;
	esac
done
`, root, site))
	write(filepath.Join(s.programs(), "python3"), fmt.Sprintf(`#!/bin/sh
export PYTHONPATH=%[1]s SSL_CERT_FILE=%[2]s/cert STANDIN_CERT=%[2]s/cert STANDIN_KEY=%[2]s/key STANDIN_LOG=%[2]s/log
exec %[3]s "$@"
`, site, tls, python))

	// E2B. Its names lead to the double in every program of Node. All sandboxes share this
	// machine's ports.
	work := t.TempDir()
	run(root, filepath.Join(root, "examples", "node_modules", ".bin", "esbuild"), "examples/test/network.ts", "--outfile="+filepath.Join(work, "network.mjs"), "--format=esm", "--log-level=warning")
	unknown := filepath.Join(work, "unknown")
	s.alone = true
	s.before = fmt.Sprintf(`SANDBOX_AGENT_BIN=$(command -v sandbox-agent) %[1]s %[2]s/variables %[3]s >$BLOCKS/double 2>&1 &
address $BLOCKS/double ""
. %[2]s/variables
export GATEWAY_PORT=$PORT NODE_OPTIONS=--import=file://%[2]s/network.mjs
`, double, work, unknown)
	t.Cleanup(func() {
		if b, err := os.ReadFile(unknown); err != nil || len(b) > 0 {
			t.Errorf("requests that the double of E2B does not know: %s %v", b, err)
		}
	})
}
