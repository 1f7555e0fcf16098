package codex

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Traveller = Adapter{}

// rolloutForm is the form of a rollout's name below the folder of all of them: the day,
// the time, and the thread.
var rolloutForm = pattern.New(`^(\d{4})/(\d\d)/(\d\d)/rollout-[0-9T-]{1,40}-([0-9a-f-]{36})\.jsonl$`)

// Export implements [adapters.Traveller]: the rollout of a session's thread.
func (Adapter) Export(ctx context.Context, t adapters.Travel, put adapters.Put) error {
	known, _ := newStore(t.StateDir).Load(t.SessionID)
	thread := bridge.FirstOf(known.Thread, t.SessionID)
	if !bridge.IsUUID(thread) {
		return nil
	}
	dir := filepath.Join(home(bridge.Environ(t.Options, nil)), "sessions")
	found, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", "rollout-*-"+thread+".jsonl"))
	if err != nil {
		return fmt.Errorf("look for codex's rollout: %w", err)
	}
	for _, f := range found {
		rel, err := filepath.Rel(dir, f)
		if err != nil {
			return fmt.Errorf("look for codex's rollout: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := bridge.PutFile(put, filepath.ToSlash(rel), f); err != nil {
			return err
		}
	}
	return nil
}

// Import implements [adapters.Traveller]. Codex finds a rollout by its name.
func (Adapter) Import(ctx context.Context, t adapters.Travel, files fs.FS) (undo func() error, err error) {
	dir := filepath.Join(home(bridge.Environ(t.Options, nil)), "sessions")
	remembered := newStore(t.StateDir)
	_, had := remembered.Load(t.SessionID)
	var placed bridge.Placed
	undo = func() error {
		err := placed.Undo()
		if !had {
			err = errors.Join(err, remembered.Forget(t.SessionID))
		}
		return err
	}
	thread := ""
	err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		m := rolloutForm.FindStringSubmatch(name)
		if m == nil || !bridge.IsUUID(m[4]) || thread != "" && thread != m[4] {
			return fmt.Errorf("%q is not the name of a rollout of codex", name)
		}
		thread = m[4]
		if err := ctx.Err(); err != nil {
			return err
		}
		return placed.File(files, name, filepath.Join(dir, filepath.FromSlash(name)))
	})
	if err == nil && thread == "" {
		err = errors.New("codex's files have no rollout")
	}
	if err == nil {
		err = remembered.Change(t.SessionID, func(r *record) {
			r.Cwd, r.Made, r.Thread, r.Granted = t.Cwd, true, "", nil
			if thread != t.SessionID {
				r.Thread = thread
			}
		})
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}
