package fs

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// UnpackLimits bound what one archive may hold.
type UnpackLimits struct {
	Entries int64 // 1,000,000
	Bytes   int64 // of files: 256 GiB
	// Ratio bounds what an archive may grow to, as a multiple of its own size,
	// once it has become larger than Slack. One that is not compressed can grow
	// too, by files with holes.
	Ratio int64 // 256
	Slack int64 // 256 MiB
}

func (l UnpackLimits) withDefaults() UnpackLimits {
	for p, v := range map[*int64]int64{&l.Entries: 1_000_000, &l.Bytes: 256 << 30, &l.Ratio: 256, &l.Slack: 256 << 20} {
		if *p <= 0 {
			*p = v
		}
	}
	return l
}

// shownPaths bounds the paths that an upload reports.
const shownPaths = 1024

// Unpacked is what came out of an archive.
type Unpacked struct {
	Paths     []string `json:"paths"`     // absolute; the first 1024
	Truncated bool     `json:"truncated"` // there are more
	Files     int64    `json:"files"`
	Bytes     int64    `json:"bytes"` // of files
}

// Unpack unpacks a tar archive into the folder at path, which is made if it is
// not there. Files replace files; new ones get the times of the archive. consumed returns how many bytes of the
// compressed archive were read, which Ratio is about; nil for one that is not
// compressed.
//
// An entry with an absolute name or with "..", a device, a pipe, and a link that
// leads or could be made to lead out of the folder end it with an error. What
// was unpacked before stays, and the error's Written tells what that is.
func (s *Service) Unpack(ctx context.Context, path string, r io.Reader, consumed func() int64) (Unpacked, error) {
	return s.unpack(ctx, path, r, consumed, nil)
}

// arrived is what came in the archive of a workspace.
type arrived struct {
	states map[string]string // of files and links; see Snapshot.Files
	// elsewhere are files whose content is not in the archive.
	elsewhere map[string]elsewhere
}

// elsewhere is where the content of a file is, and which mode the file has.
type elsewhere struct {
	path string // of a part, or of a file that is here
	part bool
	sum  [sha256.Size]byte
	mode os.FileMode
}

// unpack is Unpack. came, if not nil, is told what comes, and hard links are then what
// Taking.pack makes them.
func (s *Service) unpack(ctx context.Context, path string, r io.Reader, consumed func() int64, came *arrived) (Unpacked, error) {
	name, err := s.name(path)
	if err != nil {
		return Unpacked{}, err
	}
	if err := s.mkdirAll(name, 0o777); err != nil {
		return Unpacked{}, explain(err, "make the directory %s", path)
	}
	dir, err := s.folder(name)
	if err != nil {
		return Unpacked{}, explain(err, "open %s", path)
	}
	defer dir.Close()
	buf := buffers.Get().(*[copySize]byte)
	defer buffers.Put(buf)
	u := unpacking{s: s, path: path, limits: s.o.Unpack, consumed: consumed, buf: buf[:], came: came, sum: sha256.New(), folders: folders{top: dir, open: map[string]*os.Root{}}, done: Unpacked{Paths: []string{}}}
	defer u.folders.close()
	in := &source{r: r}
	if consumed == nil {
		u.consumed = func() int64 { return in.n }
	}
	err = u.all(ctx, tar.NewReader(bufio.NewReaderSize(in, copySize)))
	switch {
	case err == nil:
		// The sender may have padded the end; a connection is reused only when
		// all was read.
		_, _ = io.CopyN(io.Discard, in, 1<<20)
		return u.done, nil
	case in.err != nil:
		err = in.err
	case ctx.Err() != nil:
		err = ctx.Err()
	default:
		err = explain(err, "unpack into %s", path)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		own := *e
		own.Written = &u.done
		return u.done, &own
	}
	return u.done, err
}

type unpacking struct {
	s        *Service
	path     string
	limits   UnpackLimits
	consumed func() int64
	buf      []byte
	folders  folders
	came     *arrived  // nil for nobody
	sum      hash.Hash // of the file that is written, for came
	entries  int64
	done     Unpacked
}

