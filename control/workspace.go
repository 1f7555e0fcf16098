package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

const (
	workspaceFolder = "workspace/"
	workspaceFile   = workspaceFolder + "workspace.json" // says what the rest is
)

// workspaces says why workspaces cannot travel, nil when they can.
func (s *Server) workspaces() error {
	if s.o.Files == nil {
		return problem.New(problem.NotSupported, "this server gives no access to files, so workspaces do not travel from or to it")
	}
	return nil
}

// keptSnapshot is the name of what is kept beside a session of a workspace that came.
const keptSnapshot = "workspace.snapshot"

// putWorkspace writes the workspace that a directory belongs to, without what commits
// reach that the other side has.
func (s *Server) putWorkspace(ctx context.Context, w *parcel.Writer, cwd string, have []string, kept func(name string) ([]byte, error)) error {
	o := fs.TakeOptions{Have: have}
	b, err := kept(keptSnapshot)
	if err == nil && b != nil {
		o.Base, err = fs.ParseSnapshot(b)
	}
	if err != nil {
		return problem.Wrap(problem.Internal, err, "read what the workspace was when it came")
	}
	ws, err := s.o.Files.TakeWorkspace(ctx, cwd, o, func(part string) (io.WriteCloser, error) {
		return w.Stream(workspaceFolder + part), nil
	})
	if err != nil {
		return fileProblem(err)
	}
	b, err = json.Marshal(ws)
	if err != nil {
		return problem.Wrap(problem.Internal, err, "encode what is known of the workspace")
	}
	return w.Put(workspaceFile, bytes.NewReader(b))
}

// placeWorkspace makes the workspace of a session that was unpacked into dir. o is changed
// to the directory of the session in it.
func (s *Server) placeWorkspace(ctx context.Context, id, dir string, o *runtime.ImportOptions, merge bool) (*fs.Workspace, *fs.PlacedWorkspace, error) {
	files := os.DirFS(dir)
	b, err := iofs.ReadFile(files, workspaceFile)
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
	how := fs.PlaceWorkspaceOptions{Merge: merge}
	if merge && o.Replace { // it has come before, and goes on where it was
		b, err := s.o.Travel.ArrivedWith(id, keptSnapshot)
		if err == nil && b != nil {
			how.Base, err = fs.ParseSnapshot(b)
		}
		if err != nil {
			return nil, nil, problem.Wrap(problem.Internal, err, "read what the workspace was when it came")
		}
	}
	placed, err := s.o.Files.PlaceWorkspace(ctx, root, ws, how, func(part string) (io.ReadCloser, error) {
		return parcel.OpenStream(files, workspaceFolder+part)
	})
	if err != nil {
		return nil, nil, fileProblem(err)
	}
	text, err := placed.Snapshot.Text()
	if err != nil {
		return nil, nil, errors.Join(err, placed.Undo())
	}
	if text != nil {
		o.Kept = map[string][]byte{keptSnapshot: text}
	}
	o.Cwd = filepath.Join(root, filepath.FromSlash(ws.Sub))
	o.Moved = append(o.Moved, paths.Pair{From: filepath.Clean(ws.Root), To: root})
	return ws, placed, nil
}
