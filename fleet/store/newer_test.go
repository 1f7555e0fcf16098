package store_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// Hubs of two versions can share a store while one after the other is brought up to date. What the newer one has written
// in a form that this one does not know is left alone, and who needs it is told at once.
func TestStore_RecordOfNewerVersion(t *testing.T) {
	t.Parallel()
	server := startNATS(t)
	s := open(t, "hub-1", store.Options{URL: server.ClientURL()}, nil)
	t.Cleanup(s.Close)
	conn, err := nats.Connect(server.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	bucket, err := js.KeyValue(t.Context(), "sa_nodes")
	if err != nil {
		t.Fatal(err)
	}
	const newer = `{"name":{"of":"another form"}}`
	if _, err := bucket.PutString(t.Context(), "a", newer); err != nil {
		t.Fatal(err)
	}
	// It is told of changes in their order.
	if _, err := bucket.PutString(t.Context(), "b", `{"name":"b"}`); err != nil {
		t.Fatal(err)
	}
	await(t, "the records", func() bool { _, known := s.Node("b"); return known })
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "i"}, anybody); err == nil || !strings.Contains(err.Error(), "newer version") {
		t.Errorf("a node of that name joins: %v", err)
	}
	if e, err := bucket.Get(t.Context(), "a"); err != nil || string(e.Value()) != newer {
		t.Errorf("the record: %v, %v", e, err)
	}
	if _, err := bucket.PutString(t.Context(), "a", `{"name":"a"}`); err != nil {
		t.Fatal(err)
	}
	await(t, "a record of this version", func() bool { _, known := s.Node("a"); return known })
	if _, err := s.Join(t.Context(), store.Node{Name: "a", Instance: "i"}, anybody); err != nil {
		t.Errorf("a node whose record can be read does not join: %v", err)
	}
}
