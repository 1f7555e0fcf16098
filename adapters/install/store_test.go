package install

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// versionsOf returns the installed versions of claude, the newest first, with a
// star at the current one.
func versionsOf(t *testing.T, in *Installer) []string {
	t.Helper()
	list, err := in.List()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		if i.Current {
			i.Version += "*"
		}
		names = append(names, i.Version)
	}
	return names
}

func TestStore_VersionsAndPruning(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	install := func(req Request, version string, already bool) {
		t.Helper()
		req.Agent = "claude"
		if r := mustInstall(t, in, req); r.Version != version || r.Already != already || !r.Current {
			t.Errorf("installed %s, already %t; want %s, %t", r.Version, r.Already, version, already)
		}
	}
	want := func(names ...string) {
		t.Helper()
		if d := cmp.Diff(names, versionsOf(t, in)); d != "" {
			t.Error(d)
		}
	}
	m.putClaude("1.0.0", program("1.0.0"))
	install(Request{}, "1.0.0", false)
	install(Request{}, "1.0.0", true)
	install(Request{Version: Latest}, "1.0.0", true)
	install(Request{Version: "v1.0.0"}, "1.0.0", true)
	m.putClaude("2.0.0", program("2.0.0"))
	install(Request{}, "1.0.0", true) // something is installed, that will do
	install(Request{Version: Latest}, "2.0.0", false)
	want("2.0.0*", "1.0.0")
	m.putClaude("3.0.0", program("3.0.0"))
	install(Request{Version: "3.0.0"}, "3.0.0", false)
	want("3.0.0*", "2.0.0")
	install(Request{Version: "2.0.0"}, "2.0.0", true) // back, without a download
	want("3.0.0", "2.0.0*")
	m.putClaude("2.0.0", program("2.0.0 rebuilt"))
	install(Request{Version: "2.0.0", Reinstall: true}, "2.0.0", false)
	want("2.0.0*", "3.0.0")
	if i, _ := in.Find("claude"); i.Reported != "2.0.0 rebuilt" {
		t.Errorf("found %+v", i)
	}
	if link, err := os.Readlink(filepath.Join(in.root, "claude", "current")); err != nil || link != "2.0.0" {
		t.Errorf("current is %q, %v", link, err)
	}

	if err := in.Remove(t.Context(), "claude"); err != nil {
		t.Fatal(err)
	}
	want()
	wantProblem(t, in.Remove(t.Context(), "claude"), problem.AgentNotInstalled, "nothing to remove")
	if _, err := in.Install(t.Context(), Request{Agent: "claude", Version: "9.9.9"}); err == nil {
		t.Error("a version that there is not was installed")
	}
	wantProblem(t, in.Remove(t.Context(), "claude"), problem.AgentNotInstalled, "nothing to remove")
	wantProblem(t, in.Remove(t.Context(), "nope"), problem.UnsupportedAgent, "no agent nope is known")
	wantProblem(t, in.Remove(t.Context(), "../x"), problem.InvalidRequest)
}

func TestStore_DataDirectoryMayMove(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	first := m.installer(t, Options{Sources: []Source{Vendor}})
	mustInstall(t, first, Request{Agent: "claude"})
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(filepath.Dir(first.root), moved); err != nil {
		t.Fatal(err)
	}
	i, ok := m.installer(t, Options{DataDir: moved}).Find("claude")
	if !ok || i.Program != filepath.Join(moved, "agents", "claude", "1.0.0", "claude") || i.Artifacts[0].Path != i.Program {
		t.Errorf("found %+v, %t", i, ok)
	}
}

