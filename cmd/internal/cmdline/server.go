package cmdline

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// Words splits values at commas, for variables that hold several.
func Words(values []string) []string {
	var out []string
	for _, v := range values {
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); w != "" {
				out = append(out, w)
			}
		}
	}
	return out
}

// DataDir is where a program keeps what it has, unless it is told otherwise.
func DataDir(program string) (string, error) {
	if base := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, program), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("the data directory is in the home directory, which is not known: set HOME, or give --data-dir (%w)", err)
	}
	return filepath.Join(home, ".local", "share", program), nil
}

// Endpoint is the error of a value that is no address of a server; nil for one.
func Endpoint(c *cli.Context, flag, value string) error {
	if isEndpoint(value) {
		return nil
	}
	meant := ""
	if like := "http://" + value; !strings.Contains(value, "//") && isEndpoint(like) {
		meant = ": did you mean " + secret.Address(like) + "?"
	}
	return Usagef(c, "--%s: %q is not an http or https address%s", flag, secret.Address(value), meant)
}

func isEndpoint(value string) bool {
	u, err := url.Parse(value)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// LocalURL is the address, good on this machine, of a server for host and port. The port
// is that of addr where the server listens already.
func LocalURL(host, port string, addr net.Addr, tls bool) string {
	scheme := "http"
	if tls {
		scheme = "https"
	}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		port = fmt.Sprint(tcp.Port)
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
