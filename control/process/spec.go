package process

import (
	"errors"
	iofs "io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Spec says what to run.
type Spec struct {
	Command string // a name, looked up in the PATH that the program gets, or a path
	Args    []string
	Dir     string            // absolute
	Env     map[string]string // added to the gateway's own; "" takes a variable away
	// TTY gives the program a terminal of this size; 0 is 80 by 24.
	TTY        bool
	Cols, Rows int
	// Hidden keeps the process out of lists, as something of another owner's. Who
	// knows its id can look at it.
	Hidden bool
}

const (
	maxArgs     = 4096
	maxArgBytes = 1 << 20 // of all arguments and variables; systems allow about two
	maxSide     = 10000   // of a terminal
)

// prepared is a Spec that can be started.
type prepared struct {
	path string
	env  []string
}

func (s *Spec) prepare(own []string) (prepared, error) {
	var p prepared
	switch {
	case s.Command == "":
		return p, errorf(Invalid, "command is missing: what to run")
	case len(s.Args) > maxArgs:
		return p, errorf(Invalid, "there are %d arguments, at most %d", len(s.Args), maxArgs)
	case !filepath.IsAbs(s.Dir):
		return p, errorf(Invalid, "the directory %q is not absolute", s.Dir)
	}
	if s.TTY {
		if s.Cols == 0 && s.Rows == 0 {
			s.Cols, s.Rows = 80, 24
		}
		if err := checkSize(s.Cols, s.Rows); err != nil {
			return p, err
		}
	}
	size := len(s.Command)
	for _, a := range append([]string{s.Command}, s.Args...) {
		if strings.IndexByte(a, 0) >= 0 {
			return p, errorf(Invalid, "the argument %q has a zero byte, which no program can be given", a)
		}
		size += len(a)
	}
	// A variable that is set replaces the gateway's own.
	p.env = slices.DeleteFunc(slices.Clone(own), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, set := s.Env[name]
		return set
	})
	if s.TTY {
		if _, set := s.Env["TERM"]; !set {
			p.env = slices.DeleteFunc(p.env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") })
			p.env = append(p.env, "TERM=xterm-256color")
		}
	}
	for name, v := range s.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(v, 0) >= 0 {
			return p, errorf(Invalid, "env has names without = and values without zero bytes; %q is not one", name)
		}
		size += len(name) + len(v)
		if v != "" {
			p.env = append(p.env, name+"="+v)
		}
	}
	if size > maxArgBytes {
		return p, errorf(Invalid, "arguments and env have %d bytes, at most %d: write them to a file", size, maxArgBytes)
	}
	if info, err := os.Stat(s.Dir); err != nil || !info.IsDir() {
		return p, errorf(NoProgram, "cannot start in %s: %s", s.Dir, notDirectory(err))
	}
	var err error
	p.path, err = s.find(p.env)
	return p, err
}

func notDirectory(err error) string {
	switch {
	case err == nil:
		return "it is not a directory"
	case errors.Is(err, iofs.ErrNotExist):
		return "there is no such directory"
	}
	if pe, ok := errors.AsType[*iofs.PathError](err); ok {
		err = pe.Err
	}
	return err.Error()
}

// find returns the program's path, as a shell in the directory would find it.
func (s *Spec) find(env []string) (string, error) {
	if strings.Contains(s.Command, "/") {
		path := s.Command
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.Dir, path)
		}
		info, err := os.Stat(path)
		switch {
		case err != nil && errors.Is(err, iofs.ErrNotExist):
			return "", errorf(NoProgram, "there is no program %s", path)
		case err != nil:
			return "", wrap(Denied, err, "find the program")
		case info.IsDir():
			return "", errorf(Invalid, "%s is a directory, not a program", path)
		case info.Mode()&0o111 == 0:
			return "", errorf(Denied, "%s is not executable: make it so, or run it by its interpreter", path)
		}
		return path, nil
	}
	dirs := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = v
		}
	}
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) {
			continue // what lies in the directory is run by its path only
		}
		path := filepath.Join(dir, s.Command)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errorf(NoProgram, "there is no program %q in the PATH; a command line goes to a shell, as sh with the arguments -c and the line", s.Command)
}

func checkSize(cols, rows int) error {
	if cols < 1 || rows < 1 || cols > maxSide || rows > maxSide {
		return errorf(Invalid, "a terminal has between 1 and %d columns and rows, not %d by %d", maxSide, cols, rows)
	}
	return nil
}
