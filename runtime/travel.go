package runtime

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// ManifestVersion is the version of what sessions travel as.
const ManifestVersion = 1

// Manifest says what a session that travels is. It goes before everything else.
type Manifest struct {
	Version        int    `json:"version"`
	SessionID      string `json:"sessionId"`
	Title          string `json:"title,omitempty"`
	Agent          string `json:"agent"`
	AgentVersion   string `json:"agentVersion,omitempty"` // "" when nobody has asked it
	AgentSessionID string `json:"agentSessionId"`
	Cwd            string `json:"cwd"`
	RealCwd        string `json:"realCwd,omitempty"` // where links lead, when that is another path
	Home           string `json:"home,omitempty"`
	// OldestSeq is the first event that was not let go. There may be none with this number, as behind a
	// crash. An earlier version does not say it, nor does who lacks some: then it is the first there is.
	OldestSeq  uint64    `json:"oldestSeq,omitempty"`
	LastSeq    uint64    `json:"lastSeq"`
	CreatedAt  time.Time `json:"createdAt"` // of the session
	ExportedAt time.Time `json:"exportedAt"`
	Gateway    string    `json:"gateway,omitempty"`    // the version of the one that it comes from
	Workspace  bool      `json:"workspace,omitempty"`  // the files of its directory travel with it
	WithoutLog bool      `json:"withoutLog,omitempty"` // its log is somewhere else, up to LastSeq
	Bytes      int64     `json:"bytes,omitempty"`      // of all that travels, about
	// LeftOut names what was not taken along: values of variables and headers, credentials.
	LeftOut []string `json:"leftOut,omitempty"`
}

// The parts of what travels, by how their names begin.
const (
	TravelRecord = "session/record.json"
	TravelLog    = "session/log/"
	TravelRaw    = "session/raw.ndjson"
	TravelAgent  = "agent/"
)

const (
	logPart = 4 << 20 // bytes of entries in a part of the log, but for one that is larger
	// maxText bounds a JSON text of an agent that is not one of lines.
	maxText = 128 << 20
)

// Departure is how a session is exported.
type Departure struct {
	// Begin is told of the session before anything is put.
	Begin func(m Manifest) error
	Put   adapters.Put
	// Clean takes secrets out of a text; may be nil.
	Clean func(text string) string
	// Workspace says that the files of the session's directory travel with it.
	Workspace bool
	// Open leaves the session open. One that goes on meanwhile is refused.
	Open bool
	// WithoutLog leaves out the log, for whoever has it.
	WithoutLog bool
	// Look is told of the directory and of what is kept beside the session, before Begin.
	// It returns about how many bytes Behind puts. May be nil.
	Look func(ctx context.Context, cwd string, b Beside) (int64, error)
	// Behind puts what comes behind all else; may be nil.
	Behind func(ctx context.Context) error
}

// Beside keeps texts beside a session, by plain names.
type Beside interface {
	// Kept returns a text, nil when there is none.
	Kept(name string) ([]byte, error)
	KeepText(name string, text []byte) error
}

var _ Beside = (*session.Session)(nil)

