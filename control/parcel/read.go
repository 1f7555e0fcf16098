package parcel

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Limits bound what a file may hold.
type Limits struct {
	Total   int64 // bytes of all entries
	Entries int
	Ratio   int64 // how many times as large as the file its content may be, beyond 64 MiB
}

// Usual are the limits of a gateway.
var Usual = Limits{Total: 16 << 30, Entries: 200_000, Ratio: 400}

const (
	maxManifest  = 1 << 20
	maxRecord    = 16 << 20
	maxChecksums = 64 << 20
	maxName      = 1024
	maxDepth     = 32
	// maxMemory bounds what the decompression may need, whatever the file asks for.
	maxMemory = 64 << 20
	ratioFrom = 64 << 20
)

// Folders are those that a file may have entries in.
var folders = []string{"session/", "agent/", "workspace/"}

func refused(format string, args ...any) error {
	return problem.New(problem.ArchiveRefused, format, args...)
}

// plainName says what is wrong with the name of an entry.
func plainName(name string) error {
	switch {
	case name == manifestName, name == checksumsName:
		return nil
	case len(name) > maxName || strings.Count(name, "/") > maxDepth:
		return fmt.Errorf("the name %.80q is too long", name)
	case !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00\n\r"):
		return fmt.Errorf("%q is not a plain relative path", name)
	}
	for _, f := range folders {
		if strings.HasPrefix(name, f) && len(name) > len(f) {
			return nil
		}
	}
	return fmt.Errorf("there is no place for %q in it", name)
}

// reader is what is known of a file that is being read.
type reader struct {
	limits Limits
	in     *counted
	root   *os.Root
	buf    []byte                       // for copies
	sums   map[string][sha256.Size]byte // by name, of what was read
	lower  map[string]string            // names without case
	dirs   map[string]bool
	total  int64
}

// counted counts what is read of the compressed file.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Contents is what a session's file has.
type Contents struct {
	runtime.Manifest
	Sums map[string][sha256.Size]byte // the SHA-256 of each entry, by its name
}

// Unpack writes the entries of a session's file below dir, a folder of its own. The error is a problem of the kind archive_refused, unless
// something else than the file was wrong; what was written up to then is not to be used.
// accept, if not nil, is asked before anything else is read.
func Unpack(r io.Reader, dir string, l Limits, accept func(runtime.Manifest) error) (m Contents, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, fmt.Errorf("unpack the session: %w", err)
	}
	defer func() { _ = root.Close() }()
	in := &counted{r: r}
	// Not beside: whoever refuses the file would wait for a read that nobody ends.
	unzip, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMemory), zstd.WithDecoderMaxWindow(maxMemory))
	if err != nil {
		return m, fmt.Errorf("unpack the session: %w", err)
	}
	defer unzip.Close()
	p := &reader{limits: l, in: in, root: root, buf: make([]byte, copySize), sums: map[string][sha256.Size]byte{}, lower: map[string]string{}, dirs: map[string]bool{}}
	archive := tar.NewReader(unzip)
	listed := map[string][sha256.Size]byte(nil)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		switch {
		case err != nil:
			return m, unreadable(err, n)
		case listed != nil:
			return m, refused("entry %q stands behind the checksums", h.Name)
		case n >= l.Entries:
			return m, refused("it has more than %d entries", l.Entries)
		}
		if err := p.check(h, n); err != nil {
			return m, err
		}
		switch h.Name {
		case manifestName:
			if m.Manifest, err = p.manifest(archive, h.Size); err == nil && accept != nil {
				err = accept(m.Manifest)
			}
		case checksumsName:
			listed, err = readSums(archive)
		default:
			err = p.entry(archive, h)
		}
		if err != nil {
			return m, err
		}
	}
	if listed == nil {
		return m, refused("it ends before its checksums: a part of it is missing")
	}
	// Behind the archive's end there is nothing but zeros.
	if err := rest(unzip); err != nil {
		return m, err
	}
	for name, sum := range p.sums {
		if listed[name] != sum {
			return m, refused("the checksum of %s is wrong: the file was damaged or changed", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		return m, refused("%s is missing, of which it has a checksum", name)
	}
	m.Sums = p.sums
	return m, nil
}

// unreadable is the problem that an error of the archive is.
func unreadable(err error, n int) error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p // of the body
	}
	if n == 0 {
		return refused("it is not a session's file, which sandbox-agent sessions export writes")
	}
	return refused("it cannot be read behind %d entries: %v", n, err)
}

