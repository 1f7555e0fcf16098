package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// PutFile puts one file of what an agent keeps. One that does not exist is nothing.
func PutFile(put adapters.Put, name, from string) error {
	f, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read what the agent keeps: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return put(name, f)
}

// PutFolder puts the regular files below a folder, if there is one.
func PutFolder(put adapters.Put, name, from string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && p == from && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("read what the agent keeps: %w", err)
		case !d.Type().IsRegular():
			return nil
		}
		rel, err := filepath.Rel(from, p)
		if err != nil {
			return fmt.Errorf("read what the agent keeps: %w", err)
		}
		return PutFile(put, path.Join(name, filepath.ToSlash(rel)), p)
	})
}

// Placed is files that were put where an agent looks for them. Its zero value is none.
type Placed struct {
	made []string // files that were not there before
}

// File writes one file of files to a place. What stands there stays if it is the same, or
// goes on from it; it is replaced if the new one goes on from it; else the error matches
// [adapters.ErrHere].
func (p *Placed) File(files fs.FS, name, to string) error {
	from, err := files.Open(name)
	if err != nil {
		return fmt.Errorf("place what the agent keeps: %w", err)
	}
	defer func() { _ = from.Close() }()
	there, err := os.Open(to)
	isNew := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil:
		longer, err := goesOn(there, from)
		_ = there.Close()
		if err != nil {
			return fmt.Errorf("%w: %s is another one: delete it, or take the session to another home directory", err, to)
		}
		if !longer {
			return nil
		}
		_ = from.Close()
		if from, err = files.Open(name); err != nil {
			return fmt.Errorf("place what the agent keeps: %w", err)
		}
	case !isNew:
		return fmt.Errorf("place what the agent keeps: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("place what the agent keeps: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(to), ".import-*")
	if err != nil {
		return fmt.Errorf("place what the agent keeps: %w", err)
	}
	_, err = io.Copy(out, from)
	if err = errors.Join(err, out.Close()); err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("place what the agent keeps: %w", err), os.Remove(out.Name()))
	}
	if isNew {
		p.made = append(p.made, to)
	}
	return nil
}

// Folder writes the files below a folder of files to a place.
func (p *Placed) Folder(files fs.FS, name, to string) error {
	return fs.WalkDir(files, name, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && at == name && errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir():
			return nil
		}
		rel, err := filepath.Rel(filepath.FromSlash(name), filepath.FromSlash(at))
		if err != nil {
			return err
		}
		return p.File(files, at, filepath.Join(to, rel))
	})
}

// Undo takes the files away that were not there before.
func (p *Placed) Undo() error {
	var errs []error
	for _, f := range slices.Backward(p.made) {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	p.made = nil
	return errors.Join(errs...)
}

// goesOn compares two texts of which one must begin with the other, and reports whether
// the second is longer.
func goesOn(there, coming io.Reader) (longer bool, err error) {
	const size = 64 << 10
	a, b := make([]byte, size), make([]byte, size)
	for {
		n, errA := io.ReadFull(there, a)
		m, errB := io.ReadFull(coming, b)
		if both := min(n, m); !bytes.Equal(a[:both], b[:both]) {
			return false, adapters.ErrHere
		}
		for _, err := range []error{errA, errB} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if errA != nil || errB != nil {
			return m > n, nil
		}
	}
}
