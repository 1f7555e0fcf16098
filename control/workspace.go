package control

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

const (
	workspaceFolder = "workspace/"
	workspaceFile   = workspaceFolder + "workspace.json" // says what the rest is
	placesFolder    = workspaceFolder + "places"         // travels without the files, too
)

// workspaces says why workspaces cannot travel, nil when they can.
func (s *Server) workspaces() error {
	if s.o.Files == nil {
		return problem.New(problem.NotSupported, "this server gives no access to files, so workspaces do not travel from or to it")
	}
	return nil
}

// What is kept beside a session.
const (
	keptPlaces  = "workspace.places"  // an fs.Places
	keptPlace   = "workspace.place"   // a place
	keptArrival = "workspace.arrival" // the folder by which the workspace came
)

// place is a directory of a session, by a name that no other has.
type place struct {
	Name string `json:"name"`
	Root string `json:"root"`
}

// placeIn returns the place that a directory is, by the text kept of the one where the session
// was last; it is a new one unless that is the same directory.
func placeIn(root string, kept []byte) (p place, isNew bool) {
	if json.Unmarshal(kept, &p) == nil && p.Root == root && p.Name != "" {
		return p, false
	}
	return place{Name: rand.Text(), Root: root}, true
}

// leaving is a workspace that is about to travel.
type leaving struct {
	*fs.Taking
	place string
}

// openWorkspace looks at the workspace that a directory belongs to. The caller closes it.
func (s *Server) openWorkspace(ctx context.Context, cwd string, o fs.TakeOptions, b runtime.Beside) (*leaving, error) {
	text, err := b.Kept(keptPlaces)
	if err == nil {
		o.Places, err = fs.ParsePlaces(text)
	}
	if err != nil {
		return nil, problem.Wrap(problem.Internal, err, "read what the workspace was at other places")
	}
	taking, err := s.o.Files.OpenWorkspace(ctx, cwd, o)
	if err != nil {
		return nil, fileProblem(err)
	}
	known, err := b.Kept(keptPlace)
	at, isNew := placeIn(taking.Root(), known)
	if err == nil && isNew {
		if known, err = json.Marshal(at); err == nil {
			err = b.KeepText(keptPlace, known)
		}
	}
	if err != nil {
		taking.Close()
		if gone, ok := errors.AsType[*problem.Error](err); ok {
			return nil, gone
		}
		return nil, problem.Wrap(problem.Internal, err, "keep the name of the workspace's place")
	}
	return &leaving{taking, at.Name}, nil
}

// putWorkspace writes a workspace.
func putWorkspace(ctx context.Context, w *parcel.Writer, l *leaving) error {
	ws, err := l.Write(ctx, l.place, sink{w})
	if err != nil {
		return fileProblem(err)
	}
	b, err := json.Marshal(ws)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "encode what is known of the workspace")
	}
	return w.Put(workspaceFile, bytes.NewReader(b))
}

// sink is a session's file as that of a workspace.
type sink struct{ w *parcel.Writer }

// Create implements fs.Sink.
func (s sink) Create(part string) (io.WriteCloser, error) {
	return s.w.Stream(workspaceFolder + part), nil
}

// Put implements fs.Sink.
func (s sink) Put(part string, size int64, r io.Reader) ([sha256.Size]byte, error) {
	return s.w.PutSized(workspaceFolder+part, size, r)
}

// unpacked is a session's file, in a folder, as that of a workspace.
type unpacked struct {
	dir  string
	sums map[string][sha256.Size]byte
}

// Open implements fs.Source.
func (u unpacked) Open(part string) (io.ReadCloser, error) {
	name := workspaceFolder + part
	if _, whole := u.sums[name]; whole {
		return os.Open(filepath.Join(u.dir, filepath.FromSlash(name)))
	}
	return parcel.OpenStream(os.DirFS(u.dir), name)
}

// File implements fs.Source.
func (u unpacked) File(part string) (path string, sum [sha256.Size]byte) {
	name := workspaceFolder + part
	if sum, whole := u.sums[name]; whole {
		return filepath.Join(u.dir, filepath.FromSlash(name)), sum
	}
	return "", sum
}

// putPlaces writes what is known of a workspace that stays.
func putPlaces(w *parcel.Writer, b runtime.Beside) error {
	text, err := b.Kept(keptPlaces)
	if err != nil || text == nil {
		return err
	}
	to := w.Stream(placesFolder)
	_, err = to.Write(text)
	return errors.Join(err, to.Close())
}

// keepPlaces has a session that comes without its files keep what is known of them.
func (s *Server) keepPlaces(id, dir string, o *runtime.ImportOptions) error {
	known, err := fs.ReadPlaces(func(string) (io.ReadCloser, error) { return parcel.OpenStream(os.DirFS(dir), placesFolder) })
	var text []byte
	if err == nil {
		text, err = known.Text()
	}
	if err != nil {
		return fileProblem(err)
	}
	at, _, err := s.o.Travel.KeptOf(id, keptPlace)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "read the name of the workspace's place")
	}
	o.Kept = map[string][]byte{keptPlaces: text, keptPlace: at}
	return nil
}

