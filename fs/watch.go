package fs

import "context"

// ChangeType says what happened.
type ChangeType string

// The types of changes.
const (
	Created  ChangeType = "created"
	Modified ChangeType = "modified" // a file was written and closed, or replaced
	Removed  ChangeType = "removed"
	Renamed  ChangeType = "renamed"
	// Overflow says that changes came faster than they were taken and some are
	// lost: look at the folder anew.
	Overflow ChangeType = "overflow"
)

// Change is one change in a watched folder.
type Change struct {
	Type    ChangeType `json:"type"`
	Path    string     `json:"path,omitempty"`
	RawPath []byte     `json:"rawPath,omitempty"` // as of Entry
	From    string     `json:"from,omitempty"`    // the old path of what was renamed
	Folder  bool       `json:"folder,omitempty"`
}

// WatchOptions say what is watched.
type WatchOptions struct {
	Recursive bool
	Hidden    bool // also names that begin with a dot
	// Ready, if not nil, is called once, when every later change will be told.
	Ready func()
}

// Watch calls emit for each change in the folder at path until ctx ends, emit
// fails, or the folder is gone, which is no error. Changes are kept in the
// system's queue while emit is busy; when that is full, an Overflow follows. Who is far behind is told what has happened
// by the paths that things had then.
// What is in a folder that appears may be told more than once.
func (s *Service) Watch(ctx context.Context, path string, o WatchOptions, emit func(Change) error) error {
	name, err := s.name(path)
	if err != nil {
		return err
	}
	return explain(s.watch(ctx, path, name, o, emit), "watch %s", path)
}