// ExportSession puts all of a session: its record, its log, and what its agent keeps of
// it. It is closed meanwhile, unless d says otherwise.
func (r *Runtime) ExportSession(ctx context.Context, id string, d *Departure) error {
	s := r.sessions.Find(id)
	if s == nil {
		return noSession(id)
	}
	still, again, err := hold(ctx, s, d.Open)
	if err != nil {
		return err
	}
	defer again()
	defer s.KeepWhole()()
	record, leftOut, err := s.Taken()
	if err != nil {
		return err
	}
	if d.WithoutLog {
		raw, err := s.Raw(ctx)
		if err != nil {
			return err
		}
		if raw != nil {
			_ = raw.Close()
			leftOut = append(leftOut, "includeRaw: what was recorded")
		}
	}
	about := s.About()
	m := Manifest{
		Version: ManifestVersion, SessionID: id, Title: s.Info().Title, Agent: about.Agent, AgentSessionID: about.AgentSessionID, Cwd: about.Cwd,
		OldestSeq: s.Log().Oldest(), LastSeq: s.Log().Last(), CreatedAt: about.CreatedAt, ExportedAt: time.Now().UTC(), Gateway: r.o.Version, LeftOut: leftOut, Workspace: d.Workspace,
		WithoutLog: d.WithoutLog,
	}
	if real, err := filepath.EvalSymlinks(m.Cwd); err == nil && real != m.Cwd {
		m.RealCwd = real
	}
	m.Home, _ = os.UserHomeDir()
	var o adapters.Options
	a := r.agents.Find(m.Agent)
	if a != nil {
		if o, err = a.Options(s.Needs(agents.Needs{}, a)); err != nil {
			return err
		}
		m.AgentVersion = o.Program.Version
	}
	if d.Clean != nil {
		m.Title, record = d.Clean(m.Title), cleanJSON(record, d.Clean)
	}
	// First what can fail for reasons that somebody should be told.
	dir, remove, err := r.sessions.TravelFolder()
	if err != nil {
		return err
	}
	defer remove()
	if a != nil && a.Traveller() != nil {
		t := adapters.Travel{Options: o, SessionID: m.AgentSessionID, Cwd: m.Cwd, Temp: filepath.Dir(dir)}
		err := a.Traveller().Export(ctx, t, func(name string, from io.Reader) error {
			return create(filepath.Join(dir, filepath.FromSlash(name)), edited(name, from, func(b []byte) []byte { return cleanJSON(b, d.Clean) }, d.Clean))
		})
		if missing, ok := errors.AsType[*adapters.NotInstalledError](err); ok {
			return problem.Wrap(problem.AgentNotInstalled, missing, "what agent %s keeps of the session cannot be read", m.Agent)
		}
		if err != nil {
			return problem.Wrap(problem.AgentError, err, "what agent %s keeps of the session cannot be read", m.Agent)
		}
	}
	if d.Look != nil {
		if m.Bytes, err = d.Look(ctx, m.Cwd, s); err != nil {
			return err
		}
	}
	if !d.WithoutLog {
		m.Bytes += s.Log().Size()
	}
	if m.Bytes, err = addSizes(m.Bytes+int64(len(record)), dir); err != nil {
		return err
	}
	if err := still(); err != nil {
		return err
	}
	if err := d.Begin(m); err != nil {
		return err
	}
	if err := d.Put(TravelRecord, bytes.NewReader(record)); err != nil {
		return err
	}
	if !d.WithoutLog {
		if err := putLog(ctx, s, m, d); err != nil {
			return err
		}
		if err := putRaw(ctx, s, d); err != nil {
			return err
		}
	}
	if err := putFolder(d.Put, TravelAgent, dir); err != nil {
		return err
	}
	if d.Behind != nil {
		return d.Behind(ctx)
	}
	return nil
}

// hold has a session rest while it is read: closed, unless it is to stay open. Still says whether it has
// done so up to then: one that is left open is disturbed by nobody, and one that is closed may be opened by a
// client.
func hold(ctx context.Context, s *session.Session, open bool) (still func() error, again func(), err error) {
	again = func() {}
	if !open {
		if again, err = s.Still(ctx); err != nil {
			return nil, nil, err
		}
	}
	before, err := s.Resting()
	if err == nil {
		err = s.AwaitStored(ctx)
	}
	if err != nil {
		again()
		return nil, nil, err
	}
	return func() error {
		now, err := s.Resting()
		if err == nil && now != before {
			err = problem.New(problem.Conflict, "session %s went on while it was read: try again", s.ID())
		}
		return err
	}, again, nil
}

// addSizes adds the sizes of all files below a folder to n.
func addSizes(n int64, dir string) (int64, error) {
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// putFolder puts all files below a folder.
func putFolder(put adapters.Put, prefix, dir string) error {
	files := os.DirFS(dir)
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := files.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return put(prefix+name, f)
	})
}

