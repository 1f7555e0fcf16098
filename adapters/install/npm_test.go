package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// fakeNPM is an npm client: it writes its arguments and environment to $LOG,
// answers view with a version, or with $NPM_DIST, and installs a program at
// $NPM_PLACE and says that it is $NPM_LOCK, or the wanted package with the sum 0.
const fakeNPM = `
echo "$*" >> "$NPM_LOG"
if [ "$1" = view ]; then
	[ -n "$NPM_MISSING" ] && { echo 'npm error code E404' >&2; echo 'npm error 404 No match found' >&2; exit 1; }
	dist="{\"name\":\"${2%@*}\",\"version\":\"${2##*@}\",\"dist\":{\"integrity\":\"sha512-0\"}}"
	case "$*" in
	*" dist "*) echo "${NPM_DIST:-$dist}" ;;
	*) echo '"3.2.1"' ;;
	esac
	exit 0
fi
[ "$1" = config ] && { echo "$NPM_REGISTRY"; exit; }
env > "$NPM_LOG.env"
[ -n "$NPM_FAILS" ] && { echo "npm error code $NPM_FAILS" >&2; echo "npm error something broke" >&2; exit 1; }
while [ "$1" != --prefix ]; do shift; done
place="$2/node_modules/$NPM_PLACE"
mkdir -p "${place%/*}"
cat > "$place" <<'END'
#!/bin/sh
[ "$1" = --version ] && { echo 3.2.1; exit; }
` + answersInitialize + `
END
chmod 755 "$place"
for spec; do :; done
lock="{\"packages\":{\"node_modules/${spec%@*}\":{\"version\":\"${spec##*@}\",\"integrity\":\"sha512-0\"}}}"
echo "${NPM_LOCK:-$lock}" > "$2/node_modules/.package-lock.json"
[ -n "$NPM_JSON" ] && { mkdir -p "$2/node_modules/${NPM_JSON%%=*}"; echo "${NPM_JSON#*=}" > "$2/node_modules/${NPM_JSON%%=*}/package.json"; }
exit 0
`

func useNPM(t *testing.T, script, place string) (log string) {
	t.Helper()
	dir := onPath(t, map[string]string{"npm": script})
	log = filepath.Join(dir, "npm.log")
	t.Setenv("NPM_LOG", log)
	t.Setenv("NPM_PLACE", place)
	return log
}

func TestNPM_Installs(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	tests := []struct {
		agent    string
		platform Platform
		place    string
		view     string
		install  string
	}{
		{"claude", Platform{"linux", "x64", true}, "@anthropic-ai/claude-code-linux-x64-musl/claude", "@anthropic-ai/claude-code@latest", "@anthropic-ai/claude-code-linux-x64-musl@3.2.1"},
		{"codex", Platform{"linux", "arm64", true}, "@openai/codex/vendor/aarch64-unknown-linux-musl/bin/codex", "@openai/codex@latest", "@openai/codex@3.2.1-linux-arm64"},
		{"opencode", Platform{"darwin", "arm64", false}, "opencode-darwin-arm64/bin/opencode", "opencode-ai@latest", "opencode-darwin-arm64@3.2.1"},
		{"amp", linuxX64, "@ampcode/cli-linux-x64/amp", "@ampcode/cli-linux-x64@latest", "@ampcode/cli-linux-x64@3.2.1"},
		{"gemini", linuxX64, ".bin/gemini", "@google/gemini-cli@latest", "@google/gemini-cli@3.2.1"},
		{"qwen", linuxX64, ".bin/qwen", "@qwen-code/qwen-code@latest", "@qwen-code/qwen-code@3.2.1"},
		{"copilot", Platform{"linux", "arm64", true}, "@github/copilot-linuxmusl-arm64/copilot", "@github/copilot@latest", "@github/copilot-linuxmusl-arm64@3.2.1"},
		{"pi", linuxX64, ".bin/pi", "@earendil-works/pi-coding-agent@latest", "@earendil-works/pi-coding-agent@3.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.agent, func(t *testing.T) {
			log := useNPM(t, fakeNPM, tt.place)
			in := newMaker(t).installer(t, Options{Platform: tt.platform, Sources: []Source{NPM}})
			r := mustInstall(t, in, Request{Agent: tt.agent})
			if r.Version != "3.2.1" || r.Source != NPM || !r.Verified || len(r.Packages) != 1 || r.Packages[0] != tt.install {
				t.Errorf("installed %+v", r)
			}
			if want := map[bool]string{true: HandshakeInitialize, false: HandshakeVersion}[r.ACPArgs != nil]; r.Handshake != want {
				t.Errorf("proved by %s as an ACP agent with %q", r.Handshake, r.ACPArgs)
			}
			calls := readFile(t, log)
			for _, want := range []string{"view " + tt.view + " version", "--ignore-scripts", "-- " + tt.install + "\n"} {
				if !strings.Contains(calls, want) {
					t.Errorf("npm was called with\n%swant %q", calls, want)
				}
			}
			if env := readFile(t, log+".env"); strings.Contains(env, "sk-secret") {
				t.Errorf("npm's environment:\n%s", env)
			}
		})
	}
}

