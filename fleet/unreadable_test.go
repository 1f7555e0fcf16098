package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// What the store does not give of a session whose node is away is said to be the store's fault, for now: it is not taken for a file that
// somebody has damaged.
func TestExport_StoreDoesNotGiveAll(t *testing.T) {
	url := natsServer(t)
	h := startCopierOn(t, "hub", store.Options{URL: url})
	n := h.box("box", nil)
	c := h.hello(adminToken)
	s := c.session("box")
	c.says(s, "first")
	h.bundled(s, "box")
	h.loses(n, "box")
	conn := must(nats.Connect(url))
	defer conn.Close()
	js := must(jetstream.New(conn))
	stream := must(js.Stream(t.Context(), "OBJ_sa_bundles"))
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$O.sa_bundles.C.>")); err != nil {
		t.Fatal(err)
	}
	status, body := h.ask(http.MethodGet, "/v2/sessions/"+s+"/export", adminToken, nil)
	if status != http.StatusServiceUnavailable || kindOf(body) != "unavailable" || !strings.Contains(string(body), "cannot read its store") {
		t.Errorf("%d %s", status, body)
	}
}
