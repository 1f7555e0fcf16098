package socket

import (
	"net"
	"net/http"
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

// Transport returns a copy of [http.DefaultTransport] that dials with [Dialer].
func Transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = Dialer(Silence).DialContext
	return t
}
