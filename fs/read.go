package fs

import "os"

// Open opens a regular file for reading and describes it. The caller closes it.
func (s *Service) Open(path string) (*os.File, Entry, error) {
	name, err := s.name(path)
	if err != nil {
		return nil, Entry{}, err
	}
	f, info, err := s.open(name)
	if err != nil {
		return nil, Entry{}, explain(err, "open %s", path)
	}
	if !info.Mode().IsRegular() {
		_ = f.Close()
		return nil, Entry{}, failf(NotFile, "%s is %s and not a regular file", path, article(typeOf(info.Mode())))
	}
	return f, entryOf(path, info), nil
}

// open opens what is at name for reading, without waiting for anybody.
func (s *Service) open(name string) (*os.File, os.FileInfo, error) {
	// Looked at first: opening some devices does something.
	info, err := s.tree().Stat(name)
	if err != nil {
		return nil, nil, err
	}
	if t := typeOf(info.Mode()); t == Other {
		return nil, nil, failf(NotFile, "%s is a device, a pipe or a socket", name)
	}
	f, err := s.tree().OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err == nil && s.confined() && inProc(f) {
		err = failf(Escapes, "%s is in the process file system, which is not for clients of a server that is confined to a root", name)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func article(t Type) string {
	switch t {
	case Directory:
		return "a directory"
	case Symlink:
		return "a symbolic link"
	case File:
		return "a file"
	}
	return "a device, a pipe or a socket"
}
