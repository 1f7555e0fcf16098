package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fleet/store/storetest"
)

// The servers of a store are restored from a backup under a running hub. It would go on with what it knows, such as tokens
// that are not there any more, would not hear of those that are revoked elsewhere, and could not write over what it
// knows: it says so, and ends. Started anew, it has what is there.
func TestServe_StoreIsSetBack(t *testing.T) {
	t.Parallel() // it waits more than it computes
	admin := filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(admin, []byte("admin-token-of-all-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	nats := storetest.NewCluster(t, 1)
	nats.Start(0)
	p := startProgram(t, "sandbox-hub", "serve", "--port", "0", "--nats", nats.URL(), "--admin-token-file", admin)
	hub := &fleet{program: p, admin: "admin-token-of-all-hubs"}
	create := func() (string, int) { return hub.try("token", "create", "--kind", "client", "--scope", "read") }
	nats.Stop(0)
	restore := nats.BackUp(0)
	nats.Start(0)
	conn, err := natsgo.Connect(nats.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "sa_leases")
	if err != nil {
		t.Fatal(err)
	}
	leases, err := kv.WatchAll(t.Context(), jetstream.UpdatesOnly())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // that are written behind the backup
		<-leases.Updates()
	}
	conn.Close()
	nats.Stop(0)
	restore()
	nats.Start(0)
	p.says("the store was set back to an earlier state", 1)
	<-p.exited
	if code := p.cmd.ProcessState.ExitCode(); code != cmdline.ExitFailure {
		t.Errorf("it ended with %d", code)
	}
	p.start()
	if out, code := create(); code != 0 {
		t.Errorf("started anew: %d %s", code, strings.TrimSpace(out))
	}
}