func TestNPM_Missing(t *testing.T) {
	onPath(t, nil)
	_, err := newMaker(t).installer(t, Options{Sources: []Source{NPM}}).Install(t.Context(), Request{Agent: "codex"})
	wantProblem(t, err, problem.InstallFailed, "npm not found in PATH", "install Node.js")
}

func TestNPM_Fails(t *testing.T) {
	useNPM(t, fakeNPM, "x/y")
	in := newMaker(t).installer(t, Options{Sources: []Source{NPM}})
	t.Run("unknown version", func(t *testing.T) {
		t.Setenv("NPM_MISSING", "1")
		_, err := in.Install(t.Context(), Request{Agent: "codex", Version: "9.9.9"})
		wantProblem(t, err, problem.InvalidRequest, "no such version", "No match found")
		_, err = in.Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "No match found")
	})
	for code, want := range map[string]string{"EBADENGINE": "install a newer Node.js", "ETARGET": "without everything that it needs: name an older version", "ENOSPC": "free some space", "ECONNREFUSED": "npm's registry setting", "E403": "credentials", "E500": "something broke"} {
		t.Run(code, func(t *testing.T) {
			t.Setenv("NPM_FAILS", code)
			_, err := in.Install(t.Context(), Request{Agent: "codex"})
			wantProblem(t, err, problem.InstallFailed, want)
		})
	}
	t.Run("a home that cannot be written", func(t *testing.T) {
		useNPM(t, "echo 'npm error code ENOTDIR' >&2\necho 'npm error syscall mkdir' >&2\necho 'npm error path /home/x/.npm/_cacache' >&2\nexit 1\n", "x/y")
		_, err := in.Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "it cannot use /home/x/.npm/_cacache (ENOTDIR)", "set HOME or npm_config_cache")
	})
	t.Run("a home, and the code where it is not looked for", func(t *testing.T) {
		useNPM(t, "echo 'npm error path /home/x/.npm' >&2\necho 'npm error code E500' >&2\necho 'Error: code EACCES' >&2\nexit 1\n", "x/y")
		_, err := in.Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "it cannot use /home/x/.npm (EACCES)")
	})
	t.Run("a data directory behind a link", func(t *testing.T) {
		useNPM(t, "[ $1 = view ] && { echo '\"3.2.1\"'; exit; }\necho 'npm error code EACCES' >&2\necho \"npm error path $(pwd -P)/node_modules/x\" >&2\nexit 1\n", "x/y")
		m := newMaker(t)
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(t.TempDir(), link); err != nil {
			t.Fatal(err)
		}
		_, err := m.installer(t, Options{Sources: []Source{NPM}, DataDir: link}).Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "/node_modules/x")
		if strings.Contains(err.Error(), "HOME") {
			t.Error(err)
		}
	})
	t.Run("npm is killed", func(t *testing.T) {
		useNPM(t, "echo 'npm error code E500' >&2\nkill -9 $$\n", "x/y")
		_, err := in.Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "it was ended by SIGKILL: install again")
	})
	t.Run("a version that installs is named", func(t *testing.T) {
		t.Setenv("NPM_FAILS", "ETARGET")
		_, err := in.Install(t.Context(), Request{Agent: "pi"})
		wantProblem(t, err, problem.InstallFailed, "without everything that it needs", "agents install pi --agent-version "+recipes["pi"].npm.works)
	})
	t.Run("without the program", func(t *testing.T) {
		_, err := in.Install(t.Context(), Request{Agent: "codex"})
		wantProblem(t, err, problem.InstallFailed, "does not hold the program")
	})
}

// partsNPM is an npm client of a package whose newest versions name parts that nobody has
// published: of those in $NPM_BROKEN.
const partsNPM = `
case "$*" in
"view "*" versions "*) echo '["0.9.0","1.0.0-rc.1","1.0.0","1.1.0","3.2.1"]'; exit ;;
install*) for spec; do :; done
	case " $NPM_BROKEN " in
	*" ${spec##*@} "*)
		echo "$*" >> "$NPM_LOG"
		echo "npm error code ETARGET" >&2
		echo "npm error notarget No matching version found for @maker/part@${spec##*@}." >&2
		exit 1 ;;
	esac ;;
esac
` + fakeNPM

