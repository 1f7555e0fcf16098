package fs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Workspace is a folder as it is taken to another machine. Of a git repository it is the
// history of what is checked out, the index, and the files that git does not ignore; of
// another folder the files that no .gitignore names.
type Workspace struct {
	Git    bool   `json:"git"`
	Root   string `json:"root"`             // the folder, or that of the repository around it
	Sub    string `json:"sub,omitempty"`    // the folder below Root, with slashes
	Branch string `json:"branch,omitempty"` // absent when no branch is checked out
	Commit string `json:"commit,omitempty"` // absent before the first
	Format string `json:"format,omitempty"` // of git's objects, sha1 or sha256
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"` // of files
	// LeftOut says what is not in it and why, at most maxLeftOut of it.
	LeftOut []string `json:"leftOut,omitempty"`

	taken map[string]bool // paths of files
}

// The parts of a workspace.
const (
	partFiles   = "files.tar" // the files
	partPack    = "pack"      // git's objects
	partIndex   = "index"     // what is staged, as git ls-files --stage has it
	partShallow = "shallow"   // where the history ends that is not whole
	partBase    = "base"      // what the workspace was when it came, as [Snapshot.Text] has it
)

const (
	maxLeftOut       = 256
	maxWorkspace     = 12 << 30 // bytes of files
	maxWorkspaceFile = 200_000  // files
)

// leave notes what is not taken along.
func (w *Workspace) leave(format string, args ...any) {
	switch {
	case len(w.LeftOut) < maxLeftOut-1:
		w.LeftOut = append(w.LeftOut, fmt.Sprintf(format, args...))
	case len(w.LeftOut) == maxLeftOut-1:
		w.LeftOut = append(w.LeftOut, "more of the same")
	}
}

// TakeOptions say what of a workspace the other side has.
type TakeOptions struct {
	// Have are commits that it has. What they reach is left out, as far as they are here.
	Have []string
	// Base is what both were when the workspace came here; nil when it did not.
	Base *Snapshot
}

// TakeWorkspace writes the workspace that a folder belongs to. create returns where a
// part of it goes; each is closed before the next is asked for.
func (s *Service) TakeWorkspace(ctx context.Context, dir string, o TakeOptions, create func(part string) (io.WriteCloser, error)) (*Workspace, error) {
	write := func(part string, f func(w io.Writer) error) error {
		to, err := create(part)
		if err != nil {
			return err
		}
		if err := f(to); err != nil {
			_ = to.Close()
			return err
		}
		return to.Close()
	}
	g, err := s.repository(ctx, dir)
	if e, ok := errors.AsType[*Error](err); ok && (e.Code == NoRepository || e.Code == Unsupported) {
		ws := &Workspace{Root: dir, taken: map[string]bool{}}
		err := write(partFiles, func(w io.Writer) error { return s.packFolder(ctx, ws, w) })
		if err == nil {
			err = s.takeBase(ws, o.Base, write)
		}
		return ws, err
	}
	if err != nil {
		return nil, err
	}
	defer g.end()
	ws, err := s.takeRepository(ctx, g, dir, o.Have, write)
	if err == nil {
		err = s.takeBase(ws, o.Base, write)
	}
	return ws, err
}

// takeBase writes what the workspace was when it came, without files that stay here.
func (s *Service) takeBase(ws *Workspace, base *Snapshot, write func(string, func(io.Writer) error) error) error {
	if base == nil {
		return nil
	}
	name, err := s.name(ws.Root)
	if err != nil {
		return err
	}
	top, err := s.folder(name)
	if err != nil {
		return explain(err, "open %s", ws.Root)
	}
	defer top.Close()
	base.without(top, ws.taken)
	b, err := base.Text()
	if err != nil || b == nil {
		return err
	}
	return write(partBase, func(w io.Writer) error { _, err := w.Write(b); return err })
}

// packFolder writes the files of a folder that no .gitignore names.
func (s *Service) packFolder(ctx context.Context, ws *Workspace, w io.Writer) error {
	name, err := s.name(ws.Root)
	if err != nil {
		return err
	}
	top, err := s.folder(name)
	if err != nil {
		return explain(err, "open %s", ws.Root)
	}
	defer top.Close()
	p := s.filePacker(ws, w)
	defer p.done()
	var in *rules
	var above []*rules
	wk := walk{
		s: s,
		enter: func(dir *os.Root, rel string) error {
			above = append(above, in)
			if in = rulesOf(dir, ".gitignore", in); in != nil && in != above[len(above)-1] {
				in.dir = rel
			}
			return nil
		},
		leave:  func() { in, above = above[len(above)-1], above[:len(above)-1] },
		failed: func(rel string, err error) error { return explain(err, "read %s", filepath.Join(ws.Root, rel)) },
	}
	wk.visit = func(f found) (bool, error) {
		if f.name == ".git" || strings.HasPrefix(f.name, temporary) || in.ignores(f.rel, f.info.IsDir()) {
			return false, nil
		}
		if f.info.IsDir() {
			return true, p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.rel + "/", Mode: int64(f.info.Mode().Perm()), ModTime: f.info.ModTime().Truncate(1e9)})
		}
		return false, p.add(f, true)
	}
	if err := wk.below(ctx, top, ""); err != nil {
		return explain(err, "pack %s", ws.Root)
	}
	return p.w.Close()
}

