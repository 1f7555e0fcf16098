package claude

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

const forkedFrom = "00000000-0000-4000-8000-00000000000a"

// A fork has all of the conversation, under an id and with a plan of its own, and nothing of what is just being written.
func TestFork_HasALineOfItsOwn(t *testing.T) {
	w := bridgetest.With(t, New(), adapters.Program{Path: "/none"})
	const id = "00000000-0000-4000-8000-00000000000b"
	folder := filepath.Join(".claude", "projects", "-w")
	var lines, want []string
	for _, line := range [][2]string{
		{`{"type":"user","uuid":"1","sessionId":"FROM","slug":"a-plan","message":{"content":"FROM \u2028 1e2"}}`, `{"type":"user","uuid":"1","sessionId":"TO","message":{"content":"FROM \u2028 1e2"}}`},
		{`{"type":"cost-state","sessionId":"FROM","totalCostUSD":3}`, ""},
		{`{"type":"summary","summary":"s"}`, `{"type":"summary","summary":"s"}`},
		{`no JSON FROM`, `no JSON FROM`},
		{`["FROM"]`, `["FROM"]`},
		{"", ""},
		{`{"type":"assistant","uuid":"2","sessionId":"FROM"}`, `{"type":"assistant","uuid":"2","sessionId":"TO"}`},
	} {
		lines = append(lines, strings.ReplaceAll(line[0], "FROM", forkedFrom)+"\n")
		if line[1] != "" || line[0] == "" {
			want = append(want, strings.NewReplacer("FROM", forkedFrom, "TO", id).Replace(line[1])+"\n")
		}
	}
	file := w.Write(filepath.Join(folder, forkedFrom+".jsonl"), strings.Join(lines, "")+`{"type":"user","uuid":"3"`, 0o600)
	w.Write(filepath.Join(folder, forkedFrom, "subagents", "agent-1.jsonl"), "{}\n", 0o600)
	if err := fork(file, id); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(filepath.Dir(file), id)
	if got := w.Read(made + ".jsonl"); got != strings.Join(want, "") {
		t.Errorf("the fork has %s", got)
	}
	if got := w.Read(filepath.Join(made, "subagents", "agent-1.jsonl")); got != "{}\n" {
		t.Errorf("of the subagent it has %q", got)
	}
	if info, err := os.Stat(made + ".jsonl"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v, %v", info.Mode(), err)
	}
	if fork(filepath.Join(t.TempDir(), "none.jsonl"), id) == nil {
		t.Error("a file that is not there was copied")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".fork-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// The program says that a turn is over before all of it is in the transcript.
func TestFork_WaitsForWhatWasSaid(t *testing.T) {
	const first, second = `{"type":"assistant","uuid":"first"}` + "\n", `{"type":"assistant","uuid":"second"}` + "\n"
	for name, tt := range map[string]struct {
		said    []string // by a session that is open here; nil for one that is not
		written []string // at first, and a moment later
		missing bool
		agent   bool // the transcript of a subagent comes a moment later, too
	}{
		"all is there":              {[]string{"first", "second"}, []string{first + second}, false, false},
		"the last is missing":       {[]string{"first", "second"}, []string{first, first + second}, false, false},
		"the last is being written": {[]string{"first", "second"}, []string{first + strings.TrimSuffix(second, "}\n"), first + second}, false, false},
		"a subagent's is missing":   {[]string{"first"}, []string{first, first}, false, true},
		"nothing is there yet":      {[]string{"first"}, []string{"", first}, false, false},
		"the last is never there":   {[]string{"first", "second"}, []string{first}, false, false},
		"nothing is ever there":     {[]string{"first"}, nil, false, false},
		"nothing was said":          {[]string{}, nil, true, false},
		"it is not open, and there": {nil, []string{first}, false, false},
		"it is not open":            {nil, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			file := filepath.Join(folder, "projects", "-w", forkedFrom+".jsonl")
			write := func(content string) {
				if content == "" {
					return
				}
				if err := bridge.WritePrivate(file, []byte(content)); err != nil {
					t.Fatal(err)
				}
			}
			subagent := filepath.Join(folder, "projects", "-w", forkedFrom, "subagents", "agent-1")
			if tt.agent {
				if err := bridge.WritePrivate(subagent+".meta.json", []byte("{}")); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				a := &agent{peer: struct{ acp.Peer }{}, log: slog.New(slog.DiscardHandler), files: transcripts{filepath.Join(folder, "projects")}, sessions: bridge.NewSessions((*session).end)}
				if tt.said != nil {
					s := a.newSession(forkedFrom, "/w")
					for _, id := range tt.said {
						s.tr.session = forkedFrom
						s.tr.translate(&event{Type: "assistant", UUID: id, Message: []byte(`{"id":"m","content":[]}`)})
						s.tr.translate(&event{Type: "assistant", UUID: id + " of a subagent", Parent: "call", Message: []byte(`{"id":"n","content":[]}`)})
					}
					if err := a.sessions.Add(forkedFrom, s); err != nil {
						t.Fatal(err)
					}
					defer a.sessions.Close()
				}
				if len(tt.written) > 0 {
					write(tt.written[0])
				}
				found := make(chan error, 1)
				go func() {
					got, err := a.written(t.Context(), forkedFrom, forkedFrom, "/w")
					if err == nil && got != file {
						t.Errorf("found %s", got)
					}
					found <- err
				}()
				if len(tt.written) > 1 {
					synctest.Wait()
					select {
					case err := <-found:
						t.Errorf("it does not wait: %v", err)
						return
					default:
						write(tt.written[1])
						if err := bridge.WritePrivate(subagent+".jsonl", []byte("{}\n")); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := <-found; bridge.IsNotFound(err) != tt.missing || (err != nil) != (tt.missing || tt.said != nil && tt.written == nil) {
					t.Errorf("found: %v", err)
				}
			})
		})
	}
}
