package cmdline

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// The programs that listen, as people know them.
const (
	Gateway = "gateway"
	Hub     = "hub"
)

// ExplainListen says who has the address that a gateway or a hub wants, and what can be
// done. err is that of listening.
func ExplainListen(ctx context.Context, self, host, port string, err error) error {
	address := net.JoinHostPort(host, port)
	var lookup *net.DNSError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen on %s: %s is no address of this machine: give --host one that is, such as 127.0.0.1, or 0.0.0.0 for all of them", address, host)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen on %s: this user may not listen on port %s: give --port one from 1024 on; 0 is any free one", address, port)
	case errors.As(err, &lookup):
		return fmt.Errorf("listen on %s: the name %s is not known: give --host an address of this machine, such as 127.0.0.1", address, host)
	default:
		return fmt.Errorf("listen: %w", err)
	}
	who := ""
	if pid, name := listener(port); pid != 0 {
		who = fmt.Sprintf(" by %s (process %d)", name, pid)
	}
	url, is := serverAt(ctx, host, port)
	switch {
	case is == Gateway && self == Gateway:
		return fmt.Errorf("%s is in use%s, which is a gateway already: use that one (sandbox-agent prompt --endpoint %s ...), stop it, or give this one another --port; 0 is any free one", address, who, url)
	case is != "":
		return fmt.Errorf("%s is in use%s, which is a %s: stop it, or give this %s another --port; 0 is any free one", address, who, is, self)
	}
	return fmt.Errorf("%s is in use%s: stop that program, or give another --port; 0 is any free one", address, who)
}

// ExplainHeld adds to the error of a data directory that somebody holds what answers at the
// address that is wanted, which is often the one who holds it.
func ExplainHeld(ctx context.Context, host, port string, err error) error {
	if url, is := serverAt(ctx, host, port); is == Gateway {
		return fmt.Errorf("%w; a gateway answers at %s, which you can use (sandbox-agent prompt --endpoint %s ...)", err, url, url)
	}
	return err
}

// serverAt returns what answers at a port of this machine as one of our programs does, and
// its address; "" when nothing does.
func serverAt(ctx context.Context, host, port string) (url, is string) {
	for _, secure := range []bool{false, true} {
		url = LocalURL(host, port, nil, secure)
		if is := answering(ctx, url); is != "" {
			return url, is
		}
	}
	return "", ""
}

// Answers reports whether one of our programs answers at an address of this machine.
func Answers(ctx context.Context, url string) bool { return answering(ctx, url) != "" }

// answering asks an address of this machine for its health, and returns which of our programs answers; "" when none
// does. No proxy is asked: it may not find the way back, and its answer is not that of the program. Nothing secret
// is sent, so that no certificate needs to be trusted.
func answering(ctx context.Context, url string) (is string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v2/health", nil)
	if err != nil {
		return ""
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return ""
	}
	var health struct{ Status, Role string }
	err = json.NewDecoder(io.LimitReader(resp.Body, 1<<10)).Decode(&health)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || health.Status != "ok" {
		return ""
	}
	return cmp.Or(health.Role, Gateway)
}
