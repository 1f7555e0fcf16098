package cmdline

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"os"
	"path/filepath"
)

// mostLinks bounds how many links to links Place follows, as systems do.
const mostLinks = 40

// Save has a file written, which is named in notes, or out for "" and "-". What is written stands
// beside it first, so that a part never stands where a whole is expected. What Place says is to be
// written into gets it as it comes.
func Save(file, what string, out, notes io.Writer, write func(io.Writer) error) error {
	if file == "" || file == "-" {
		return write(out)
	}
	place, into, err := Place(file)
	if err == nil && into != nil {
		err = errors.Join(write(into), into.Close())
	} else if err == nil {
		err = replace(place, write)
	}
	if err != nil {
		return fmt.Errorf("write %s to %s: %w", what, file, err)
	}
	fmt.Fprintf(notes, "wrote %s\n", file)
	return nil
}

// Place says where a file that a user names is. Links are followed, also to what does not exist yet:
// a rename must replace what a link leads to, never the link. What exists and is no regular file,
// as a device or a pipe, must not be replaced at all: it comes opened, to be written into, and the
// caller closes it. The opening of a named pipe waits for its reader.
func Place(file string) (place string, into *os.File, err error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		into, err := os.OpenFile(file, os.O_WRONLY, 0)
		return file, into, err
	}
	place = file
	for range mostLinks {
		info, err := os.Lstat(place)
		if errors.Is(err, iofs.ErrNotExist) || err == nil && info.Mode()&iofs.ModeSymlink == 0 {
			dir := filepath.Dir(place)
			if _, err := os.Stat(dir); errors.Is(err, iofs.ErrNotExist) {
				return "", nil, fmt.Errorf("there is no folder %s", dir)
			}
			return place, nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		to, err := os.Readlink(place)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(place)) // .. of a link to a folder is that folder's
			if err != nil {
				return "", nil, err
			}
			to = filepath.Join(dir, to)
		}
		place = to
	}
	return "", nil, &os.PathError{Op: "follow", Path: file, Err: errors.New("too many links")}
}

// Replaced returns the permissions of the file that something is to take the place of, and keeps.
func Replaced(place string) (perm os.FileMode, ok bool) {
	old, err := os.Stat(place)
	if err != nil {
		return 0, false
	}
	return old.Mode().Perm(), true
}

// replace writes a file beside the one of this name, and puts it there once it is whole.
func replace(file string, write func(io.Writer) error) error {
	part, err := os.CreateTemp(filepath.Dir(file), ".sandbox-agent-*")
	if err != nil {
		return err
	}
	err = write(part)
	if perm, ok := Replaced(file); ok && err == nil {
		err = part.Chmod(perm)
	}
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}
