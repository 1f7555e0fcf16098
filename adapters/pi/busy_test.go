package pi

import (
	"errors"
	"log/slog"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// Pi refuses a prompt because of a run, which it has not. Or it ends then: the prompt is for the next process. Or it makes a
// summary, and takes the prompt behind that.
func TestPrompt_RefusedAsBusy(t *testing.T) {
	const summary = 2 // it is refused so often because of one, which goes on for so many questions
	for name, why := range map[string]string{"and does nothing": busy, "and ends": busy, "and makes a summary": compacting} {
		ends := name == "and ends"
		t.Run(name, func(t *testing.T) {
			// It repeats what Pi is told.
			child, err := bridge.Start(t.Context(), process.Spec{Path: "/bin/cat"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := &agent{peer: listener{}, log: slog.New(slog.DiscardHandler), conn: new(bridge.Conn)}
			a.sessions = bridge.NewSessions((*session).end)
			s := a.newSession(&launch{Setup: &bridge.Setup{Cwd: t.TempDir()}, mode: modeDefault})
			s.name("S")
			p := &program{child: child, calls: map[string]call{}, ended: make(chan struct{}), exit: &adapters.ExitError{Code: 7}}
			s.served, s.prog = true, p
			if err := a.sessions.Add("S", s); err != nil {
				t.Fatal(err)
			}
			given, looked, read := 0, 0, make(chan struct{})
			go func() {
				defer close(read)
				child.Each(func(line []byte) error {
					e := &event{Type: "response", ID: rawjson.MemberString(line, "id"), Success: true, Data: []byte(`{}`)}
					switch rawjson.MemberString(line, "type") {
					case "get_state":
						if ends {
							close(p.ended)
							s.lost(p.exit)
							return nil
						}
						if looked++; why == compacting && looked <= summary {
							e.Data = []byte(`{"isCompacting":true}`)
						}
					case "prompt":
						if given++; given <= summary || why == busy {
							e.Success, e.Error = false, why
						} else {
							e.Data = []byte(`{"disposition":"handled"}`)
						}
					}
					p.answered(e)
					return nil
				}, func([]byte, error) {})
			}()
			_, err = a.Prompt(t.Context(), &schema.PromptRequest{SessionID: "S", Prompt: []schema.ContentBlock{schema.TextBlock("go")}})
			_, exited := errors.AsType[*adapters.ExitError](err)
			refusal, _ := errors.AsType[*acp.Error](err)
			switch {
			case ends && (!exited || !a.conn.Untaken("S")):
				t.Errorf("it ended with %v, untaken %t", err, a.conn.Untaken("S"))
			case why == compacting && (err != nil || given != summary+1):
				t.Errorf("it ended with %v, given %d times", err, given)
			case !ends && why == busy && (refusal == nil || refusal.Message != "pi refused the prompt: "+busy):
				t.Errorf("it ended with %v, given %d times", err, given)
			}
			s.stop()
			_ = child.End(process.Ladder{})
			<-read
			if !ends {
				close(p.ended)
			}
			s.work.Wait()
		})
	}
}
