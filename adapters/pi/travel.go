package pi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Traveller = Adapter{}

// fileForm is the form of the names of Pi's files: the time, and the id.
var fileForm = pattern.New(`^[0-9TZ-]{1,40}_([A-Za-z0-9._-]{1,128})\.jsonl$`)

// Export implements [adapters.Traveller]: the file of a session's conversation.
func (Adapter) Export(_ context.Context, t adapters.Travel, put adapters.Put) error {
	known, _ := newStore(t.StateDir).Load(t.SessionID)
	file, err := conversationsOf(bridge.Environ(t.Options, nil)).of(&known, t.SessionID)
	if err != nil {
		return nil // Pi makes the file with the first message
	}
	return bridge.PutFile(put, filepath.Base(file), file)
}

// Import implements [adapters.Traveller].
func (Adapter) Import(_ context.Context, t adapters.Travel, files fs.FS) (undo func() error, err error) {
	env := bridge.Environ(t.Options, nil)
	at := conversationsOf(env)
	names, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read pi's files: %w", err)
	}
	if len(names) != 1 || !fileForm.MatchString(names[0].Name()) || !idForm.MatchString(t.SessionID) {
		return nil, errors.New("pi's files are not one conversation, with a name that has its time and its id")
	}
	if at.dir == "" {
		return nil, errors.New("pi has no folder of its own: HOME is not set")
	}
	name, dir := names[0].Name(), at.dir
	if dir == filepath.Join(at.config, "sessions") {
		dir = filepath.Join(dir, folderOf(t.Cwd))
	}
	var placed bridge.Placed
	to := filepath.Join(dir, name)
	if err := placed.File(files, name, to); err != nil {
		return nil, err
	}
	remembered := newStore(t.StateDir)
	_, had := remembered.Load(t.SessionID)
	undo = func() error {
		err := placed.Undo()
		if !had {
			err = errors.Join(err, remembered.Forget(t.SessionID))
		}
		return err
	}
	if err = at.check(to, "", t.Cwd); err == nil {
		err = remembered.Change(t.SessionID, func(r *record) { r.Cwd, r.Made, r.File, r.Theirs, r.Granted = t.Cwd, true, to, false, nil })
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// folderOf is the name of the folder that Pi has for a directory.
func folderOf(cwd string) string {
	return "--" + strings.NewReplacer("/", "-", `\`, "-", ":", "-").Replace(strings.TrimLeft(cwd, `/\`)) + "--"
}
