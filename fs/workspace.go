package fs

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	Bytes  int64  `json:"bytes"`          // of files
	Lent   int    `json:"lent,omitempty"` // of the files, those whose content the other side has
	// Place is the name of the place that it comes from; see [Places].
	Place string `json:"place,omitempty"`
	// LeftOut says what is not in it and why, at most maxLeftOut of it.
	LeftOut []string `json:"leftOut,omitempty"`

	taken map[string]bool // paths of files
}

// Sink takes the parts of a workspace that goes.
type Sink interface {
	// Create returns where a part goes; it is closed before the next is asked for.
	Create(part string) (io.WriteCloser, error)
	// Put takes a part of a size, also while another one is written, and returns its SHA-256.
	Put(part string, size int64, r io.Reader) (sum [sha256.Size]byte, err error)
}

// Source has the parts of a workspace that comes.
type Source interface {
	// Open returns a part that was written, nil for one that was not.
	Open(part string) (io.ReadCloser, error)
	// File returns the file of a part that was put, which may be moved away, and its SHA-256;
	// "" when it is in none.
	File(part string) (path string, sum [sha256.Size]byte)
}

// The parts of a workspace.
const (
	partFiles   = "files.tar" // the files
	partPack    = "pack"      // git's objects
	partIndex   = "index"     // what is staged, as git ls-files --stage has it
	partShallow = "shallow"   // where the history ends that is not whole
	partPlaces  = "places"    // what it was at other places, as [Places.Text] has it
	partLarge   = "large/"    // large files, each with a number
)

// largeFile is from how many bytes on a file is a part by itself: it is then written once
// where it arrives, and moved to its place.
const largeFile = 128 << 10

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
	// Files are paths of files that it has, by the SHA-256 of their content. Where a file is
	// the same, its path there is sent in the place of its content.
	Files map[[sha256.Size]byte]string
	// Places is what is known of the workspace at other places; nil when nothing is.
	Places *Places
}

// Taking is a workspace that is about to be taken to another machine: it is known what is
// in it, and nothing is written. It is not safe for concurrent use.
type Taking struct {
	s     *Service
	o     TakeOptions
	ws    *Workspace
	top   *os.Root
	items []item
	more  int64 // bytes of what is not a file, about

	// Of a repository.
	g       *repository // nil for a folder without one
	index   []string
	objects []string
}

// item is a file, a link, or, with a slash at its end, a folder that is taken along.
type item struct {
	name string
	size int64
	same bool // the other side has a file with sum
	sum  [sha256.Size]byte
}

// OpenWorkspace looks what is in the workspace that a folder belongs to. The caller closes
// it.
func (s *Service) OpenWorkspace(ctx context.Context, dir string, o TakeOptions) (_ *Taking, err error) {
	t := &Taking{s: s, o: o, ws: &Workspace{Root: dir, taken: map[string]bool{}}}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	g, err := s.repository(ctx, dir)
	if e, ok := errors.AsType[*Error](err); ok && (e.Code == NoRepository || e.Code == Unsupported) {
		if t.top, err = s.openFolder(dir); err == nil {
			err = t.addFolder(ctx)
		}
		return t, err
	}
	if err != nil {
		return t, err
	}
	t.g, t.ws.Git, t.ws.Root = g, true, g.root
	if t.top, err = s.openFolder(g.root); err == nil {
		err = t.addRepository(ctx, dir)
	}
	return t, err
}

// openFolder opens a folder by its path.
func (s *Service) openFolder(path string) (*os.Root, error) {
	name, err := s.name(path)
	if err != nil {
		return nil, err
	}
	top, err := s.folder(name)
	if err != nil {
		return nil, explain(err, "open %s", path)
	}
	return top, nil
}

// Close lets go of the workspace.
func (t *Taking) Close() {
	if t.g != nil {
		t.g.end()
	}
	if t.top != nil {
		_ = t.top.Close()
	}
}

// Root is the workspace's folder.
func (t *Taking) Root() string { return t.ws.Root }

// Bytes is about how much Write writes.
func (t *Taking) Bytes() int64 {
	n := t.more
	for i := range t.items {
		n += 1024 // of an archive, for each
		if !t.items[i].same {
			n += t.items[i].size
		}
	}
	return n
}

