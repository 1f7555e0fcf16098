package opencode

import (
	"fmt"
	"net/http"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// While the stream of events is broken a turn may make a subagent, which asks for a permission. Both are found when
// the stream is there again.
func TestRefetch_AsksWhatANewSubagentAsks(t *testing.T) {
	client := latecomer{asked: make(chan struct{}), may: make(chan struct{})}
	close(client.may)
	cut, counted := make(chan struct{}), make(chan struct{})
	streams := make(chan int, 2)
	streams <- 1
	streams <- 2
	answers := map[string]string{
		"/session/S":         `{"id":"S"}`,
		"/session/S/message": `[{"info":{"id":"m","role":"assistant","sessionID":"S"},"parts":[{"id":"p","sessionID":"S","messageID":"m","type":"tool","tool":"task","callID":"c","state":{"status":"running","input":{"prompt":"go"},"metadata":{"sessionId":"C"}}}]}]`,
		"/session/C":         `{"id":"C","parentID":"S"}`,
		"/session/C/message": `[]`,
		"/permission":        `[{"id":"per_1","sessionID":"C","permission":"bash","patterns":["touch x"],"metadata":{"command":"touch x"}}]`,
		"/question":          `[]`,
		"/session/status":    `{"S":{"type":"busy"},"C":{"type":"busy"}}`,
	}
	s := beside(t, client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/global/event" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"payload\":{\"type\":\"server.connected\",\"properties\":{}}}\n\n")
			w.(http.Flusher).Flush()
			if <-streams == 1 {
				<-cut
				return
			}
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[r.URL.Path])
		if r.URL.Path == "/session/status" {
			close(counted)
		}
	}))
	one, over := prompted(s, settles)
	connected := make(chan struct{})
	s.srv.work.Go(func() { s.srv.follow(connected) })
	<-connected
	close(cut)
	<-counted
	s.work.Wait()
	select {
	case <-client.asked:
	default:
		t.Error("the client is not asked")
	}
	one.Settle(turn.Verdict{Reason: schema.StopReasonEndTurn})
	<-over
	s.srv.stop()
	s.srv.work.Wait()
}
