package pi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// silent is a client that takes what it is told.
type silent struct{ acp.Peer }

func (silent) Update(context.Context, schema.SessionID, any) error { return nil }
func (silent) Notify(context.Context, string, any) error           { return nil }

// answers returns a session of a Pi that answers so to each command.
func answers(t *testing.T, answer func(s *session, command string) (data string)) (s *session, end func()) {
	t.Helper()
	// It repeats what Pi is told.
	child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{peer: silent{}, log: slog.New(slog.DiscardHandler)}
	s = a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
	s.name("S")
	p := &program{child: child, calls: map[string]call{}, ended: make(chan struct{})}
	s.served, s.prog = true, p
	read := make(chan struct{})
	go func() {
		defer close(read)
		child.Each(func(line []byte) error {
			data := answer(s, rawjson.MemberString(line, "type"))
			p.answered(&event{Type: "response", ID: rawjson.MemberString(line, "id"), Success: true, Data: []byte(data)})
			return nil
		}, func([]byte, error) {})
	}()
	return s, func() {
		s.work.Wait()
		s.stop()
		_ = child.End(process.Ladder{})
		<-read
		close(p.ended)
		s.work.Wait()
	}
}

// What Pi says last counts, also when it is asked several times at once, and when it tells of something meanwhile.
func TestReadState_TheLastCounts(t *testing.T) {
	for _, what := range []string{"asked again", "told"} {
		t.Run(what, func(t *testing.T) {
			var asked []string
			looked := 0
			s, end := answers(t, func(s *session, command string) string {
				asked = append(asked, command)
				switch command {
				case "get_state":
					looked++
					return fmt.Sprintf(`{"model":{"provider":"p","id":"m%d"},"thinkingLevel":"low"}`, looked)
				case "get_available_models":
					if looked > 1 {
						break
					}
					if what == "told" {
						s.observe(&event{Type: "thinking_level_changed", Level: "high"})
						break
					}
					s.goOn(s.prog, &announcement{})
					for range 1000 { // it gets its turn
						goruntime.Gosched()
					}
				}
				return `{}`
			})
			s.goOn(s.prog, &announcement{})
			end()
			if what == "told" {
				if s.set.thinking != "high" {
					t.Errorf("the level is %s", s.set.thinking)
				}
				return
			}
			if i := slices.Index(asked, "get_available_thinking_levels"); s.set.model != "p/m2" || slices.Contains(asked[1:i], "get_state") {
				t.Errorf("the model is %s, Pi was asked for %q", s.set.model, asked)
			}
		})
	}
}

// A compaction that Pi begins by itself may end without a sign.
func TestObserve_CompactionWithoutAnEnd(t *testing.T) {
	looked := 0
	s, end := answers(t, func(s *session, command string) string {
		if looked++; looked < 3 {
			if !s.turns.Alone() {
				t.Error("it is over while Pi says that it goes on")
			}
			return `{"isCompacting":true}`
		}
		return `{}`
	})
	for _, e := range []string{`{"type":"compaction_start","reason":"manual"}`} {
		one, err := parse([]byte(e))
		if err != nil {
			t.Fatal(err)
		}
		s.take(s.prog, one)
	}
	end()
	if s.turns.Busy() {
		t.Error("it is not over")
	}
}

// What is allowed for a session is what the client is told. Commands that are no text have nothing in common.
func TestPermission_OfACommand(t *testing.T) {
	for args, want := range map[string]string{
		`{"command":"make\n  test"}`: "Allow, Always allow `make test` in this session, Always allow all commands in this session, Reject",
		`{"command":["make"]}`:       "Allow, Always allow all commands in this session, Reject",
		`{"command":" "}`:            "Allow, Always allow all commands in this session, Reject",
		`{}`:                         "Allow, Always allow all commands in this session, Reject",
	} {
		s, end := answers(t, func(*session, string) string { return `{}` })
		q := &gateQuestion{Call: "c", Tool: "bash", Args: json.RawMessage(args)}
		var names []string
		for _, o := range s.permissionRequest(q, nil).Options {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s: it offers %q", args, got)
		}
		s.granted = bridge.Grants{{Key: "bash\x00"}} // as an earlier version has kept it
		if answer, known := s.decided(q); known {
			t.Errorf("%s: nobody is asked, and it is decided to %s", args, answer)
		}
		end()
	}
}

// collects is a client that keeps what it is told.
type collects struct {
	silent
	all []schema.SessionUpdate
}

func (c *collects) Update(_ context.Context, _ schema.SessionID, update any) error {
	c.all = append(c.all, update.(schema.SessionUpdate))
	return nil
}

// What Pi says before there is a session is bounded. Pieces of messages go first, and the client is told.
func TestName_WhatWasSaidBefore(t *testing.T) {
	client := &collects{}
	s := (&agent{peer: client, log: slog.New(slog.DiscardHandler)}).newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
	s.emit(func(*translator) []schema.SessionUpdate {
		var out []schema.SessionUpdate
		for range 2 * maxEarly {
			out = append(out, schema.AgentMessage(schema.TextBlock(".")))
		}
		return append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: "c", Status: schema.ToolCallStatusCompleted}})
	})
	s.name("S")
	if n := len(client.all); n != maxEarly+2 || client.all[0].Notice == nil || client.all[n-1].ToolCallUpdate == nil {
		t.Errorf("%d updates come", n)
	}
	s.stop()
}