// Write writes the workspace, as one of the place named.
func (t *Taking) Write(ctx context.Context, place string, sink Sink) (*Workspace, error) {
	write := func(part string, f func(w io.Writer) error) error {
		to, err := sink.Create(part)
		if err != nil {
			return err
		}
		if err := f(to); err != nil {
			_ = to.Close()
			return err
		}
		return to.Close()
	}
	t.ws.Place = place
	if t.o.Places != nil {
		t.o.Places.without(t.top, t.ws.taken)
		b, err := t.o.Places.Text()
		if err == nil && b != nil {
			err = write(partPlaces, func(w io.Writer) error { _, err := w.Write(b); return err })
		}
		if err != nil {
			return nil, err
		}
	}
	if t.g != nil {
		if err := t.writeRepository(ctx, write); err != nil {
			return nil, err
		}
	}
	return t.ws, write(partFiles, func(w io.Writer) error { return t.pack(ctx, w, sink) })
}

// Checksums writes the SHA-256 and the path of each file that would be taken along, as
// "sha256sum -z" does.
func (t *Taking) Checksums(ctx context.Context, w io.Writer) error {
	if _, err := t.top.Lstat(filepath.FromSlash(undoFile)); err == nil {
		return nil // what is here is taken back before anything comes
	}
	return t.each(ctx, func(f found, _ *item) error {
		if !f.info.Mode().IsRegular() {
			return nil
		}
		sum, err := sumOf(f)
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "%x  %s\x00", sum, f.rel)
		}
		return err
	})
}

// sumOf returns the SHA-256 of a file.
func sumOf(f found) (sum [sha256.Size]byte, err error) {
	file, err := f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	h := sha256.New()
	if _, err := transfer(h, file); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// addFolder adds the files of a folder that no .gitignore names.
func (t *Taking) addFolder(ctx context.Context) error {
	var in *rules
	var above []*rules
	wk := walk{
		s: t.s,
		enter: func(dir *os.Root, rel string) error {
			above = append(above, in)
			if in = rulesOf(dir, ".gitignore", in); in != nil && in != above[len(above)-1] {
				in.dir = rel
			}
			return nil
		},
		leave:  func() { in, above = above[len(above)-1], above[:len(above)-1] },
		failed: func(rel string, err error) error { return explain(err, "read %s", filepath.Join(t.ws.Root, rel)) },
	}
	wk.visit = func(f found) (bool, error) {
		if f.name == ".git" || strings.HasPrefix(f.name, temporary) || in.ignores(f.rel, f.info.IsDir()) {
			return false, nil
		}
		if f.info.IsDir() {
			t.items = append(t.items, item{name: f.rel + "/"})
			return true, nil
		}
		return false, t.add(f, true)
	}
	return explain(wk.below(ctx, t.top, ""), "look into %s", t.ws.Root)
}

// addNamed adds the files of a repository with these names, those that are not there left
// out.
func (t *Taking) addNamed(ctx context.Context, names []string, known map[string]bool) error {
	in := opened{top: t.top}
	defer in.close()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if strings.HasPrefix(name, temporary) {
			continue
		}
		f, err := in.find(strings.TrimSuffix(name, "/"))
		switch {
		case nothingThere(err), errors.Is(err, errBehind): // git takes it for removed
			continue
		case err != nil:
			return explain(err, "read %s", filepath.Join(t.ws.Root, name))
		case f.info.IsDir():
			t.ws.leave("%q, which is a repository of its own", name)
			continue
		}
		if err := t.add(f, !known[name]); err != nil {
			return explain(err, "read %s", filepath.Join(t.ws.Root, name))
		}
	}
	return nil
}

// add adds one file or link, unless it must stay.
func (t *Taking) add(f found, unknown bool) error {
	one := item{name: f.rel, size: f.info.Size()}
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
			t.ws.leave("the link %q to %q, which leads out of the workspace", f.rel, target)
			return nil
		}
	case Other:
		t.ws.leave("%q, which is a device, a pipe or a socket", f.rel)
		return nil
	}
	if unknown && private(f.name) {
		t.ws.leave("%q, which may hold secrets and is not in the repository", f.rel)
		return nil
	}
	if t.ws.Git && isPointer(f) {
		t.ws.leave("the content of %q: here is a pointer of Git LFS only", f.rel)
	}
	if len(t.o.Files) > 0 && f.info.Mode().IsRegular() {
		var err error
		if one.sum, err = sumOf(f); errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		} else if err != nil {
			return err
		}
		if _, one.same = t.o.Files[one.sum]; one.same {
			t.ws.Lent++
		}
	}
	t.items = append(t.items, one)
	t.ws.taken[f.rel] = true
	t.ws.Files++
	t.ws.Bytes += f.info.Size()
	if t.ws.Files > maxWorkspaceFile || t.ws.Bytes > maxWorkspace {
		return failf(TooLarge, "the workspace has more than %d files or %d bytes: let a .gitignore name what need not travel", maxWorkspaceFile, int64(maxWorkspace))
	}
	return nil
}

