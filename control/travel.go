package control

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Travel takes sessions to other gateways, and brings them from there.
type Travel interface {
	ExportSession(ctx context.Context, id string, d *runtime.Departure) error
	ImportSession(ctx context.Context, m runtime.Manifest, dir string, o runtime.ImportOptions) (runtime.Imported, error)
	TravelFolder() (dir string, remove func(), err error)
	KeptOf(id, name string) (text []byte, arriving bool, err error)
	DepartSession(ctx context.Context, id string, last uint64, edits *uint64, to string) error
}

// travel makes a handler of one that needs Travel.
func (s *Server) travel(h echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if s.o.Travel == nil {
			return problem.New(problem.NotSupported, "sessions do not travel from or to this server")
		}
		return h(c)
	}
}

var _ Travel = (*runtime.Runtime)(nil)

// maxHave bounds the commits that the other side may name as its own.
const maxHave = 256

// exportHeader says about how many bytes the file holds that follows it.
const exportHeader = "Sandbox-Agent-Bytes"

// exportSession writes all of a session into one file. A body, if there is one, names
// files that the other side has.
func (s *Server) exportSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	keep, workspace, open, log := false, false, false, true
	if err := flags(c, map[string]*bool{"keepSecrets": &keep, "workspace": &workspace, "open": &open, "log": &log}); err != nil {
		return err
	}
	patterns, err := transcript.Patterns(c.QueryParams()["redact"])
	if err != nil {
		return problem.New(problem.InvalidRequest, "%v", err).With("parameter", "redact")
	}
	d := runtime.Departure{Clean: transcript.Cleaner(patterns, keep), Workspace: workspace, Open: open, WithoutLog: !log}
	if workspace {
		if err := s.workspaces(); err != nil {
			return err
		}
	}
	has := fs.TakeOptions{Have: c.QueryParams()["have"]}
	if len(has.Have) > maxHave {
		return problem.New(problem.InvalidRequest, "have names %d commits, and %d are the most: name those that were made last", len(has.Have), maxHave).With("parameter", "have")
	}
	release, err := s.transfer(fileRequest{Context: c}) // before the body is read
	if err != nil {
		return err
	}
	defer release()
	held := 0
	if c.Request().Method == http.MethodPost {
		if has.Files, held, err = s.readChecksums(c); err != nil {
			return err
		}
	}
	share, end, err := s.making(c, held, parcel.WriterBytes) // behind it: who does not send it would hold this
	if err != nil {
		return err
	}
	defer end()
	return s.sendMade(fileRequest{Context: c}, heldBack, share, func(out *bufio.Writer, _ *outgoing) error {
		var w *parcel.Writer
		d.Begin = func(m runtime.Manifest) (err error) {
			h := c.Response().Header()
			h.Set("Content-Type", parcel.ContentType)
			h.Set("Cache-Control", "no-store")
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": fileName(m.SessionID)}))
			h.Set(exportHeader, strconv.FormatInt(m.Bytes, 10))
			w, err = parcel.NewWriter(out, m)
			return err
		}
		d.Put = func(name string, from io.Reader) error { return w.Put(name, from) }
		var left *leaving
		d.Look = func(ctx context.Context, cwd string, b runtime.Beside) (_ int64, err error) {
			if !workspace {
				d.Behind = func(context.Context) error { return putPlaces(w, b) }
				return 0, nil
			}
			if left, err = s.openWorkspace(ctx, cwd, has, b); err != nil {
				return 0, err
			}
			d.Behind = func(ctx context.Context) error { return putWorkspace(ctx, w, left) }
			return left.Bytes(), nil
		}
		err := s.o.Travel.ExportSession(c.Request().Context(), id, &d)
		if left != nil {
			left.Close()
		}
		if err == nil {
			return w.Close()
		}
		if w != nil {
			w.Abandon()
		}
		return err
	}, "what", "export", "session", id)
}

const (
	maxChecksums = 64 << 20  // bytes
	maxChecksum  = 128 << 10 // of one with its path, which no system has that long
	// checksumBytes is about what one takes of memory, and checksumRoom what is taken for many at one time.
	checksumBytes = 128
	checksumRoom  = 1 << 20
)

// readChecksums reads files by their checksums, as "sha256sum -z" writes them, and says how much memory they take. While they come it is a
// part of what all clients have together.
func (s *Server) readChecksums(c echo.Context) (_ map[[sha256.Size]byte]string, held int, err error) {
	share := s.arriving(c)
	defer share.Close()
	in := newIncoming(fileRequest{Context: c})
	defer in.done()
	files := map[[sha256.Size]byte]string{}
	r := bufio.NewReaderSize(io.LimitReader(in, maxChecksums+1), maxChecksum)
	room := 0 // that was taken, and is not used
	for read := 0; ; {
		line, err := r.ReadSlice(0)
		share.Moved(len(line))
		if read += len(line); read > maxChecksums {
			return nil, 0, problem.New(problem.PayloadTooLarge, "the checksums have more than %d bytes", maxChecksums)
		}
		if share.Ended() {
			c.Response().Header().Set("Connection", "close") // see gather
			return nil, 0, errMemory()
		}
		if err == io.EOF && len(line) == 0 {
			return files, held, nil
		}
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, 0, err
		}
		var sum [sha256.Size]byte
		hash, path, ok := bytes.Cut(bytes.TrimSuffix(line, []byte{0}), []byte("  "))
		if n, bad := hex.Decode(sum[:], hash[:min(len(hash), 2*len(sum))]); !ok || err != nil || bad != nil || n != len(sum) || len(hash) != 2*len(sum) || len(path) == 0 {
			return nil, 0, problem.New(problem.InvalidRequest, "the body must be checksums as `sha256sum -z` writes them, and has the line %.200q", line)
		}
		if _, known := files[sum]; known {
			continue
		}
		if room -= len(path) + checksumBytes; room < 0 {
			if share.Take(c.Request().Context(), checksumRoom) != nil {
				return nil, 0, errMemory()
			}
			room += checksumRoom
			held += checksumRoom
		}
		files[sum] = string(path)
	}
}

