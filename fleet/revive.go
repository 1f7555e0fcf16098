package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	// leap is by how much the numbers of a session's events go on behind those of a node that is lost.
	// It had told of its events a second ago, at most some: in what it did since it has given no
	// number that is given again, and whoever asks for events behind one of those misses none.
	leap = 10_000

	logPart = 1 << 20 // bytes of a part of a log, but for one with a larger event
)

// bundleLimits bound what a bundle may hold.
var bundleLimits = parcel.Limits{Total: 4 << 30, Entries: 20_000, Ratio: 400}

// revive moves a session whose node is away: its events are those of the replica, and what its agent
// remembers is in the bundle. Lost says that the node does not have it, wherever it is.
func (m *move) revive(ctx context.Context, s *store.Session, lost bool) (Moved, error) {
	if m.o.Workspace {
		return Moved{}, problem.New(problem.NodeOffline, "%s is away, and the files of the session's directory are there: move it without them, or wait", m.from)
	}
	if err := m.claim(ctx); err != nil {
		return Moved{}, err
	}
	if err := m.keep(ctx); err != nil {
		return Moved{}, m.giveUp(ctx, err)
	}
	dir, remove, err := m.h.packing()
	if err != nil {
		return Moved{}, m.giveUp(ctx, err)
	}
	defer remove()
	p, err := m.h.pack(ctx, s, dir)
	if err != nil {
		return Moved{}, m.giveUp(ctx, err)
	}
	p.goesOn(m.to)
	to := m.h.gateway(m.to, m.caller.ID)
	got, err := m.send(ctx, to, p)
	if err != nil {
		return Moved{}, m.giveUp(ctx, err)
	}
	if !lost && m.h.online(m.h.node(m.from)) {
		return Moved{}, m.giveUp(ctx, problem.New(problem.Conflict, "%s has come back meanwhile: move it again", m.from))
	}
	if err := m.pass(ctx, got, p.last, true, p.missing); err != nil {
		m.later(err, over)
		return Moved{}, during(err, "session %s is complete at %s, closed, and that could not be noted", m.line.Session, m.to)
	}
	err = m.open(ctx, got.Session)
	m.over(ctx)
	if err != nil {
		return Moved{}, during(err, "session %s is at %s, with all that the hub had of it, and could not be opened there: try again with session/load, or move it to another node", m.line.Session, m.to)
	}
	out, err := m.arrived(ctx, to, got)
	out.LastSeq, out.Missing, out.Remembered = p.last, p.missing, p.remembered // also where it goes on at its own node
	return out, err
}

// packing returns a folder for what an agent keeps, until remove is called.
func (h *Hub) packing() (dir string, remove func(), err error) {
	if h.o.Temp != "" {
		err = os.MkdirAll(h.o.Temp, 0o700)
	}
	if err == nil {
		dir, err = os.MkdirTemp(h.o.Temp, "sandbox-hub-session-")
	}
	if err != nil {
		return "", nil, problem.Wrap(problem.Unavailable, err, "the hub has no place for what the agent keeps of the session")
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			h.log.Warn("a folder for a session is left", "folder", dir, "err", err)
		}
	}, nil
}

// packed is a session that is put together from what the hub has.
type packed struct {
	h        *Hub
	s        *store.Session
	to       string // the node to which it goes, "" for none
	files    fs.FS  // of the bundle
	manifest runtime.Manifest
	last     uint64 // the last event that there is
	missing  uint64 // that the node had told of behind it
	// remembered is the session's newest event when what its agent keeps was read: it knows nothing of
	// what came behind.
	remembered uint64
}

// pack looks at what the hub has of a session; the bundle is unpacked into dir.
func (h *Hub) pack(ctx context.Context, s *store.Session, dir string) (*packed, error) {
	end, err := h.o.Store.End(ctx, s.ReplicaID)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	if end.Last == 0 {
		return nil, problem.New(problem.Unavailable, "the hub has no event of session %s", s.Session)
	}
	bundle, body, err := h.o.Store.Bundle(ctx, s.ReplicaID)
	if err != nil {
		return nil, unreadable(ctx, err)
	}
	if bundle == nil {
		why := "no turn of it had ended yet"
		switch {
		case s.BundleTrouble != "":
			why = s.BundleTrouble
		case !h.o.Bundles:
			why = "it was started with --no-bundles"
		}
		return nil, problem.New(problem.Unavailable, "%s does not give it, and the hub has nothing of what the agent keeps of session %s (%s): it can be read, and goes on when the node is back with it", s.Node, s.Session, why)
	}
	contents, err := parcel.Unpack(ofStore{body, func(err error) error { return unreadable(ctx, err) }}, dir, bundleLimits, nil)
	if err != nil {
		return nil, during(ofHub(err), "what the agent keeps of it cannot be read")
	}
	m := contents.Manifest
	if m.SessionID != s.Session || !m.CreatedAt.Equal(s.Info.CreatedAt) || !m.WithoutLog {
		return nil, problem.New(problem.ArchiveRefused, "what the node has given as that of session %s is of another one", s.Session)
	}
	m.WithoutLog, m.Workspace = false, false
	if m.OldestSeq, err = h.oldest(ctx, s.ReplicaID); err != nil {
		return nil, err
	}
	p := &packed{h: h, s: s, files: os.DirFS(dir), manifest: m, last: max(end.Last, s.Through)}
	p.missing, p.remembered = max(replica.Told(&s.Info), p.last)-p.last, m.LastSeq
	return p, nil
}

