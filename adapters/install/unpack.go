package install

import (
	"archive/tar"
	"archive/zip"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxEntries bounds the number of files in an archive.
const maxEntries = 200_000

// format is how a file is packed, by its name.
func format(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), "?")
	for _, f := range []struct{ suffix, format string }{
		{".tar.gz", "tar.gz"},
		{".tgz", "tar.gz"},
		{".tar.bz2", "tar.bz2"},
		{".tbz2", "tar.bz2"},
		{".zip", "zip"},
		{".tar.xz", "unknown"},
		{".txz", "unknown"},
		{".tar.zst", "unknown"},
		{".7z", "unknown"},
		{".dmg", "unknown"},
		{".pkg", "unknown"},
		{".deb", "unknown"},
		{".rpm", "unknown"},
	} {
		if strings.HasSuffix(name, f.suffix) {
			return f.format
		}
	}
	return "raw"
}

// archive is one archive being unpacked. Nothing is written outside root: the
// operating system resolves every name below it. Links are made when all files
// are written, so that nothing is ever written through one.
type archive struct {
	ended func() error // why the call ended, nil while it goes on
	root  *os.Root
	left  int64 // bytes that may still be written
	files int
	wrote int64
	say   *reporter
	links []link
}

type link struct {
	name, target string
	hard         bool
}

// unpack unpacks the file src, packed as format says, into the existing
// directory dir. Modes are kept, without set-id bits.
func (in *Installer) unpack(ctx context.Context, src, format, dir string, say *reporter) (err error) {
	say.step(StepUnpack, filepath.Base(src))
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() { _ = root.Close() }()
	f, err := os.Open(src)
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	defer func() { _ = f.Close() }()
	a := &archive{ended: func() error { return context.Cause(ctx) }, root: root, left: in.maxUnpacked, say: say}
	switch format {
	case "tar.gz":
		var z *gzip.Reader
		if z, err = gzip.NewReader(f); err == nil {
			err = a.tar(z)
		}
	case "tar.bz2":
		err = a.tar(bzip2.NewReader(f))
	case "zip":
		err = a.zip(f)
	default:
		err = errors.New("this kind of archive is not supported")
	}
	if err == nil {
		err = a.link()
	}
	if err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(src), err)
	}
	return nil
}

func (a *archive) tar(r io.Reader) error {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			// What follows the last entry is padding; reading it checks the
			// compressor's own checksum.
			_, err = io.Copy(io.Discard, io.LimitReader(r, 1<<20))
			return err
		}
		if err != nil {
			return err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = a.dir(h.Name)
		case tar.TypeReg:
			err = a.file(h.Name, h.FileInfo().Mode(), t)
		case tar.TypeSymlink:
			err = a.later(link{name: h.Name, target: h.Linkname})
		case tar.TypeLink:
			err = a.later(link{name: h.Name, target: h.Linkname, hard: true})
		case tar.TypeXGlobalHeader:
		default:
			err = fmt.Errorf("entry %q is neither file, directory nor link", h.Name)
		}
		if err != nil {
			return err
		}
	}
}

func (a *archive) zip(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	z, err := zip.NewReader(f, info.Size())
	if err != nil {
		return err
	}
	for _, e := range z.File {
		if err := a.zipped(e); err != nil {
			return err
		}
	}
	return nil
}

func (a *archive) zipped(e *zip.File) error {
	mode := e.Mode()
	if mode.IsDir() {
		return a.dir(e.Name)
	}
	if !mode.IsRegular() && mode.Type() != fs.ModeSymlink {
		return fmt.Errorf("entry %q is neither file, directory nor link", e.Name)
	}
	r, err := e.Open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if mode.IsRegular() {
		return a.file(e.Name, mode, r)
	}
	target, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return err
	}
	return a.later(link{name: e.Name, target: string(target)})
}

// clean returns an entry's name in the form of this system, or an error if it
// does not lie below the root.
func (a *archive) clean(name string) (string, error) {
	if err := a.ended(); err != nil {
		return "", err
	}
	if a.files++; a.files > maxEntries {
		return "", fmt.Errorf("more than %d entries: %w", maxEntries, errTooLarge)
	}
	local := filepath.FromSlash(strings.TrimSuffix(name, "/"))
	if !filepath.IsLocal(local) || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("entry %q lies outside the archive's directory; the archive is refused", name)
	}
	return filepath.Clean(local), nil
}

func (a *archive) dir(name string) error {
	name, err := a.clean(name)
	if err != nil || name == "." {
		return err
	}
	return a.root.MkdirAll(name, 0o755)
}

func (a *archive) file(name string, mode fs.FileMode, r io.Reader) error {
	name, err := a.clean(name)
	if err != nil {
		return err
	}
	if err := a.root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	// O_EXCL: an archive that names a file twice is refused.
	f, err := a.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = a.copy(f, r)
	if err == nil {
		err = f.Chmod(mode.Perm() | 0o600)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (a *archive) copy(w io.Writer, r io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if a.left -= int64(n); a.left < 0 {
				return fmt.Errorf("unpacked it would be %w", errTooLarge)
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			a.wrote += int64(n)
			a.say.count(a.wrote, 0)
		}
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = a.ended()
		}
		if err != nil {
			return err
		}
	}
}

// later notes a link whose target lies inside the archive.
func (a *archive) later(l link) error {
	name, err := a.clean(l.name)
	if err != nil {
		return err
	}
	inside := filepath.FromSlash(l.target)
	if !l.hard {
		inside = filepath.Join(filepath.Dir(name), inside)
	}
	if path.IsAbs(l.target) || l.target == "" || !filepath.IsLocal(inside) {
		return fmt.Errorf("entry %q links to %q outside the archive's directory; the archive is refused", l.name, l.target)
	}
	a.links = append(a.links, link{name: name, target: l.target, hard: l.hard})
	return nil
}

// link makes the links: hard ones first, which are other names of files.
func (a *archive) link() error {
	for _, hard := range []bool{true, false} {
		for _, l := range a.links {
			if l.hard != hard {
				continue
			}
			// A parent that is a link by now is followed only inside the root.
			if err := a.root.MkdirAll(filepath.Dir(l.name), 0o755); err != nil {
				return err
			}
			var err error
			if hard {
				err = a.root.Link(filepath.Clean(filepath.FromSlash(l.target)), l.name)
			} else {
				err = a.root.Symlink(l.target, l.name)
			}
			if err != nil {
				return err
			}
		}
	}
	// Links through links may lead further than each of them says.
	for _, l := range a.links {
		if _, err := a.root.Stat(l.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("entry %q links to %q; the archive is refused: %w", l.name, l.target, err)
		}
	}
	return nil
}