// fileName is what a session's file is called.
func fileName(id string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, id)
	return "session-" + plain[:min(len(plain), 100)] + ".tar.zst"
}

// importSession makes a session of such a file.
func (s *Server) importSession(c echo.Context) error {
	var o runtime.ImportOptions
	o.Cwd = c.QueryParam("cwd")
	workspace, merge := false, false
	if err := flags(c, map[string]*bool{"trust": &o.Trusted, "workspace": &workspace, "merge": &merge, "closed": &o.Closed, "replace": &o.Replace}); err != nil {
		return err
	}
	if merge && !workspace {
		return problem.New(problem.InvalidRequest, "merge says how the workspace is put into a directory with files: say workspace, too").With("parameter", "merge")
	}
	if workspace {
		if err := s.workspaces(); err != nil {
			return err
		}
	}
	r := fileRequest{Context: c}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	dir, remove, err := s.o.Travel.TravelFolder()
	if err != nil {
		return err
	}
	defer remove()
	in := newIncoming(r)
	defer in.done()
	m, err := parcel.Unpack(in, dir, parcel.Usual, func(m runtime.Manifest) error {
		if _, err := s.o.Sessions.Session(m.SessionID); err == nil && !o.Replace {
			return problem.New(problem.SessionAlreadyExists, "session %s is here already: delete it first, or leave it as it is", m.SessionID).With("sessionId", m.SessionID)
		}
		if workspace && !m.Workspace {
			return problem.New(problem.InvalidRequest, "the file has no workspace: import it without one, or export it with its workspace").With("parameter", "workspace")
		}
		return nil
	})
	if err != nil {
		return err
	}
	got, err := s.arrive(c.Request().Context(), m, dir, o, workspace, merge)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.JSON(http.StatusCreated, got)
}

// arrive makes the session of what was unpacked, after its workspace.
func (s *Server) arrive(ctx context.Context, m parcel.Contents, dir string, o runtime.ImportOptions, workspace, merge bool) (runtime.Imported, error) {
	if !workspace {
		if err := s.keepPlaces(m.SessionID, dir, &o); err != nil {
			return runtime.Imported{}, err
		}
		got, err := s.o.Travel.ImportSession(ctx, m.Manifest, dir, o)
		if err == nil && m.Workspace {
			got.LeftOut = append(got.LeftOut, "workspace")
		}
		return got, err
	}
	ws, placed, err := s.placeWorkspace(ctx, m, dir, &o, merge)
	if err != nil {
		return runtime.Imported{}, err
	}
	got, err := s.o.Travel.ImportSession(ctx, m.Manifest, dir, o)
	if err != nil {
		return got, errors.Join(err, placed.Undo())
	}
	if err := placed.Keep(); err != nil {
		s.log.Warn("remove what was there before a workspace came", "session", m.SessionID, "err", err)
	}
	for _, one := range ws.LeftOut {
		got.LeftOut = append(got.LeftOut, "of the workspace: "+one)
	}
	return got, nil
}

// departSession closes a session that goes on at another gateway.
func (s *Server) departSession(c echo.Context, id string) error {
	to := c.QueryParam(movedTo)
	if s.o.Travel == nil {
		return problem.New(problem.NotSupported, "sessions do not travel from or to this server")
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || len(to) > maxAddress {
		return problem.New(problem.InvalidRequest, "%s must be the address of a gateway, without a password and with %d bytes at most, not %.80q", movedTo, maxAddress, to).With("parameter", movedTo)
	}
	if c.QueryParam("lastSeq") == "" {
		return problem.New(problem.InvalidRequest, "say with lastSeq which event of the session was the last that was taken along").With("parameter", "lastSeq")
	}
	last, err := uintParam("lastSeq", c.QueryParam("lastSeq"), 0)
	if err != nil {
		return err
	}
	var edits *uint64
	if c.QueryParams().Has("edits") {
		n, err := uintParam("edits", c.QueryParam("edits"), 0)
		if err != nil {
			return err
		}
		edits = &n
	}
	if err := s.o.Travel.DepartSession(c.Request().Context(), id, last, edits, to); err != nil {
		return err
	}
	s.log.Info("a session is closed here, as it goes on at another gateway", "session", id, "to", to, "last_seq", last)
	return nil
}

const (
	movedTo    = "movedTo" // the parameter that names the gateway where a session goes on
	maxAddress = 2048
)