func (u *unpacking) all(ctx context.Context, r *tar.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			// What package tar refuses by itself, such as a name of megabytes, has
			// no error of its own.
			if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(err.Error(), "archive/tar: ") {
				return failf(Invalid, "the body is no whole tar archive: %s", err)
			}
			return err
		}
		if u.entries++; u.entries > u.limits.Entries {
			return failf(TooLarge, "the archive has more than %d entries", u.limits.Entries)
		}
		if err := u.entry(h, r); err != nil {
			return err
		}
	}
}

// entry unpacks one entry.
func (u *unpacking) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := local(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, 0:
		return u.file(name, h, r)
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		if err := u.directory(name, h); err != nil {
			return explain(err, "make the directory %s", u.show(name))
		}
		u.note(name)
		return nil
	case tar.TypeSymlink:
		return u.symlink(name, h)
	case tar.TypeLink:
		return u.link(name, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return failf(Refused, "the archive's entry %q is a device or a pipe, which is never unpacked", h.Name)
	}
	return failf(Refused, "the archive's entry %q has the unknown type %q", h.Name, h.Typeflag)
}

// local returns an entry's name in its clean form, "." for the folder itself.
func local(name string) (string, error) {
	if strings.HasPrefix(name, "/") || filepath.IsAbs(filepath.FromSlash(name)) {
		return "", failf(Refused, "the archive's entry %q has an absolute name", name)
	}
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		switch p {
		case "", ".":
		case "..":
			return "", failf(Refused, `the archive's entry %q has ".." in its name`, name)
		default:
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return ".", nil
	}
	clean := strings.Join(parts, "/")
	if !filepath.IsLocal(filepath.FromSlash(clean)) {
		return "", failf(Refused, "the archive's entry %q has a name that this system does not take for a file's", name)
	}
	return clean, nil
}

// directory makes a folder as private as the archive says, but one that can be
// filled. A folder that is there stays as it is.
func (u *unpacking) directory(name string, h *tar.Header) error {
	perm := os.FileMode(h.Mode).Perm()
	if perm == 0 { // some programs write none
		perm = NewDirectory
	}
	dir, base, err := u.folders.of(name)
	if err != nil {
		return err
	}
	if err = dir.Mkdir(base, perm|0o700); errors.Is(err, os.ErrExist) {
		_, err = u.folders.get(name)
	}
	return err
}

func (u *unpacking) file(name string, h *tar.Header, r io.Reader) error {
	if name == "." {
		return failf(Refused, "the archive's entry %q is a file without a name", h.Name)
	}
	if h.Size > u.limits.Bytes-u.done.Bytes {
		return failf(TooLarge, "the archive holds more than %d bytes", u.limits.Bytes)
	}
	// Of a large file the archive's beginning says nothing; it is looked at
	// while it is written.
	if err := u.grows(min(h.Size, copySize)); err != nil {
		return err
	}
	dir, base, err := u.folders.of(name)
	if err != nil {
		return explain(err, "make the folders of %s", u.show(name))
	}
	perm := os.FileMode(h.Mode).Perm()
	f, folder, as, err := u.open(dir, base, name, h.Size, perm)
	if err != nil {
		return explain(err, "make %s", u.show(name))
	}
	n, err := u.fill(f, r)
	if err == nil && folder != nil {
		if err = linkAt(f, folder, as); errors.Is(err, os.ErrExist) { // somebody has put something there
			as = temporaryName()
			err = linkAt(f, folder, as)
		}
	}
	unnamed := folder != nil && err != nil
	_ = folder.Close()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
	case as != base:
		// It has the time of now: whoever has read the one before can see that it is another.
		err = dir.Rename(as, base)
	case u.came == nil && h.ModTime.Unix() > 0:
		_ = dir.Chtimes(base, h.ModTime, h.ModTime) // some file systems keep no times
	}
	if err != nil {
		if !unnamed {
			_ = dir.Remove(as)
		}
		return explain(err, "write %s", u.show(name))
	}
	if u.came != nil {
		u.came.states[name] = fileState(perm, u.sum.Sum(nil))
	}
	u.done.Files++
	u.done.Bytes += n
	u.note(name)
	return nil
}

