package install

import (
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestStatus(t *testing.T) {
	dir := onPath(t, nil)
	m := newMaker(t)
	in := m.installer(t, Options{})
	s, err := in.Status("claude")
	if err != nil || s.InUse != nil || s.Installed == nil || len(s.Installed) != 0 {
		t.Errorf("before: %+v, %v", s, err)
	}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		m.putClaude(v, program(v))
		mustInstall(t, in, Request{Agent: "claude", Version: v, Sources: []Source{Vendor}})
	}
	s, err = in.Status("claude")
	if err != nil || s.InUse == nil || s.InUse.Version != "2.0.0" || len(s.Installed) != 2 || s.Installed[0].Version != "2.0.0" || !s.Installed[0].Current || s.Installed[1].Current {
		t.Errorf("after: %+v, %v", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "codex"), program("1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if s, err = in.Status("codex"); err != nil || s.InUse == nil || s.InUse.Source != Path || len(s.Installed) != 0 {
		t.Errorf("in PATH: %+v, %v", s, err)
	}
	_, err = in.Status("nope")
	wantProblem(t, err, problem.UnsupportedAgent, "nope")
	_, err = in.Status("../x")
	wantProblem(t, err, problem.InvalidRequest, "no agent's id")

	programs := in.Programs()
	if p, ok := programs.Find("claude", ""); !ok || p.Version != "2.0.0" || p.Source != "vendor" || p.Path == "" {
		t.Errorf("found %+v, %t", p, ok)
	}
	if p, ok := programs.Find("claude", "1.0.0"); !ok || p.Version != "1.0.0" || p.Path != filepath.Join(in.root, "claude", "1.0.0", "claude") {
		t.Errorf("found %+v, %t", p, ok)
	}
	for _, v := range []string{"3.0.0", "../1.0.0", "current"} {
		if p, ok := programs.Find("claude", v); ok {
			t.Errorf("found %+v", p)
		}
	}
}

func TestBuiltIn(t *testing.T) {
	in := newMaker(t).installer(t, Options{})
	r := mustInstall(t, in, Request{Agent: "mock"})
	i, ok := in.Find("mock")
	if !ok || i.Source != BuiltIn || r.Source != BuiltIn || !r.Already || r.Program == "" || i.Program != r.Program {
		t.Errorf("installed %+v, found %+v", r, i)
	}
	_, err := in.Install(t.Context(), Request{Agent: "mock", Version: "1.0"})
	wantProblem(t, err, problem.InvalidRequest, "no versions")
	wantProblem(t, in.Remove(t.Context(), "mock"), problem.InvalidRequest, "nothing to remove")
}