// comingFile is the file, in the folder of a session that arrives, that says where its
// workspace is put.
const comingFile = "coming.json"

// coming is what a gateway that was killed has to know of a workspace.
type coming struct {
	Session   string `json:"session"`
	Directory string `json:"directory"`
	// Keep is what was decided when it could not be ended at once: by the next time the session may have gone again.
	Keep *bool `json:"keep,omitempty"`
}

// EndArrivals returns what ends arrivals of a gateway that was killed: a workspace whose
// session has come stays, any other is taken back.
func EndArrivals(files *fs.Service) func(folder string, kept func(id, name string) ([]byte, error)) error {
	return func(folder string, kept func(id, name string) ([]byte, error)) error {
		b, err := os.ReadFile(filepath.Join(folder, comingFile))
		if errors.Is(err, iofs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read which workspace was on its way: %w", err)
		}
		var at coming
		if json.Unmarshal(b, &at) != nil {
			return nil // the machine lost its power as that was written: nothing was touched before
		}
		by := filepath.Base(folder)
		if at.Keep == nil {
			arrival, err := kept(at.Session, keptArrival)
			if err != nil {
				return fmt.Errorf("look whether the session has come: %w", err)
			}
			came := string(arrival) == by
			at.Keep = &came
			if b, err = json.Marshal(at); err == nil {
				err = journal.ReplaceFile(filepath.Join(folder, comingFile), b)
			}
			if err != nil {
				return fmt.Errorf("note whether a workspace is kept: %w", err)
			}
		}
		return files.RecoverWorkspace(context.Background(), at.Directory, by, *at.Keep)
	}
}

// placeWorkspace makes the workspace of a session that was unpacked into dir. o is changed
// to the directory of the session in it.
func (s *Server) placeWorkspace(ctx context.Context, m parcel.Contents, dir string, o *runtime.ImportOptions, merge bool) (*fs.Workspace, *fs.PlacedWorkspace, error) {
	id := m.SessionID
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(workspaceFile)))
	ws := new(fs.Workspace)
	if err == nil {
		err = json.Unmarshal(b, ws)
	}
	if err != nil {
		return nil, nil, problem.Wrap(problem.ArchiveRefused, err, "what is known of the workspace cannot be read")
	}
	root := o.Cwd
	if root == "" {
		root = ws.Root
	}
	if !filepath.IsAbs(root) {
		return nil, nil, problem.New(problem.InvalidRequest, "cwd must be an absolute path, not %q", root).With("parameter", "cwd")
	}
	root = filepath.Clean(root)
	at, base, err := s.placeOf(id, root)
	if err == nil {
		b, err = json.Marshal(coming{Session: id, Directory: root})
	}
	if err == nil {
		err = journal.ReplaceFile(filepath.Join(dir, comingFile), b) // before anything is touched there
	}
	if err != nil {
		return nil, nil, problem.Wrap(problem.Internal, err, "note where the workspace is put")
	}
	placed, err := s.o.Files.PlaceWorkspace(ctx, root, ws, fs.PlaceWorkspaceOptions{Merge: merge, By: filepath.Base(dir), Base: base}, unpacked{dir, m.Sums})
	if err != nil {
		return nil, nil, fileProblem(err)
	}
	placed.Places.Meet(placed.Snapshot, ws.Place, at.Name)
	o.Kept = map[string][]byte{keptArrival: []byte(filepath.Base(dir))}
	if o.Kept[keptPlaces], err = placed.Places.Text(); err == nil {
		o.Kept[keptPlace], err = json.Marshal(at)
	}
	if err != nil {
		return nil, nil, errors.Join(err, placed.Undo())
	}
	o.Cwd = filepath.Join(root, filepath.FromSlash(ws.Sub))
	o.Moved = append(o.Moved, paths.Pair{From: filepath.Clean(ws.Root), To: root})
	return ws, placed, nil
}

// placeOf returns the place that a directory is for a session that arrives, and what tells
// what it had in common with the workspace last. A session that has come before and was not
// opened since knows that better than what comes now.
func (s *Server) placeOf(id, root string) (place, func(*fs.Places) *fs.Snapshot, error) {
	kept, arriving, err := s.o.Travel.KeptOf(id, keptPlace)
	if err != nil {
		return place{}, nil, err
	}
	at, isNew := placeIn(root, kept)
	if isNew || !arriving {
		return at, func(came *fs.Places) *fs.Snapshot { return came.At(at.Name) }, nil
	}
	text, _, err := s.o.Travel.KeptOf(id, keptPlaces)
	if err != nil {
		return at, nil, err
	}
	here, err := fs.ParsePlaces(text)
	if err != nil {
		return at, nil, err
	}
	return at, func(*fs.Places) *fs.Snapshot { return here.At(at.Name) }, nil
}