// open makes a file, and says as what: what is there keeps its content until the new one is whole. A large one has no
// name, where that can be, before linkAt gives it that one in the folder: nobody takes a part of it for the file, also
// when this program is killed.
func (u *unpacking) open(dir *os.Root, base, name string, size int64, perm os.FileMode) (f, folder *os.File, as string, err error) {
	info, err := dir.Lstat(base)
	switch as = base; {
	case err == nil && info.IsDir():
		return nil, nil, "", failf(Exists, "%s is a directory; the archive has a file of this name", u.show(name))
	case err == nil:
		as = temporaryName()
	}
	if size > copySize {
		if f, folder = u.s.unnamed(dir, perm); f != nil {
			return f, folder, as, nil
		}
	}
	f, err = dir.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, os.ErrExist) && as == base { // somebody has put something there
		as = temporaryName()
		f, err = dir.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	}
	return f, nil, as, err
}

// fill writes a file's content and looks at the archive's growth on the way.
func (u *unpacking) fill(f *os.File, r io.Reader) (n int64, err error) {
	u.sum.Reset()
	for {
		k, rerr := io.ReadFull(r, u.buf)
		if k > 0 {
			if u.came != nil {
				u.sum.Write(u.buf[:k])
			}
			if _, err := f.Write(u.buf[:k]); err != nil {
				return n, err
			}
			n += int64(k)
		}
		switch {
		case errors.Is(rerr, io.EOF), errors.Is(rerr, io.ErrUnexpectedEOF) && k > 0 && u.ended(r):
			return n, nil
		case errors.Is(rerr, io.ErrUnexpectedEOF):
			return n, failf(Invalid, "the body is no whole tar archive: it ends inside a file")
		case rerr != nil:
			return n, rerr
		}
		if err := u.grows(n); err != nil {
			return n, err
		}
	}
}

// ended tells the end of an entry from the end of an archive that was cut.
func (u *unpacking) ended(r io.Reader) bool {
	var b [1]byte
	_, err := r.Read(b[:])
	return errors.Is(err, io.EOF)
}

// grows reports an error when a compressed archive becomes much larger than it
// was.
func (u *unpacking) grows(more int64) error {
	size := u.done.Bytes + more
	if allowed := u.consumed(); size > u.limits.Slack && allowed < math.MaxInt64/u.limits.Ratio && size > allowed*u.limits.Ratio {
		return failf(TooLarge, "the archive grows to more than %d times its size when it is unpacked: send it uncompressed and without holes in files if it is meant so", u.limits.Ratio)
	}
	return nil
}

// symlink makes a link that leads to no place outside, also not over other
// links: its folders are no links, and ".." stands only at its beginning, no
// more often than there are folders above it.
func (u *unpacking) symlink(name string, h *tar.Header) error {
	bad := func(why string) error {
		return failf(Refused, "the archive's entry %q is a symbolic link to %q, %s", h.Name, h.Linkname, why)
	}
	if name == "." {
		return bad("which is none")
	}
	if why := leadsOut(name, h.Linkname); why != "" {
		return bad(why)
	}
	dir, base, err := u.folders.of(name)
	if err != nil {
		return explain(err, "make the folders of %s", u.show(name))
	}
	if err := u.folders.real(name); err != nil {
		return bad("and lies in a folder that is a symbolic link itself")
	}
	if u.came != nil {
		u.came.states[name] = linkState(h.Linkname)
	}
	return u.make(name, dir, base, func(as string) error { return dir.Symlink(h.Linkname, as) })
}