// filePacker packs files of a workspace.
type filePacker struct {
	packing
	ws   *Workspace
	size *[copySize]byte
}

func (s *Service) filePacker(ws *Workspace, w io.Writer) *filePacker {
	buf := buffers.Get().(*[copySize]byte)
	return &filePacker{packing{s: s, w: tar.NewWriter(w), buf: buf[:]}, ws, buf}
}

func (p *filePacker) done() { buffers.Put(p.size) }

// add packs one file or link, unless it must stay.
func (p *filePacker) add(f found, unknown bool) error {
	switch typeOf(f.info.Mode()) {
	case Symlink:
		target, err := f.dir.Readlink(f.name)
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if leadsOut(f.rel, target) != "" {
			p.ws.leave("the link %q to %q, which leads out of the workspace", f.rel, target)
			return nil
		}
	case Other:
		p.ws.leave("%q, which is a device, a pipe or a socket", f.rel)
		return nil
	}
	if unknown && private(f.name) {
		p.ws.leave("%q, which may hold secrets and is not in the repository", f.rel)
		return nil
	}
	if p.ws.Git && isPointer(f) {
		p.ws.leave("the content of %q: here is a pointer of Git LFS only", f.rel)
	}
	p.ws.taken[f.rel] = true
	p.ws.Files++
	p.ws.Bytes += f.info.Size()
	if p.ws.Files > maxWorkspaceFile || p.ws.Bytes > maxWorkspace {
		return failf(TooLarge, "the workspace has more than %d files or %d bytes: let a .gitignore name what need not travel", maxWorkspaceFile, int64(maxWorkspace))
	}
	return p.entry(f)
}

// pointerBegins is how a file of Git LFS begins whose content was not fetched.
const pointerBegins = "version https://git-lfs.github.com/spec/"

// isPointer reports whether a file stands for its content only.
func isPointer(f found) bool {
	if !f.info.Mode().IsRegular() || f.info.Size() > 1024 || f.info.Size() < int64(len(pointerBegins)) {
		return false
	}
	file, err := f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return false // whoever packs it says why
	}
	defer file.Close()
	b := make([]byte, len(pointerBegins))
	_, err = io.ReadFull(file, b)
	return err == nil && string(b) == pointerBegins
}

// private reports whether a file is one of those in which people keep secrets.
func private(name string) bool {
	low := strings.ToLower(name)
	if low == ".env" || strings.HasPrefix(low, ".env.") {
		return !slices.Contains([]string{".example", ".sample", ".template", ".dist"}, path.Ext(low))
	}
	return slices.Contains([]string{".netrc", ".pgpass", ".npmrc", ".pypirc", "id_rsa", "id_ecdsa", "id_ed25519"}, low)
}

// packNamed packs the files of a repository with these names, those that are not there
// left out.
func (s *Service) packNamed(ctx context.Context, ws *Workspace, names []string, known map[string]bool, w io.Writer) error {
	root, err := s.name(ws.Root)
	if err != nil {
		return err
	}
	top, err := s.folder(root)
	if err != nil {
		return explain(err, "open %s", ws.Root)
	}
	defer top.Close()
	p := s.filePacker(ws, w)
	defer p.done()
	in := folders{top: top}
	var dir *os.Root
	at := ""
	defer func() {
		if dir != nil {
			_ = dir.Close()
		}
	}()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if in.real(name) != nil || strings.HasPrefix(name, temporary) {
			continue // behind a link: git takes it for removed
		}
		info, err := top.Lstat(filepath.FromSlash(strings.TrimSuffix(name, "/")))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return explain(err, "read %s", filepath.Join(ws.Root, name))
		}
		if info.IsDir() {
			ws.leave("%q, which is a repository of its own", name)
			continue
		}
		if above := path.Dir(name); dir == nil || above != at {
			if dir != nil {
				_ = dir.Close()
			}
			if dir, err = top.OpenRoot(filepath.FromSlash(above)); err != nil {
				dir = nil
				return explain(err, "read %s", filepath.Join(ws.Root, above))
			}
			at = above
		}
		if err := p.add(found{dir, name, path.Base(name), info}, !known[name]); err != nil {
			return explain(err, "pack %s", filepath.Join(ws.Root, name))
		}
	}
	return p.w.Close()
}
