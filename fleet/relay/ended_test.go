package relay

import (
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// The connection to a node ends for a reason of the hub's own. Of what the node was sent it is told that it may have been done, and of
// what it was not sent that is not said.
func TestLine_EndsWithRequestsOpen(t *testing.T) {
	cancels := func(e *editor) {
		for range maxOut + 2 { // one of them is on its way
			e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		}
	}
	for name, tt := range map[string]struct {
		ends func(w *world, a *wire, e *editor)
		kind problem.Kind
	}{
		"the node is forgotten": {func(w *world, a *wire, _ *editor) {
			w.set("a", false)
			_ = a.Close()
			synctest.Wait()
			w.forget("a")
		}, problem.NodeNotFound},
		"the node takes nothing": {func(_ *world, _ *wire, e *editor) { cancels(e) }, problem.TooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/fs/write_file","params":{"sessionId":"s"}}`)
				sent := a.takes("_sandboxagent/fs/write_file")
				a.says(`{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":1}}}}`, sent.ID()) // each side has numbers of its own
				wants(t, e, "asked 1")
				e.send(`{"jsonrpc":"2.0","id":2,"method":"_sandboxagent/fs/write_file","params":{"sessionId":"s"}}`) // waits for the node
				e.send(`{"jsonrpc":"2.0","id":3,"method":"_sandboxagent/fs/write_file","params":{"sessionId":"s"}}`) // waits behind it
				e.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)                                                       // and so does this
				synctest.Wait()
				tt.ends(w, a, e)
				done := map[string]string{}
				for _, m := range e.gets() {
					if !m.IsResponse() {
						continue
					}
					if kind := rawjson.MemberString(m.Err().Data, "type"); kind != tt.kind.Type() {
						t.Errorf("%s", m.Frame())
					}
					done[string(m.ID())] = rawjson.MemberString(m.Err().Data, "done")
				}
				if len(done) != 3 || done["1"] != problem.Unknown {
					t.Errorf("what may have been done: %q", done)
				}
				if name == "the node takes nothing" && done["3"] != "" {
					t.Errorf("what the node was not sent may have been done: %q", done)
				}
			})
		})
	}
}
