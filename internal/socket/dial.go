package socket

import (
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// Silence is how long the machine at the other end of a connection may answer nothing.
const Silence = 45 * time.Second

// Dialer returns a dialer whose connections end when the machine at the other end answers nothing for so long, because it is off
// or the network is cut. Its system answers, also while its program is busy or stopped. Without this Go's probes
// take two and a half minutes, and the system tries to send for a quarter of an hour what nobody confirms.
func Dialer(silence time.Duration) *net.Dialer {
	d := &net.Dialer{Timeout: 30 * time.Second}
	d.KeepAliveConfig = net.KeepAliveConfig{Enable: true, Idle: silence / 3, Interval: silence / 9, Count: 6}
	d.Control = func(network, _ string, c syscall.RawConn) error {
		if network != "tcp" && network != "tcp4" && network != "tcp6" {
			return nil
		}
		return c.Control(func(fd uintptr) { boundUnconfirmed(fd, silence) })
	}
	return d
}

// Proxy is [http.ProxyFromEnvironment], but uses no proxy for any address of this machine, and for its host name: a proxy on another
// machine could not reach it, or would know another machine by that name. The standard library leaves out the loopback only, and not
// all of its names. What other names the machine has it does not look for: that would ask the network for each request.
func Proxy(r *http.Request) (*url.URL, error) {
	proxy, err := http.ProxyFromEnvironment(r)
	if proxy == nil || err != nil {
		return nil, err
	}
	if isOwnName(r.URL.Hostname()) {
		return nil, nil
	}
	ip := net.ParseIP(r.URL.Hostname())
	own, _ := net.InterfaceAddrs() // where they cannot be read, none is known to be of this machine
	for _, a := range own {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return nil, nil
		}
	}
	return proxy, nil
}

// isOwnName reports whether a name is the host name of this machine, with or without its domain, or one of the loopback.
func isOwnName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	own, err := os.Hostname()
	if err != nil || name == "" {
		return false
	}
	own = strings.ToLower(own)
	short, _, _ := strings.Cut(own, ".")
	return name == own || name == short
}

// Transport returns a copy of [http.DefaultTransport] that dials with [Dialer], and uses [Proxy].
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = Proxy
	t.DialContext = Dialer(Silence).DialContext
	return t
}