// each calls do for everything that is taken along and is there still.
func (t *Taking) each(ctx context.Context, do func(f found, one *item) error) error {
	in := opened{top: t.top}
	defer in.close()
	for i := range t.items {
		if err := ctx.Err(); err != nil {
			return err
		}
		one := &t.items[i]
		f, err := in.find(strings.TrimSuffix(one.name, "/"))
		switch {
		case nothingThere(err), errors.Is(err, errBehind):
			continue // removed meanwhile
		case err == nil && f.info.IsDir() != strings.HasSuffix(one.name, "/"):
			continue // replaced meanwhile
		case err == nil:
			err = do(f, one)
		}
		if err != nil {
			return explain(err, "read %s", filepath.Join(t.ws.Root, one.name))
		}
	}
	return nil
}

// pack writes the files as an archive, the large ones beside. These, and those that the
// other side has, are hard links with partSum: whoever does not know that refuses them.
func (t *Taking) pack(ctx context.Context, w io.Writer, sink Sink) error {
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	p := packing{s: t.s, w: tar.NewWriter(w), buf: buf[:]}
	large := 0
	err := t.each(ctx, func(f found, one *item) error {
		switch {
		case one.same:
			return p.elsewhere(f, t.o.Files[one.sum], map[string]string{partSum: hex.EncodeToString(one.sum[:])})
		case !f.info.Mode().IsRegular() || f.info.Size() < largeFile:
			return p.entry(f)
		}
		large++
		part := fmt.Sprintf("%s%08d", partLarge, large)
		sum, err := t.putLarge(f, part, sink)
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		return p.elsewhere(f, part, map[string]string{partSum: hex.EncodeToString(sum[:]), partName: part})
	})
	return errors.Join(err, p.w.Close())
}

// elsewhere writes an entry of a file whose content is somewhere else.
func (p *packing) elsewhere(f found, at string, records map[string]string) error {
	return p.w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeLink, Name: f.rel, Linkname: at, Mode: int64(f.info.Mode().Perm()), ModTime: f.info.ModTime().Truncate(1e9), PAXRecords: records, Format: tar.FormatPAX,
	})
}

// putLarge writes a file as a part by itself. One that grows is cut at the size that it had;
// one that shrinks ends the workspace, because its size was sent.
func (t *Taking) putLarge(f found, part string, sink Sink) (sum [sha256.Size]byte, err error) {
	file, err := f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return sum, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !os.SameFile(info, f.info) {
		return sum, errors.Join(err, failf(Changed, "%s was replaced while it was read", f.rel))
	}
	if t.s.confined() && inProc(file) {
		return sum, failf(Escapes, "%s is in the process file system, which is not for clients of a server that is confined to a root", f.rel)
	}
	sum, err = sink.Put(part, f.info.Size(), file)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = failf(Changed, "%s became shorter while it was read", f.rel)
	}
	return sum, err
}

// The records of an archive's entry whose content is somewhere else.
const (
	partSum  = "SANDBOXAGENT.sha256"
	partName = "SANDBOXAGENT.part" // absent for a file that the other side has
)

// errBehind says that a path leads through something that is no folder.
var errBehind = errors.New("behind a link or a file")

// opened opens the folders that files are in, one after the other.
type opened struct {
	top *os.Root
	at  string   // the path of dir
	dir *os.Root // nil before the first
	err error    // why at is not open
}

// find looks at a path. What it returns is valid until the next call.
func (o *opened) find(name string) (found, error) {
	if above := path.Dir(name); o.dir == nil && o.err == nil || above != o.at {
		o.close()
		o.at, o.err = above, nil
		if (&folders{top: o.top}).real(name) != nil {
			o.err = errBehind
		} else {
			o.dir, o.err = o.top.OpenRoot(filepath.FromSlash(above))
		}
	}
	if o.err != nil {
		return found{}, o.err
	}
	info, err := o.dir.Lstat(path.Base(name))
	return found{o.dir, name, path.Base(name), info}, err
}

func (o *opened) close() {
	if o.dir != nil {
		_ = o.dir.Close()
		o.dir = nil
	}
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