func TestStore_LeftoversOfACrash(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	r := mustInstall(t, in, Request{Agent: "claude"})
	// An installer died between the two renames of a replacement, in the
	// middle of a download, and another one half-way through removing a version.
	for _, err := range []error{
		os.Rename(r.Dir, filepath.Join(in.root, "claude", ".old-1.0.0")),
		os.Mkdir(filepath.Join(in.root, "claude", ".stage-1"), 0o755),
		os.WriteFile(filepath.Join(in.root, "claude", ".stage-1.download"), []byte("x"), 0o644),
		os.Mkdir(filepath.Join(in.root, "claude", "0.9.0"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if again := mustInstall(t, in, Request{Agent: "claude"}); !again.Already {
		t.Error("the old version was not found again")
	}
	wantOnly(t, in, r.Installation)
}

// What a killed installer left does not wait for the next installation, which may never come; what one makes that runs
// stays.
func TestTidy(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	in.Tidy(t.Context()) // of nothing
	r := mustInstall(t, in, Request{Agent: "claude"})
	stage := filepath.Join(in.root, "claude", ".stage-1")
	if err := errors.Join(os.Mkdir(stage, 0o755), os.Rename(r.Dir, filepath.Join(in.root, "claude", ".old-1.0.0"))); err != nil {
		t.Fatal(err)
	}
	unlock, err := in.lock(t.Context(), "claude", nil)
	if err != nil {
		t.Fatal(err)
	}
	in.Tidy(t.Context())
	if _, err := os.Stat(stage); err != nil {
		t.Errorf("while somebody installs: %v", err)
	}
	unlock()
	ended, end := context.WithCancel(t.Context())
	end()
	in.Tidy(ended)
	in.PutBack()
	if _, there := in.Find("claude"); !there {
		t.Error("the version that was about to be replaced was not put back")
	}
	if _, err := os.Stat(stage); err != nil {
		t.Errorf("what takes long was done although it was to end: %v", err)
	}
	in.Tidy(t.Context())
	if _, there := in.Find("claude"); !there {
		t.Error("the version that was put back is gone")
	}
	wantOnly(t, in, r.Installation)
}

// A program whose files are not on the disk must not count as installed when the machine has lost its power.
func TestStore_IsDurableBeforeItIsSeen(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	full := errors.New("the disk does not take it")
	in.hooks.makeDurable = func(string) error { return full }
	if _, err := in.Install(t.Context(), Request{Agent: "claude"}); !errors.Is(err, full) {
		t.Errorf("installed with %v", err)
	}
	if _, there := in.installed("claude"); there {
		t.Error("a program that cannot be made durable is installed")
	}
	var durable []string
	in.hooks.makeDurable = func(dir string) error {
		if _, there := in.installed("claude"); there {
			t.Error("it is there before it is durable")
		}
		entries, err := os.ReadDir(dir)
		for _, e := range entries {
			durable = append(durable, e.Name())
		}
		return errors.Join(err, makeDurable(dir))
	}
	r := mustInstall(t, in, Request{Agent: "claude"})
	for _, e := range names(t, r.Dir) {
		if !slices.Contains(durable, e) {
			t.Errorf("%s came behind it, in %q", e, durable)
		}
	}
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestStore_ReplaceWithoutExchange(t *testing.T) {
	in := New(Options{DataDir: t.TempDir()})
	in.hooks.noExchange = true
	for _, d := range []string{"a/1.0.0", "a/.stage-1"} {
		if err := os.MkdirAll(filepath.Join(in.root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stage := filepath.Join(in.root, "a", ".stage-1")
	if err := os.WriteFile(filepath.Join(stage, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := in.land("a", "1.0.0", stage); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(in.root, "a", "1.0.0", "new")); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(in.root, "a", ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestFind_Order(t *testing.T) {
	dir := onPath(t, map[string]string{"claude": "echo '9.9.9 (Claude Code)'"})
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{})
	find := func(program string, ok bool) {
		t.Helper()
		i, found := in.Find("claude")
		if found != ok || ok && i.Program != program {
			t.Errorf("found %q, %t; want %q, %t", i.Program, found, program, ok)
		}
	}
	find(filepath.Join(dir, "claude"), true)
	r := mustInstall(t, in, Request{Agent: "claude"})
	if r.Source != Path || r.Version != "9.9.9" || !r.Already || r.Dir != "" {
		t.Errorf("installed %+v, want what is in PATH", r)
	}
	// A version that PATH does not have is installed beside it.
	r = mustInstall(t, in, Request{Agent: "claude", Version: "1.0.0"})
	if r.Source != Vendor || len(r.Attempts) != 1 || !strings.Contains(r.Attempts[0].Answer, `says "9.9.9 (Claude Code)"`) {
		t.Errorf("installed %+v", r)
	}
	find(r.Program, true)

	other := filepath.Join(dir, "my-claude")
	if err := os.WriteFile(other, program("7.0.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SANDBOX_AGENT_CLAUDE_BIN", other)
	find(other, true)
	if r := mustInstall(t, in, Request{Agent: "claude"}); r.Program != other || r.Version != "7.0.0" {
		t.Errorf("installed %+v", r)
	}
	t.Setenv("SANDBOX_AGENT_CLAUDE_BIN", filepath.Join(dir, "nothing"))
	find("", false)
	_, err := in.Install(t.Context(), Request{Agent: "claude"})
	wantProblem(t, err, problem.InstallFailed, "SANDBOX_AGENT_CLAUDE_BIN names no program")

	if _, ok := in.Find("nobody"); ok {
		t.Error("nobody was found")
	}
	if got := BinVariable("claude-acp"); got != "SANDBOX_AGENT_CLAUDE_ACP_BIN" {
		t.Errorf("variable %s", got)
	}
}

// second is another installer in a process of its own.
type second struct {
	cmd   *exec.Cmd
	lines *bufio.Reader
}

func startSecond(t *testing.T, address, data string) *second {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_INSTALL="+address, "TEST_DATA="+data)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &second{cmd: cmd, lines: bufio.NewReader(out)}
}

// until returns the first line that begins with prefix.
func (s *second) until(t *testing.T, prefix string) string {
	t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line)
		}
		if err != nil {
			t.Fatalf("the installer ended without %q: %v", prefix, err)
		}
	}
}

func TestLock_TwoProcesses(t *testing.T) {
	m := newMaker(t)
	body := program("1.0.0")
	m.putClaude("1.0.0", body)
	release := make(chan struct{})
	m.handle(claudeFile, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = w.Write(body)
	})
	data := t.TempDir()
	one := startSecond(t, m.URL, data)
	one.until(t, "step download")
	two := startSecond(t, m.URL, data)
	two.until(t, "step wait")
	close(release)
	if got := one.until(t, "result"); got != "result 1.0.0 false" {
		t.Errorf("the first says %q", got)
	}
	if got := two.until(t, "result"); got != "result 1.0.0 true" {
		t.Errorf("the second says %q", got)
	}
	for _, s := range []*second{one, two} {
		if _, err := io.Copy(io.Discard, s.lines); err != nil {
			t.Error(err)
		}
		if err := s.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := m.hitsOf(claudeFile); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
}

func TestLock_DiesWithItsHolder(t *testing.T) {
	m := newMaker(t)
	body := program("1.0.0")
	m.putClaude("1.0.0", body)
	started := make(chan struct{})
	m.handle(claudeFile, func(w http.ResponseWriter, r *http.Request) {
		half(w, body, 3)
		close(started)
		<-r.Context().Done()
	})
	data := t.TempDir()
	one := startSecond(t, m.URL, data)
	<-started
	if err := one.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = one.cmd.Wait() // it was killed
	m.put(claudeFile, body)
	in := m.installer(t, Options{DataDir: data, Sources: []Source{Vendor}})
	r := mustInstall(t, in, Request{Agent: "claude"})
	if r.Already {
		t.Error("half an installation was taken for one")
	}
	wantOnly(t, in, r.Installation)
}

func TestLock_WaitEndsWithContext(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	unlock, err := in.lock(t.Context(), "claude", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = in.Install(ctx, Request{Agent: "claude", Progress: func(p Progress) {
		if p.Step == StepWait {
			cancel()
		}
	}})
	wantProblem(t, err, problem.InstallFailed, "wait for another installation")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestInstall_ReinstallByTwoIsDoneOnce(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	mustInstall(t, in, Request{Agent: "claude"})
	unlock, err := in.lock(t.Context(), "claude", nil)
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan Result, 2)
	waiting := make(chan struct{}, 2)
	for range 2 {
		go func() {
			r, err := in.Install(t.Context(), Request{Agent: "claude", Reinstall: true, Progress: func(p Progress) {
				if p.Step == StepWait {
					waiting <- struct{}{}
				}
			}})
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	<-waiting
	<-waiting
	unlock()
	if a, b := <-results, <-results; a.Already == b.Already {
		t.Errorf("already: %t and %t, want one of each", a.Already, b.Already)
	}
	if n := m.hitsOf(claudeFile); n != 2 {
		t.Errorf("%d downloads, want 2", n)
	}
}

// Who wants the newest version from a source does not get the one that another installer has
// just installed, from wherever, unless it is that.
func TestInstall_ReinstallBehindAnother(t *testing.T) {
	for want, req := range map[string]Request{
		"2.0.0 from vendor, false": {Version: Latest, Reinstall: true},
		"3.2.1 from npm, false":    {Sources: []Source{NPM}, Reinstall: true},
	} {
		t.Run(want, func(t *testing.T) {
			useNPM(t, fakeNPM, "@anthropic-ai/claude-code-linux-x64/claude")
			m := newMaker(t)
			m.putClaude("1.0.0", program("1.0.0"))
			m.putClaude("2.0.0", program("2.0.0"))
			in := m.installer(t, Options{Sources: []Source{Vendor}})
			begun, release, waiting := make(chan struct{}), make(chan struct{}), make(chan struct{})
			m.handle(claudeFile, func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				<-release
				_, _ = w.Write(program("1.0.0"))
			})
			first := make(chan error, 1)
			go func() {
				_, err := in.Install(t.Context(), Request{Agent: "claude", Version: "1.0.0"})
				first <- err
			}()
			<-begun
			go func() {
				<-waiting
				close(release)
			}()
			req.Agent = "claude"
			req.Progress = func(p Progress) {
				if p.Step == StepWait {
					close(waiting)
				}
			}
			r := mustInstall(t, in, req)
			if got := fmt.Sprint(r.Version, " from ", r.Source, ", ", r.Already); got != want {
				t.Errorf("installed %s; want %s", got, want)
			}
			if err := <-first; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInstall_CancelDuringDownload(t *testing.T) {
	m := newMaker(t)
	m.putClaude("1.0.0", program("1.0.0"))
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	r := mustInstall(t, in, Request{Agent: "claude"})
	ctx, cancel := context.WithCancel(t.Context())
	m.handle(claudeFile, func(w http.ResponseWriter, r *http.Request) {
		half(w, bigClaude(), 10_000)
		cancel()
		<-r.Context().Done()
	})
	began := time.Now()
	_, err := in.Install(ctx, Request{Agent: "claude", Reinstall: true})
	wantProblem(t, err, problem.InstallFailed, "context canceled")
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("cancelling took %s", d)
	}
	if i, ok := in.Find("claude"); !ok || i.Program != r.Program {
		t.Errorf("found %+v, %t", i, ok)
	}
}

// A version of which a part is gone, as the removal of the rest was cut off, is none that is installed.
func TestStore_CutOffRemoval(t *testing.T) {
	m := newMaker(t)
	for name, remove := range map[string]func(in *Installer){
		"the agent": func(in *Installer) {
			if err := in.Remove(t.Context(), "claude"); err == nil {
				t.Error("it was not cut off")
			}
		},
		"an old version": func(in *Installer) {
			m.putClaude("3.0.0", program("3.0.0"))
			mustInstall(t, in, Request{Agent: "claude", Version: Latest})
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := m.installer(t, Options{Sources: []Source{Vendor}})
			for _, v := range []string{"1.0.0", "2.0.0"} {
				m.putClaude(v, program(v))
				mustInstall(t, in, Request{Agent: "claude", Version: Latest})
			}
			in.hooks.remove = func(dir string) error {
				if _, err := os.Lstat(dir); err != nil {
					return nil
				}
				return errors.New("cut off")
			}
			remove(in)
			if i, ok := in.Programs().Find("claude", "1.0.0"); ok {
				t.Errorf("found %+v", i)
			}
			in.hooks.remove = os.RemoveAll
			mustInstall(t, in, Request{Agent: "claude", Version: "1.0.0"})
			if left, _ := filepath.Glob(filepath.Join(in.root, "claude", ".*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// A session that names its version leaves the one that others use.
func TestPrograms_InstallBeside(t *testing.T) {
	m := newMaker(t)
	in := m.installer(t, Options{Sources: []Source{Vendor}})
	for _, v := range []string{"1.0.0", "2.0.0", "3.0.0"} {
		m.putClaude(v, program(v))
	}
	install := func(version, want string, there ...string) {
		t.Helper()
		p, err := in.Programs().Install(t.Context(), "claude", version, nil)
		if err != nil || p.Version != want || p.Path != filepath.Join(in.root, "claude", want, "claude") {
			t.Errorf("installed %+v, %v; want %s", p, err, want)
		}
		if d := cmp.Diff(there, versionsOf(t, in)); d != "" {
			t.Errorf("after %q, -want +got:\n%s", version, d)
		}
	}
	install("1.0.0", "1.0.0", "1.0.0*") // there is none in use
	mustInstall(t, in, Request{Agent: "claude", Version: "3.0.0"})
	install("2.0.0", "2.0.0", "2.0.0", "3.0.0*", "1.0.0")
	install("1.0.0", "1.0.0", "2.0.0", "3.0.0*", "1.0.0") // it is there
	install("", "3.0.0", "2.0.0", "3.0.0*", "1.0.0")
	// Of many those stay that were used last, and all that were used just now.
	ago := func(v string, minutes int) {
		t.Helper()
		at := time.Now().Add(-time.Duration(minutes) * time.Minute)
		if err := os.Chtimes(in.usedFile("claude", v), at, at); err != nil {
			t.Fatal(err)
		}
	}
	stay := func(want ...string) {
		t.Helper()
		have := versionsOf(t, in)
		slices.Sort(have)
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("after many, -want +got:\n%s", d)
		}
	}
	for i := range keptBeside + 2 {
		v := fmt.Sprintf("4.0.%d", i)
		m.putClaude(v, program(v))
		if _, err := in.Programs().Install(t.Context(), "claude", v, nil); err != nil {
			t.Fatal(err)
		}
	}
	stay("1.0.0", "2.0.0", "3.0.0*", "4.0.0", "4.0.1", "4.0.2", "4.0.3", "4.0.4", "4.0.5")
	for i, v := range []string{"4.0.5", "4.0.4", "4.0.3", "4.0.2", "4.0.1", "4.0.0", "2.0.0", "1.0.0"} {
		ago(v, 60+i)
	}
	if _, ok := in.Programs().Find("claude", "1.0.0"); !ok {
		t.Error("1.0.0 is not there")
	}
	ago("1.0.0", 50)
	m.putClaude("4.0.6", program("4.0.6"))
	if _, err := in.Programs().Install(t.Context(), "claude", "4.0.6", nil); err != nil {
		t.Fatal(err)
	}
	stay("1.0.0", "3.0.0*", "4.0.4", "4.0.5", "4.0.6")
}

// Versions that sessions name stay when somebody installs another one for all others, also one that all had used.
func TestPrograms_UpgradeLeavesWhatIsNamed(t *testing.T) {
	for name, before := range map[string]string{"beside another one": "2.0.0", "on an empty machine": ""} {
		t.Run(name, func(t *testing.T) {
			m := newMaker(t)
			in := m.installer(t, Options{Sources: []Source{Vendor}})
			for _, v := range []string{"1.0.0", "2.0.0", "3.0.0", "4.0.0"} {
				m.putClaude(v, program(v))
			}
			if before != "" {
				mustInstall(t, in, Request{Agent: "claude", Version: before})
			}
			if p, err := in.Programs().Install(t.Context(), "claude", "1.0.0", nil); err != nil || p.Version != "1.0.0" {
				t.Fatalf("%+v, %v", p, err)
			}
			for _, v := range []string{"3.0.0", "4.0.0"} {
				mustInstall(t, in, Request{Agent: "claude", Version: v})
			}
			if _, ok := in.Programs().Find("claude", "1.0.0"); !ok {
				t.Error("the version that sessions name was removed")
			}
			if _, ok := in.Programs().Find("claude", "2.0.0"); ok {
				t.Error("the version before the one before was kept")
			}
		})
	}
}