// check looks at an entry before its content is read.
func (p *reader) check(h *tar.Header, n int) error {
	if (n == 0) != (h.Name == manifestName) {
		return refused("its first entry must be %s, and nothing else be called so; entry %d is %q", manifestName, n+1, h.Name)
	}
	if err := plainName(h.Name); err != nil {
		return refused("%v", err)
	}
	if h.Typeflag != tar.TypeReg {
		return refused("%q is a link or a special file: only regular files are in it", h.Name)
	}
	low := strings.ToLower(h.Name)
	if was, twice := p.lower[low]; twice {
		return refused("%q and %q would be one file", was, h.Name)
	}
	p.lower[low] = h.Name
	most := p.limits.Total - p.total
	switch h.Name {
	case manifestName:
		most = min(most, maxManifest)
	case runtime.TravelRecord:
		most = min(most, maxRecord)
	case checksumsName:
		most = min(most, maxChecksums)
	}
	if h.Size > most {
		return refused("%q has %d bytes, and %d are the most", h.Name, h.Size, most)
	}
	p.total += h.Size
	return nil
}

// inflated refuses a file whose content is too large for what it is.
func (p *reader) inflated(done int64) error {
	if all := p.total + done; all > ratioFrom && p.limits.Ratio > 0 && all/p.limits.Ratio > p.in.n {
		return refused("its content is more than %d times as large as what was received: it is made to fill disks", p.limits.Ratio)
	}
	return nil
}

// copy reads an entry's content to w.
func (p *reader) copy(w io.Writer, from io.Reader, h *tar.Header) error {
	before := p.total - h.Size
	for done := int64(0); ; {
		n, err := io.ReadFull(from, p.buf)
		if err == io.ErrUnexpectedEOF && done+int64(n) == h.Size {
			err = io.EOF
		}
		if n > 0 {
			done += int64(n)
			if _, err := w.Write(p.buf[:n]); err != nil {
				return fmt.Errorf("unpack %s: %w", h.Name, err)
			}
			p.total = before + done
			if err := p.inflated(0); err != nil {
				return err
			}
		}
		if err == io.EOF {
			p.total = before + h.Size
			return nil
		}
		if err != nil {
			return unreadable(err, len(p.lower))
		}
	}
}

func (p *reader) manifest(from io.Reader, size int64) (m runtime.Manifest, err error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(from, b); err != nil {
		return m, unreadable(err, 0)
	}
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return m, refused("its manifest cannot be read: %v", err)
	}
	if version.Version != runtime.ManifestVersion {
		return m, refused("it has version %d, and this gateway reads %d: use a newer sandbox-agent here, or the same as where it was made", version.Version, runtime.ManifestVersion)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, refused("its manifest cannot be read: %v", err)
	}
	if m.SessionID == "" || m.Agent == "" || m.Cwd == "" {
		return m, refused("its manifest does not name a session, its agent and its directory")
	}
	p.sums[manifestName] = sha256.Sum256(b)
	return m, nil
}

// entry writes one entry into the folder.
func (p *reader) entry(from io.Reader, h *tar.Header) error {
	if dir := path.Dir(h.Name); !p.dirs[dir] {
		if err := p.root.MkdirAll(dir, 0o700); err != nil {
			return refused("%q cannot stand beside what came before it: %v", h.Name, err)
		}
		p.dirs[dir] = true
	}
	f, err := p.root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return refused("%q stands in it twice", h.Name)
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", h.Name, err)
	}
	sum := sha256.New()
	err = p.copy(io.MultiWriter(f, sum), from, h)
	if closed := f.Close(); err == nil {
		err = closed
	}
	p.sums[h.Name] = [sha256.Size]byte(sum.Sum(nil))
	return err
}

// readSums reads the checksums by name.
func readSums(from io.Reader) (map[string][sha256.Size]byte, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxChecksums+1))
	if err != nil {
		return nil, unreadable(err, 1)
	}
	out := map[string][sha256.Size]byte{}
	for line := range strings.Lines(string(b)) {
		sum, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		raw, err := hex.DecodeString(sum)
		if _, twice := out[name]; !ok || twice || err != nil || len(raw) != sha256.Size {
			return nil, refused("its checksums cannot be read")
		}
		out[name] = [sha256.Size]byte(raw)
	}
	return out, nil
}

// rest reads what is behind the archive.
func rest(r io.Reader) error {
	buf := make([]byte, 32<<10)
	for total := 0; ; {
		n, err := r.Read(buf)
		total += n
		if slices.ContainsFunc(buf[:n], func(c byte) bool { return c != 0 }) || total > 1<<20 {
			return refused("there is something behind its end")
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return unreadable(err, 1)
		}
	}
}