func TestNPM_NewestThatInstalls(t *testing.T) {
	const missing = "its maker published this version without everything that it needs: there is no @maker/part@3.2.1"
	log := useNPM(t, partsNPM, ".bin/pi")
	install := func(t *testing.T, r Request) (Result, error) {
		t.Helper()
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return newMaker(t).installer(t, Options{Sources: []Source{NPM}}).Install(t.Context(), r)
	}
	t.Run("the newest", func(t *testing.T) {
		if r, err := install(t, Request{Agent: "pi"}); err != nil || r.Version != "3.2.1" || r.Newer != nil {
			t.Errorf("installed %+v, %v", r, err)
		}
	})
	t.Setenv("NPM_BROKEN", "3.2.1 1.1.0")
	for _, version := range []string{"", Latest} {
		t.Run("an older one "+version, func(t *testing.T) {
			r, err := install(t, Request{Agent: "pi", Version: version})
			if err != nil || r.Version != "1.0.0" || r.Newer == nil || *r.Newer != (Newer{"3.2.1", missing}) {
				t.Errorf("installed %+v, %v", r, err)
			}
			if calls := readFile(t, log); strings.Contains(calls, "rc.1") || strings.Contains(calls, "0.9.0") {
				t.Errorf("npm was called with\n%s", calls)
			}
		})
	}
	t.Run("one that is there", func(t *testing.T) {
		in := newMaker(t).installer(t, Options{Sources: []Source{NPM}})
		mustInstall(t, in, Request{Agent: "pi"})
		if r := mustInstall(t, in, Request{Agent: "pi", Version: Latest}); !r.Already || r.Version != "1.0.0" || r.Newer == nil {
			t.Errorf("installed %+v", r)
		}
	})
	t.Run("what was asked for and nothing else", func(t *testing.T) {
		_, err := install(t, Request{Agent: "pi", Version: "3.2.1"})
		wantProblem(t, err, problem.InstallFailed, missing)
	})
	t.Run("none", func(t *testing.T) {
		t.Setenv("NPM_BROKEN", "3.2.1 1.1.0 1.0.0 0.9.0")
		_, err := install(t, Request{Agent: "pi"})
		wantProblem(t, err, problem.InstallFailed, missing)
	})
	t.Run("an older one that fails for another reason", func(t *testing.T) {
		t.Setenv("NPM_FAILS", "EBADENGINE")
		_, err := install(t, Request{Agent: "pi"})
		wantProblem(t, err, problem.InstallFailed, "version 3.2.1 without everything", "of 1.0.0", "install a newer Node.js")
	})
}

func TestInstall_EverySourceAnswers(t *testing.T) {
	onPath(t, nil)
	m := newMaker(t)
	_, err := m.installer(t, Options{}).Install(t.Context(), Request{Agent: "opencode"})
	wantProblem(t, err, problem.InstallFailed, "path: opencode not found in PATH", "vendor: ", "404", "npm: npm not found", "registry: ")
	p := problem.From(err)
	list, ok := p.Extensions["sources"].([]Attempt)
	if !ok || len(list) != 4 || list[1].Source != Vendor || !strings.Contains(list[1].Answer, "404") {
		t.Errorf("sources %+v", p.Extensions["sources"])
	}
	if doc := string(asJSON(p)); !strings.Contains(doc, `"source":"npm","answer":"npm not found`) {
		t.Errorf("document %s", doc)
	}

	_, err = m.installer(t, Options{}).Install(t.Context(), Request{Agent: "opencode", Sources: []Source{Path}})
	wantProblem(t, err, problem.AgentNotInstalled, "not found in PATH")
	_, err = m.installer(t, Options{}).Install(t.Context(), Request{Agent: "opencode", Sources: []Source{"floppy"}})
	wantProblem(t, err, problem.InvalidRequest, "is no source")
	_, err = m.installer(t, Options{}).Install(t.Context(), Request{Agent: "../x"})
	wantProblem(t, err, problem.InvalidRequest, "no agent's id")
}

func TestInstall_OrderIsTheCallers(t *testing.T) {
	log := useNPM(t, fakeNPM, "@anthropic-ai/claude-code-linux-x64/claude")
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	r := mustInstall(t, m.installer(t, Options{Sources: []Source{NPM, Vendor}}), Request{Agent: "claude"})
	if r.Source != NPM || m.hitsOf("/claude/latest") != 0 {
		t.Errorf("installed from %s", r.Source)
	}
	t.Setenv("NPM_FAILS", "E500")
	r = mustInstall(t, m.installer(t, Options{Sources: []Source{NPM, Vendor}}), Request{Agent: "claude"})
	if r.Source != Vendor || len(r.Attempts) != 1 || r.Attempts[0].Source != NPM {
		t.Errorf("installed from %s after %+v", r.Source, r.Attempts)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	r = mustInstall(t, m.installer(t, Options{}), Request{Agent: "claude", Sources: []Source{Vendor}})
	if _, err := os.Stat(log); err == nil || r.Source != Vendor {
		t.Errorf("installed from %s, npm asked: %t", r.Source, err == nil)
	}
}
