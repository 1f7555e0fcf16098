package install

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

const (
	userAgent = "sandbox-agent"
	maxText   = 16 << 20 // bytes of a document such as a list of releases
)

// mirrored returns url with the longest matching prefix of the mirrors replaced.
func (in *Installer) mirrored(url string) string {
	best := ""
	for prefix := range in.mirrors {
		if len(prefix) > len(best) && strings.HasPrefix(url, prefix) {
			best = prefix
		}
	}
	return in.mirrors[best] + strings.TrimPrefix(url, best)
}

// text fetches a small document. header holds pairs of further request headers;
// an answer other than 200 is a *statusError.
func (in *Installer) text(ctx context.Context, address string, header ...string) ([]byte, http.Header, error) {
	address = in.mirrored(address)
	ctx, cancel := context.WithTimeoutCause(ctx, 2*in.stall, errStalled)
	defer cancel()
	resp, err := in.get(ctx, http.MethodGet, address, header...)
	for tries := 1; err != nil && tries < 3 && ctx.Err() == nil && overloaded(err); tries++ {
		if perr := pause(ctx, in.retry<<tries); perr != nil {
			break
		}
		resp, err = in.get(ctx, http.MethodGet, address, header...)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get %s: %w", secret.Address(address), err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxText+1))
	if err != nil {
		return nil, nil, fmt.Errorf("get %s: %w", secret.Address(address), cause(ctx, err))
	}
	if len(b) > maxText {
		return nil, nil, fmt.Errorf("get %s: %w", secret.Address(address), errTooLarge)
	}
	return b, resp.Header, nil
}

func overloaded(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.code == http.StatusBadGateway || e.code == http.StatusServiceUnavailable || e.code == http.StatusGatewayTimeout)
}

// get makes one request; the answer is 200 and its body is the caller's to close.
func (in *Installer) get(ctx context.Context, method, address string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return nil, cause(ctx, err)
	}
	req.Header.Set("User-Agent", userAgent)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := in.http.Do(req)
	if err != nil {
		return nil, cause(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, &statusError{url: secret.Address(address), code: resp.StatusCode}
	}
	return resp, nil
}

// secureRedirects lets a request that began with TLS not continue without it.
func secureRedirects(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("more than 10 redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return fmt.Errorf("%s redirects to the unprotected %s", via[0].URL.Host, req.URL.Host)
	}
	return nil
}

// newClient returns a client whose idle connections are its own.
func newClient() (c *http.Client, idle func()) {
	t := &http.Transport{Proxy: socket.Proxy}
	if d, ok := http.DefaultTransport.(*http.Transport); ok {
		t = d.Clone()
		t.Proxy = socket.Proxy
	}
	t.ResponseHeaderTimeout = time.Minute
	return &http.Client{Transport: t, CheckRedirect: secureRedirects}, t.CloseIdleConnections
}

// findSum finds the SHA-256 of a file in what its maker published: lines of
// hash and name, one bare hash, or a manifest with platforms.{target}.checksum.
// It returns "" when the document does not know the file.
func findSum(doc []byte, name, target string) string {
	var manifest struct {
		Platforms map[string]struct {
			Checksum string `json:"checksum"`
		} `json:"platforms"`
	}
	if json.Unmarshal(doc, &manifest) == nil && manifest.Platforms != nil {
		return asSum(manifest.Platforms[target].Checksum)
	}
	bare, lines := "", 0
	for sc := bufio.NewScanner(strings.NewReader(string(doc))); sc.Scan(); {
		fields := strings.Fields(sc.Text())
		if len(fields) == 0 {
			continue
		}
		lines++
		if len(fields) == 1 {
			bare = asSum(fields[0])
			continue
		}
		listed := strings.TrimPrefix(fields[1], "*")
		if listed = listed[strings.LastIndexByte(listed, '/')+1:]; listed == name {
			return asSum(fields[0])
		}
	}
	if lines == 1 {
		return bare
	}
	return ""
}

// asSum returns s in lower case if it is a SHA-256 in hexadecimal, else "".
func asSum(s string) string {
	s = strings.ToLower(strings.TrimPrefix(strings.TrimSpace(s), "sha256:"))
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return ""
	}
	return s
}