// ofStore is a file in the store. That it cannot be read to its end is not taken for damage of the file.
type ofStore struct {
	io.Reader
	failed func(error) error
}

// Read implements [io.Reader].
func (r ofStore) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = r.failed(err)
	}
	return n, err
}

// oldest returns the number of the first event of a replica before which none was let go of: numbers that were never
// given, as when a gateway was killed before the first one, are not missing.
func (h *Hub) oldest(ctx context.Context, id store.ReplicaID) (uint64, error) {
	for l, err := range replica.Lines(ctx, h.o.Store, id, 0) {
		if err != nil {
			return 0, unreadable(ctx, err)
		}
		if l.Gap {
			return l.Seq, nil
		}
		break
	}
	return 1, nil
}

// goesOn has the events of the session at its next node be numbered on behind all that may be lost,
// and one of them tell of that.
func (p *packed) goesOn(to string) {
	p.to = to
	p.manifest.LastSeq = max(replica.Told(&p.s.Info), p.last, p.manifest.LastSeq) + leap
}

// write writes the session as a gateway exports it.
func (p *packed) write(ctx context.Context, out io.Writer) error {
	w, err := parcel.NewWriter(out, p.manifest)
	if err != nil {
		return err
	}
	err = p.put(ctx, w)
	if err != nil {
		w.Abandon()
		return err
	}
	return w.Close()
}

func (p *packed) put(ctx context.Context, w *parcel.Writer) error {
	if err := p.putFile(w, runtime.TravelRecord); err != nil {
		return err
	}
	if err := p.putLog(ctx, w); err != nil {
		return err
	}
	return fs.WalkDir(p.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || name == runtime.TravelRecord {
			return err
		}
		return p.putFile(w, name)
	})
}

func (p *packed) putFile(w *parcel.Writer, name string) error {
	f, err := p.files.Open(name)
	if err != nil {
		return fmt.Errorf("read %s of the bundle: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("read %s of the bundle: %w", name, err)
	}
	_, err = w.PutSized(name, info.Size(), f)
	return err
}

// putLog puts the events that the replica has, with what is missing between them, and behind them, if the session goes on, one that says
// what became of the rest.
func (p *packed) putLog(ctx context.Context, w *parcel.Writer) error {
	parts := &logParts{w: w}
	for ev, err := range p.h.events(ctx, p.s, 0, p.last) {
		if err != nil {
			return err
		}
		if err := parts.add(ev); err != nil {
			return err
		}
	}
	if p.to == "" {
		return parts.flush()
	}
	told := rawjson.Object{}.String("sessionId", p.s.Session).String("from", p.s.Node).String("node", p.to).
		Raw("lastSeq", fmt.Append(nil, p.last)).Raw("missing", fmt.Append(nil, p.missing)).
		Raw("rememberedSeq", fmt.Append(nil, p.remembered))
	notice := acp.NewNotification(relay.MethodMoved, relay.WithLeftOut(told, briefly(p.manifest.LeftOut)).End())
	if err := parts.add(runtime.Event{Seq: p.manifest.LastSeq, Time: time.Now(), Direction: runtime.FromAgent, Message: notice.Frame()}); err != nil {
		return err
	}
	return parts.flush()
}

// logParts writes a log in parts.
type logParts struct {
	w    *parcel.Writer
	part []byte
	n    int
}

func (l *logParts) add(ev runtime.Event) (err error) {
	if l.part, err = ev.AppendEntry(l.part); err != nil || len(l.part) < logPart {
		return err
	}
	return l.flush()
}

func (l *logParts) flush() error {
	if len(l.part) == 0 {
		return nil
	}
	l.n++
	err := l.w.Put(fmt.Sprintf("%s%08d.jsonl", runtime.TravelLog, l.n), bytes.NewReader(l.part))
	l.part = l.part[:0]
	return err
}

// send has a node import a session that is put together meanwhile.
func (m *move) send(ctx context.Context, to *client.Client, p *packed) (runtime.Imported, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	ctx, flow := newFlow(ctx, problem.NodeOffline) // the store has bounds of its own
	defer flow.end()
	flow.r = r
	go func() {
		err := p.write(ctx, w)
		failed := err
		if ctx.Err() != nil || errors.Is(err, io.ErrClosedPipe) {
			failed = nil // it was given up, and the other end knows why
		}
		_ = w.CloseWithError(err)
		written <- failed
	}()
	got, err := to.ImportSession(ctx, flow, client.ImportOptions{Cwd: m.o.Cwd, Trust: true, Closed: true, Replace: true})
	m.took(ctx, err)
	if err != nil {
		err = flow.during(err, "%s does not take it", m.to)
	}
	flow.end()
	_ = r.Close()
	if failed := <-written; err != nil && failed != nil {
		return got, during(ofHub(failed), "it could not be put together")
	}
	return got, err
}
