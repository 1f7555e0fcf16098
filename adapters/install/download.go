package install

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// Download is the provenance of one downloaded file.
type Download struct {
	URL      string `json:"url"`
	Bytes    int64  `json:"bytes"`
	SHA256   string `json:"sha256"`
	Verified bool   `json:"verified"` // the maker published this SHA-256
}

// maxCuts is how many times in a row a download may end early without a byte
// of progress before it counts as failed.
const maxCuts = 4

// transfer is one download under way.
type transfer struct {
	in    *Installer
	url   string
	file  *os.File
	to    io.Writer // the file, behind what tests put before it
	sum   hash.Hash // of the first have bytes
	have  int64
	total int64  // -1 when unknown
	tag   string // a validator of the file on the server, "" if it gave none
	known bool   // its digest is: parts that do not belong together are found out
	say   *reporter
}

// download fetches address into the file dest. A connection that is cut or
// silent is taken up again where it ended, as often as there is progress. want
// is the published SHA-256, "" if there is none. What dest holds already is
// continued; that needs a want.
func (in *Installer) download(ctx context.Context, address, dest, want string, say *reporter) (d Download, err error) {
	address = in.mirrored(address)
	shown := secret.Address(address)
	say.step(StepDownload, shown)
	f, err := os.OpenFile(dest, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return d, fmt.Errorf("store the download: %w", err)
	}
	defer func() {
		// A full disk may show only now.
		if cerr := f.Close(); err == nil && cerr != nil {
			err = writeError{fmt.Errorf("store the download: %w", cerr)}
		}
	}()
	t := &transfer{in: in, url: address, file: f, to: f, sum: sha256.New(), total: -1, known: want != "", say: say}
	if in.hooks.writer != nil {
		t.to = in.hooks.writer(f)
	}
	if t.have, err = io.Copy(t.sum, f); err != nil {
		return d, writeError{fmt.Errorf("read the earlier part of the download: %w", err)}
	}
	earlier := t.have > 0
	if !earlier || t.digest() != want {
		err = t.run(ctx)
		if err == nil && earlier && t.digest() != want {
			// The earlier part belongs to something else.
			if err = t.restart(); err == nil {
				err = t.run(ctx)
			}
		}
	}
	if err != nil {
		return d, fmt.Errorf("download %s: %w", shown, err)
	}
	d = Download{URL: shown, Bytes: t.have, SHA256: t.digest(), Verified: want != ""}
	if want != "" && d.SHA256 != want {
		return d, &checksumError{url: shown, want: want, got: d.SHA256}
	}
	return d, nil
}

// worthKeeping reports whether what a failed download has stored may be
// continued by a later one.
func worthKeeping(err error) bool {
	_, wrong := errors.AsType[*checksumError](err)
	_, disk := errors.AsType[writeError](err)
	return !wrong && !disk && !missing(err) && !errors.Is(err, errTooLarge)
}

func (t *transfer) digest() string { return hex.EncodeToString(t.sum.Sum(nil)) }

func (t *transfer) run(ctx context.Context) error {
	for cuts := 0; ; {
		before := t.have
		err := t.once(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !t.mayResume(err) {
			return err
		}
		if cuts++; t.have > before {
			cuts = 0
		}
		if cuts >= maxCuts {
			return err
		}
		t.in.log.Debug("download is taken up again", "url", secret.Address(t.url), "have", t.have, "err", err)
		if err := pause(ctx, t.in.retry<<cuts); err != nil {
			return err
		}
	}
}

// writeError marks errors of the file, which another request cannot mend.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

// mayResume reports whether another request may help after err.
func (t *transfer) mayResume(err error) bool {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.code == http.StatusTooManyRequests || e.code >= 500 && e.code != http.StatusNotImplemented
	}
	if _, ok := errors.AsType[writeError](err); ok || errors.Is(err, errTooLarge) {
		return false
	}
	// A server that was never reached will not be reached a moment later.
	return t.have > 0 || errors.Is(err, errStalled) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// once makes one request and takes what it yields.
func (t *transfer) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(t.in.stall, func() { cancel(errStalled) })
	defer watch.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, http.NoBody)
	if err != nil {
		return cause(ctx, err)
	}
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set("Accept-Encoding", "identity") // lengths and ranges are the file's own
	if t.have > 0 && (t.tag != "" || t.known) {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(t.have, 10)+"-")
		if t.tag != "" {
			req.Header.Set("If-Range", t.tag)
		}
	}
	resp, err := t.in.http.Do(req)
	if err != nil {
		return cause(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusPartialContent && t.have > 0 && t.continues(resp.Header):
	case resp.StatusCode == http.StatusOK:
		if err := t.restart(); err != nil {
			return err
		}
		t.total, t.tag = resp.ContentLength, validator(resp.Header)
	case resp.StatusCode == http.StatusPartialContent, resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		// The file on the server is another one now.
		if err := t.restart(); err != nil {
			return err
		}
		return io.ErrUnexpectedEOF
	default:
		return &statusError{url: secret.Address(t.url), code: resp.StatusCode}
	}
	if t.total > t.in.maxDownload {
		return fmt.Errorf("%w: %d bytes of at most %d", errTooLarge, t.total, t.in.maxDownload)
	}
	return cause(ctx, t.copy(resp.Body, watch))
}

func (t *transfer) copy(body io.Reader, watch *time.Timer) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			watch.Reset(t.in.stall)
			if t.have+int64(n) > t.in.maxDownload {
				return fmt.Errorf("%w: more than %d bytes", errTooLarge, t.in.maxDownload)
			}
			if _, err := t.to.Write(buf[:n]); err != nil {
				return writeError{fmt.Errorf("store the download: %w", err)}
			}
			t.sum.Write(buf[:n])
			t.have += int64(n)
			t.say.count(t.have, t.total)
		}
		switch {
		case err == io.EOF && t.total >= 0 && t.have < t.total:
			return io.ErrUnexpectedEOF
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// restart forgets what was received.
func (t *transfer) restart() error {
	if t.have == 0 {
		return nil
	}
	t.have = 0
	t.sum.Reset()
	if err := t.file.Truncate(0); err != nil {
		return writeError{err}
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return writeError{err}
	}
	return nil
}

// continues reports whether an answer begins where the file ends, and belongs to a file of the same length that is not
// known to be another one.
func (t *transfer) continues(h http.Header) bool {
	if tag := validator(h); t.tag != "" && tag != "" && tag != t.tag {
		return false
	}
	rest, ok := strings.CutPrefix(h.Get("Content-Range"), "bytes "+strconv.FormatInt(t.have, 10)+"-")
	if !ok {
		return false
	}
	_, size, _ := strings.Cut(rest, "/")
	if size == "" || size == "*" {
		return true
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || t.total >= 0 && n != t.total {
		return false
	}
	t.total = n
	return true
}

// validator returns what If-Range may carry: a strong entity tag or a date.
func validator(h http.Header) string {
	if tag := h.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		return tag
	}
	return h.Get("Last-Modified")
}

// cause returns why ctx ended, or err if it did not, without the URL that the
// client puts before it: callers name it.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			return e.Err
		}
		return err
	}
	if _, ok := errors.AsType[writeError](err); ok {
		return err
	}
	return context.Cause(ctx)
}