// create makes a file of what is read.
func create(path string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// cleanJSON takes secrets out of the texts of a JSON value; clean may be nil.
func cleanJSON(b []byte, clean func(string) string) []byte {
	if clean == nil {
		return b
	}
	return rawjson.EditStrings(b, func(key, text string) []rawjson.Edit {
		if paths.Sealed(key) {
			return nil
		}
		if with := clean(text); with != text {
			return []rawjson.Edit{{From: 0, To: len(text), With: with}}
		}
		return nil
	})
}

// putLog puts the entries of a log in parts. It fails when some are gone that the manifest promises.
func putLog(ctx context.Context, s *session.Session, m Manifest, d *Departure) error {
	last := m.LastSeq
	cur := s.Log().Cursor(max(m.OldestSeq, 1) - 1)
	var part []byte
	n := 0
	flush := func() error {
		if len(part) == 0 {
			return nil
		}
		n++
		err := d.Put(fmt.Sprintf("%s%08d.jsonl", TravelLog, n), bytes.NewReader(part))
		part = part[:0]
		return err
	}
	for cur.After() < last {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		batch, err := cur.Next(nil, 256<<10)
		if err != nil {
			return s.ReadProblem(err)
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			if e.Seq > last {
				break
			}
			if m, err := acp.Parse(e.Frame); err == nil && e.Kind == journal.Client && m.IsRequest() && m.Method() != acp.MethodSessionPrompt {
				e.Frame = withoutValues(&m).Frame()
			}
			e.Frame = cleanJSON(e.Frame, d.Clean)
			part = e.AppendLine(part)
			if len(part) >= logPart {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	return flush()
}

// putRaw puts what was recorded of the agent's traffic, if anything was.
func putRaw(ctx context.Context, s *session.Session, d *Departure) error {
	raw, err := s.Raw(ctx)
	if err != nil || raw == nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	clean := s.ValueCleaner() // each agent is given them in a form of its own
	if d.Clean != nil {
		values := clean
		clean = func(text string) string { return d.Clean(values(text)) }
	}
	return d.Put(TravelRaw, &editedLines{r: bufio.NewReaderSize(raw, 256<<10), json: func(b []byte) []byte { return cleanJSON(b, clean) }, text: clean})
}

// withoutValues returns a message of a client without what a log is not to have: credentials, the values of variables
// and headers, and texts that are not of this session.
func withoutValues(m *acp.Message) *acp.Message {
	params, _, err := session.WithoutSecrets(rawjson.DeleteMember(bytes.Clone(m.Params()), "_meta", acp.MetaKey, "handover"))
	if err != nil { // what is not understood may have them anywhere
		params = rawjson.Object{}.String("sessionId", m.Session()).End()
	}
	if string(params) == string(m.Params()) {
		return m
	}
	out := acp.NewRequest(m.ID(), m.Method(), params)
	return &out
}

// edited reads a file of an agent with its JSON edited by json and other texts by text,
// nil for not. Only names that say what they hold are looked into.
func edited(name string, from io.Reader, json func([]byte) []byte, text func(string) string) io.Reader {
	switch path.Ext(name) {
	case ".jsonl":
		return &editedLines{r: bufio.NewReaderSize(from, 256<<10), json: json, text: text}
	case ".json":
		return &editedLines{r: bufio.NewReaderSize(from, 256<<10), whole: true, json: json, text: text}
	}
	return from
}

// editedLines edits JSON texts, one a line or one altogether.
type editedLines struct {
	r     *bufio.Reader
	whole bool
	json  func([]byte) []byte
	text  func(string) string
	rest  []byte
	err   error
}

// Read implements io.Reader.
func (l *editedLines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.rest, l.err = l.next()
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *editedLines) next() ([]byte, error) {
	var b []byte
	var err error
	if l.whole {
		if b, err = io.ReadAll(io.LimitReader(l.r, maxText+1)); err == nil {
			err = io.EOF
		}
	} else {
		for {
			var more []byte
			more, err = l.r.ReadSlice('\n')
			b = append(b, more...)
			if !errors.Is(err, bufio.ErrBufferFull) || len(b) > maxText {
				break
			}
		}
	}
	switch {
	case len(b) > maxText:
		return nil, fmt.Errorf("a text of an agent's file has more than %d bytes", maxText)
	case err != nil && err != io.EOF:
		return nil, err
	case json.Valid(b):
		return l.json(b), err
	case l.text != nil:
		return []byte(l.text(string(b))), err
	}
	return b, err
}

// ImportOptions say how a session is imported.
type ImportOptions struct {
	Cwd string // of the session here; "" for the one that it had
	// Trusted takes over the settings that can run programs, or allow something.
	Trusted bool
	// Moved are further paths of the other machine, and what they are here.
	Moved []paths.Pair
	// Closed has it arrive closed: whoever goes on with it here opens it first.
	Closed bool
	// Replace takes the place of what was left here when the session went elsewhere.
	Replace bool
	// Kept are texts that are kept beside the session, by plain names.
	Kept map[string][]byte
}

// Imported is a session that was imported.
type Imported struct {
	Session SessionInfo `json:"session"`
	// LeftOut names what the session had and has not here.
	LeftOut []string `json:"leftOut"`
}

// TravelFolder returns a new folder for a session that arrives. remove removes it.
func (r *Runtime) TravelFolder() (dir string, remove func(), err error) {
	return r.sessions.TravelFolder()
}

// KeptOf returns a text that is kept beside a session, nil when there is none, and whether
// the session has come from another gateway and was not opened since.
func (r *Runtime) KeptOf(id, name string) (text []byte, arriving bool, err error) {
	s := r.sessions.Find(id)
	if s == nil {
		return nil, false, nil
	}
	text, err = s.Kept(name)
	return text, s.Arriving(), err
}

// ImportSession makes a session of what another gateway has exported, which lies in the
// folder dir. Nothing is kept of it on an error.
func (r *Runtime) ImportSession(ctx context.Context, m Manifest, dir string, o ImportOptions) (_ Imported, err error) {
	if r.closing.Load() {
		return Imported{}, agents.ErrShutdown
	}
	if m.WithoutLog {
		return Imported{}, problem.New(problem.ArchiveRefused, "the file has no log of the session: it was made with log=false, for a hub that has it")
	}
	if m.SessionID == "" {
		return Imported{}, problem.New(problem.ArchiveRefused, "the file does not say which session it has")
	}
	cwd := cmp.Or(o.Cwd, m.Cwd)
	if err := session.CheckFolder(cwd); err != nil {
		return Imported{}, problem.New(problem.InvalidRequest, "%s (the session was held in %s: name its directory on this machine with cwd)", err.Message, m.Cwd).With("parameter", "cwd")
	}
	cwd = filepath.Clean(cwd)
	files := os.DirFS(dir)
	record, err := fs.ReadFile(files, TravelRecord)
	if err != nil {
		return Imported{}, problem.Wrap(problem.ArchiveRefused, err, "the session's record is missing")
	}
	move := movement(m, cwd, o.Moved)
	stage, placing := filepath.Join(dir, filepath.FromSlash(session.Stage)), filepath.Join(dir, "stage", "agent")
	for _, folder := range []string{stage, placing} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return Imported{}, problem.Wrap(problem.Internal, err, "make a folder for a session that arrives")
		}
	}
	next, done, err := entriesOf(files)
	if err != nil {
		return Imported{}, err
	}
	defer done()
	raw, err := rawOf(files)
	if err != nil {
		return Imported{}, err
	}
	defer raw.Close()
	s, leftOut, err := r.sessions.Import(session.Arrival{
		Raw: raw.Reader, ID: m.SessionID, Record: record, Next: next, Oldest: m.OldestSeq, Cwd: cwd, Paths: move, Trusted: o.Trusted, Closed: o.Closed, Replace: o.Replace, Kept: o.Kept, Stage: stage,
		Place: func(a *agents.Agent, nativeID string, n agents.Needs) (undo func() error, err error) {
			if nativeID != m.AgentSessionID {
				return nil, problem.New(problem.ArchiveRefused, "the session's record and the manifest name different sessions of the agent")
			}
			o, err := a.Options(n)
			if err != nil {
				return nil, err
			}
			t := adapters.Travel{Options: o, SessionID: nativeID, Cwd: cwd, Temp: filepath.Dir(dir)}
			return placeAgent(ctx, a, t, files, placing, move)
		},
	})
	if err != nil {
		return Imported{}, err
	}
	leftOut = append(leftOut, m.LeftOut...)
	slices.Sort(leftOut)
	r.log.Info("session imported", "session", s.ID(), "agent", m.Agent, "from", m.Gateway)
	return Imported{Session: s.Info(), LeftOut: slices.Compact(append([]string{}, leftOut...))}, nil
}

// recorded is a file that may be none.
type recorded struct {
	io.Reader // nil for none
	file      fs.File
}

// Close closes the file, if there is one.
func (r recorded) Close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

// rawOf opens what was recorded of the agent's traffic, if anything was.
func rawOf(files fs.FS) (recorded, error) {
	f, err := files.Open(TravelRaw)
	if errors.Is(err, fs.ErrNotExist) {
		return recorded{}, nil
	}
	if err != nil {
		return recorded{}, problem.Wrap(problem.ArchiveRefused, err, "what was recorded of the agent's traffic cannot be read")
	}
	return recorded{f, f}, nil
}

// movement is what the paths of the other machine are here.
func movement(m Manifest, cwd string, more []paths.Pair) paths.Map {
	real := cwd
	if r, err := filepath.EvalSymlinks(cwd); err == nil {
		real = r
	}
	pairs := []paths.Pair{{From: filepath.Clean(m.Cwd), To: cwd}}
	if m.RealCwd != "" {
		pairs = append(pairs, paths.Pair{From: filepath.Clean(m.RealCwd), To: real})
	}
	if home, err := os.UserHomeDir(); err == nil && m.Home != "" {
		pairs = append(pairs, paths.Pair{From: filepath.Clean(m.Home), To: filepath.Clean(home)})
	}
	return paths.NewMap(append(pairs, more...)...)
}

// entriesOf returns the entries of the parts of a log, one after the other.
func entriesOf(files fs.FS) (next func() (journal.Entry, error), done func(), err error) {
	names, err := fs.Glob(files, TravelLog+"*.jsonl")
	if err != nil {
		return nil, nil, problem.Wrap(problem.Internal, err, "look for the session's log")
	}
	slices.Sort(names)
	var open fs.File
	var lines *journal.Lines
	done = func() {
		if open != nil {
			_ = open.Close()
			open = nil
		}
	}
	next = func() (journal.Entry, error) {
		for {
			if open == nil {
				if len(names) == 0 {
					return journal.Entry{}, io.EOF
				}
				f, err := files.Open(names[0])
				if err != nil {
					return journal.Entry{}, err
				}
				open, lines, names = f, journal.NewLines(f), names[1:]
			}
			e, err := lines.Next()
			if err != io.EOF {
				return e, err
			}
			done()
		}
	}
	return next, done, nil
}

// placeAgent hands the agent's own files to its adapter, with the paths of this machine.
func placeAgent(ctx context.Context, a *agents.Agent, t adapters.Travel, files fs.FS, stage string, move paths.Map) (undo func() error, err error) {
	nothing := func() error { return nil }
	some := false
	root := strings.TrimSuffix(TravelAgent, "/")
	err = fs.WalkDir(files, root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name == root:
			return nil
		case err != nil || d.IsDir():
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		some = true
		return rewrite(files, name, filepath.Join(stage, filepath.FromSlash(strings.TrimPrefix(name, TravelAgent))), move)
	})
	if err != nil {
		return nil, problem.Wrap(problem.ArchiveRefused, err, "the files of agent %s cannot be taken over", a.ID())
	}
	if !some {
		return nothing, nil
	}
	traveller := a.Traveller()
	if traveller == nil {
		return nil, problem.New(problem.ArchiveRefused, "the session has files of agent %s, which here is one that takes none", a.ID())
	}
	undo, err = traveller.Import(ctx, t, os.DirFS(stage))
	if missing, ok := errors.AsType[*adapters.NotInstalledError](err); ok {
		return nil, problem.Wrap(problem.AgentNotInstalled, missing, "the session cannot be given to agent %s", a.ID())
	}
	if errors.Is(err, adapters.ErrHere) {
		return nil, problem.Wrap(problem.AlreadyExists, err, "the session cannot be given to agent %s", a.ID())
	}
	if err != nil {
		return nil, problem.Wrap(problem.ArchiveRefused, err, "the session cannot be given to agent %s", a.ID())
	}
	return undo, nil
}

// rewrite copies a file with its paths replaced.
func rewrite(files fs.FS, name, to string, move paths.Map) error {
	in, err := files.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	return create(to, edited(name, in, move.JSON, move.Text))
}
