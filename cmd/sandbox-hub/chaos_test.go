package main_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store/storetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

var chaosLasts = flag.Duration("chaos.lasts", 30*time.Second, "how long TestChaos does harm")

// Three hubs on three NATS servers, and nodes that reach them by a bad network. Hubs are killed, servers
// stopped and connections cut at random while sessions stream. In the end the nodes are killed and
// their disks removed: what clients were shown is in the store, byte for byte.
func TestChaos_NothingSeenIsLost(t *testing.T) {
	agentcache.Long(t, "a minute; each of the faults alone is always tried")
	nats := storetest.NewCluster(t, 3)
	for i := range 3 {
		nats.Start(i)
	}
	admin := filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(admin, []byte("admin-token-of-all-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	var hubs []*fleet
	for range 3 {
		p := startProgram(t, "sandbox-hub", "serve", "--port", "0", "--nats", nats.URL(), "--nats-replicas", "3", "--admin-token-file", admin)
		hubs = append(hubs, &fleet{program: p, admin: "admin-token-of-all-hubs"})
	}
	at := func(f *fleet) string { return strings.TrimPrefix(f.url, "http://") }
	type stream struct {
		node    *program
		dir     string
		session string
		seen    *view
	}
	var ways []*wire
	var streams []*stream
	for i := range 2 {
		way := newWire(t, at(hubs[i]))
		way.rough = true
		ways = append(ways, way)
		node := hubs[i].startNode(fmt.Sprint("box-", i), "http://"+way.addr(), "--durability", "sync")
		dir := node.line[slices.Index(node.line, "--data-dir")+1]
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, filepath.Join(buildDir, "sandbox-agent"), "prompt", "slow")
			cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+node.url, "SANDBOX_AGENT_TOKEN=the-nodes-own-token")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = cmd.Wait() }() // it is killed
		}
		hubs[2].await("the sessions of the node are there", func() bool { return len(hubs[2].sessions(fmt.Sprint("node=box-", i))) == 2 })
		for _, s := range hubs[2].sessions(fmt.Sprint("node=box-", i)) {
			streams = append(streams, &stream{node, dir, s.SessionID, &view{events: map[uint64]string{}}})
		}
	}
	var following sync.WaitGroup
	for _, s := range streams {
		following.Go(func() { s.seen.follow(t, s.node, s.session, 1) })
	}

	faults := map[string]int{}
	for end := time.Now().Add(*chaosLasts); time.Now().Before(end); {
		switch i := rand.IntN(3); rand.IntN(4) {
		case 0:
			faults["hubs killed"]++
			hubs[i].kill(syscall.SIGKILL)
			hubs[i].start()
		case 1:
			faults["servers stopped"]++
			nats.Stop(i)
			nats.Start(i)
		case 2:
			faults["connections cut"]++
			ways[i%len(ways)].cut()
		case 3:
			faults["ways changed"]++
			way := ways[i%len(ways)]
			way.lead(at(hubs[rand.IntN(3)]))
			way.cut()
		}
		for _, way := range ways { // a hub that was killed has another address
			if !slices.ContainsFunc(hubs, func(f *fleet) bool { return way.leads(at(f)) }) {
				way.lead(at(hubs[rand.IntN(3)]))
			}
		}
		time.Sleep(time.Duration(rand.IntN(int(2 * time.Second)))) // faults come when they like
	}
	for _, s := range streams {
		s.node.kill(syscall.SIGKILL)
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	}
	following.Wait()
	t.Logf("%v", faults)
	for i, s := range streams {
		hubs[0].await("the store is whole again", func() bool { // a server may have gone a moment ago
			out, code := hubs[0].try("session", "show", s.session)
			return code == 0 && out != ""
		})
		stored := hubs[0].stored(s.session)
		missing := 0
		for seq, event := range s.seen.events {
			if stored[seq] != event {
				missing++
			}
		}
		if missing > 0 || len(s.seen.events) < 50 {
			t.Errorf("session %d: of %d events that a client was shown %d are not in the store, which has %d", i, len(s.seen.events), missing, len(stored))
		}
		t.Logf("session %d: %d events shown, %d in the store", i, len(s.seen.events), len(stored))
	}
}