// leadsOut says why a link to target, at name below a folder, leads out of that folder or
// could be made to, "" when it does not.
func leadsOut(name, target string) string {
	slashed := filepath.ToSlash(target)
	if slashed == "" {
		return "which is none"
	}
	if strings.HasPrefix(slashed, "/") || filepath.IsAbs(target) || filepath.VolumeName(target) != "" {
		return "which is absolute"
	}
	up, down := 0, false
	for p := range strings.SplitSeq(slashed, "/") {
		switch {
		case p == "" || p == ".":
		case p != "..":
			down = true
		case down:
			return `which has ".." behind a name and so may leave the folder over other links`
		default:
			up++
		}
	}
	if up > strings.Count(name, "/") {
		return "which leads out of the folder that it is unpacked into"
	}
	return ""
}

// link makes a hard link to a file that is in the folder already.
func (u *unpacking) link(name string, h *tar.Header) error {
	if u.came != nil {
		return u.elsewhere(name, h)
	}
	target, err := local(h.Linkname)
	if err != nil || target == "." || name == "." {
		return failf(Refused, "the archive's entry %q is a hard link to %q, which is not in the archive", h.Name, h.Linkname)
	}
	if err := u.folders.real(target); err != nil {
		return failf(Refused, "the archive's entry %q is a hard link to %q, which is reached over a symbolic link", h.Name, h.Linkname)
	}
	info, err := u.folders.top.Lstat(filepath.FromSlash(target))
	if err != nil {
		return explain(err, "link %s to %s", u.show(name), u.show(target))
	}
	if !info.Mode().IsRegular() {
		return failf(Refused, "the archive's entry %q is a hard link to %q, which is no regular file", h.Name, h.Linkname)
	}
	if err := u.folders.real(name); err != nil {
		return failf(Refused, "the archive's entry %q is a hard link and lies in a folder that is a symbolic link", h.Name)
	}
	dir, base, err := u.folders.of(name)
	if err != nil {
		return explain(err, "make the folders of %s", u.show(name))
	}
	above := strings.TrimSuffix(name, base)
	if err := u.make(name, dir, base, func(as string) error {
		return u.folders.top.Link(filepath.FromSlash(target), filepath.FromSlash(above+as))
	}); err != nil {
		return err
	}
	u.done.Files++
	return nil
}

// elsewhere notes a file whose content is not in the archive.
func (u *unpacking) elsewhere(name string, h *tar.Header) error {
	at := elsewhere{path: h.Linkname, mode: os.FileMode(h.Mode).Perm()}
	sum, err := hex.DecodeString(h.PAXRecords[partSum])
	if copy(at.sum[:], sum); err != nil || len(sum) != sha256.Size || !plainPath(name) || !plainPath(at.path) {
		return failf(Refused, "the archive's entry %q is a hard link, which no workspace has", h.Name)
	}
	if part, ok := h.PAXRecords[partName]; ok {
		if at.part = true; part != at.path || !strings.HasPrefix(part, partLarge) || strings.Count(part, "/") != 1 {
			return failf(Refused, "the archive's entry %q is said to be the part %q", h.Name, part)
		}
	}
	u.came.states[name], u.came.elsewhere[name] = fileState(at.mode, sum), at
	return nil
}

// make makes a link, over a file or link that is there.
func (u *unpacking) make(name string, dir *os.Root, base string, link func(as string) error) error {
	err := link(base)
	if errors.Is(err, os.ErrExist) {
		info, serr := dir.Lstat(base)
		if serr == nil && info.IsDir() {
			return failf(Exists, "%s is a directory; the archive has a link of this name", u.show(name))
		}
		temp := temporaryName()
		if err = link(temp); err == nil {
			if err = dir.Rename(temp, base); err != nil {
				_ = dir.Remove(temp)
			}
			// Renaming a link to the same file does nothing at all.
			_ = dir.Remove(temp)
		}
	}
	if err != nil {
		return explain(err, "make the link %s", u.show(name))
	}
	u.note(name)
	return nil
}

func (u *unpacking) note(name string) {
	if len(u.done.Paths) == shownPaths {
		u.done.Truncated = true
		return
	}
	u.done.Paths = append(u.done.Paths, u.show(name))
}

func (u *unpacking) show(name string) string { return filepath.Join(u.path, filepath.FromSlash(name)) }
