// Package storetest has NATS servers for tests.
package storetest

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
)

// Cluster are NATS servers that are one store, each reached over its ports only.
type Cluster struct {
	t       testing.TB
	options []*server.Options
	servers []*server.Server // nil: it is away
}

// NewCluster returns servers of which none has started, one that is alone for a size of 1. They end with the test.
func NewCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	c := &Cluster{t: t, servers: make([]*server.Server, size)}
	var routes []*url.URL
	var inner []int // the servers must know each other before they start
	for range size {
		inner = append(inner, freeport.Of(t))
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", inner[len(inner)-1])})
	}
	for i := range size {
		o := &server.Options{
			ServerName: fmt.Sprint("nats-", i), Host: "127.0.0.1", Port: freeport.Of(t), JetStream: true, JetStreamMaxStore: math.MaxInt64, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
		}
		if size > 1 {
			o.Cluster, o.Routes = server.ClusterOpts{Name: "fleet", Host: "127.0.0.1", Port: inner[i]}, routes
		}
		c.options = append(c.options, o)
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.Stop(i)
		}
	})
	return c
}

// Start starts a server, at the ports and with the store that it had before.
func (c *Cluster) Start(i int) {
	c.t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = s
	s.Start()
}

// BackUp copies the folder of a server that does not run, and returns what puts that in its place.
func (c *Cluster) BackUp(i int) (restore func()) {
	c.t.Helper()
	backup := filepath.Join(c.t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(c.options[i].StoreDir)); err != nil {
		c.t.Fatal(err)
	}
	return func() { c.options[i].StoreDir = backup }
}

// Stop ends a server that runs, and waits for its end.
func (c *Cluster) Stop(i int) {
	if s := c.servers[i]; s != nil {
		c.servers[i] = nil
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// Leader reports whether the servers that run agree on one of them.
func (c *Cluster) Leader() bool {
	for _, s := range c.servers {
		if s != nil && s.JetStreamIsLeader() {
			return true
		}
	}
	return false
}

// URL is the addresses of all servers.
func (c *Cluster) URL() string {
	var all []string
	for _, o := range c.options {
		all = append(all, fmt.Sprintf("nats://%s:%d", o.Host, o.Port))
	}
	return strings.Join(all, ",")
}
