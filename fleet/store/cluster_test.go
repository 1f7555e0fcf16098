package store_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// cluster are NATS servers that are one store, each reached over its ports only.
type cluster struct {
	t       *testing.T
	options []*server.Options
	servers []*server.Server // nil: it is away
}

func newCluster(t *testing.T, size int) *cluster {
	t.Helper()
	c := &cluster{t: t, servers: make([]*server.Server, size)}
	var routes []*url.URL
	var ports []int
	for range 2 * size { // they must know each other before they start
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	for _, port := range ports[size:] {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", port)})
	}
	for i := range size {
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprint("nats-", i), Host: "127.0.0.1", Port: ports[i], JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: server.ClusterOpts{Name: "fleet", Host: "127.0.0.1", Port: ports[size+i]}, Routes: routes,
		})
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	return c
}

func (c *cluster) start(i int) {
	c.t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = s
	s.Start()
}

func (c *cluster) stop(i int) {
	if s := c.servers[i]; s != nil {
		c.servers[i] = nil
		s.Shutdown()
		s.WaitForShutdown()
	}
}

// leader reports whether the servers that run agree on one of them.
func (c *cluster) leader() bool {
	for _, s := range c.servers {
		if s != nil && s.JetStreamIsLeader() {
			return true
		}
	}
	return false
}

func (c *cluster) url() string {
	var all []string
	for _, o := range c.options {
		all = append(all, fmt.Sprintf("nats://%s:%d", o.Host, o.Port))
	}
	return strings.Join(all, ",")
}

// Of three servers one may be away. With two away what is known stays known, the store
// says that it takes nothing, and goes on when one is back.
func TestCluster_ServersGoAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel()
	c := newCluster(t, 3)
	for i := range c.servers {
		c.start(i)
	}
	await(t, "the servers have chosen a leader", c.leader)
	s := open(t, "one", store.Options{URL: c.url(), Replicas: 3}, nil)
	defer s.Close()
	made := func() (string, error) {
		_, text, err := s.CreateToken(t.Context(), store.Token{Kind: store.KindClient, Scope: store.ScopeDrive})
		return text, err
	}
	before, err := made()
	if err != nil {
		t.Fatal(err)
	}

	c.stop(0)
	var later string
	await(t, "a token is made without one of the servers", func() bool {
		later, err = made()
		return err == nil
	})
	c.stop(1)
	await(t, "the store says that it takes nothing", func() bool { return s.Ready() != nil })
	if _, err := made(); err == nil {
		t.Error("a token is made by one of three servers")
	}
	for _, text := range []string{before, later} {
		if _, _, ok := s.Verify(text); !ok {
			t.Error("a token is not known any more")
		}
	}

	c.start(1)
	await(t, "the store takes something again", func() bool { return s.Ready() == nil })
	await(t, "a token is made again", func() bool { // each bucket chooses a leader by itself
		_, err := made()
		return err == nil
	})
	other := open(t, "two", store.Options{URL: c.url(), Replicas: 3}, nil)
	defer other.Close()
	for _, text := range []string{before, later} {
		if _, _, ok := other.Verify(text); !ok {
			t.Error("another hub does not know a token")
		}
	}
}
