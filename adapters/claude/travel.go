package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Traveller = Adapter{}

// travelFile says which conversations there are and what else is known of the session.
const travelFile = "session.json"

// luggage is what travelFile holds.
type luggage struct {
	Native []string `json:"native,omitempty"`
	Cost   float64  `json:"cost,omitempty"`
}

// Export implements [adapters.Traveller]: the transcripts of a session, with what its
// subagents and tools have left beside them. Rules and folders that somebody has allowed
// stay here.
func (Adapter) Export(ctx context.Context, t adapters.Travel, put adapters.Put) error {
	if !bridge.IsUUID(t.SessionID) {
		return nil
	}
	files := transcriptsOf(bridge.Environ(t.Options, nil))
	known, _ := newStore(t.StateDir).Load(t.SessionID)
	some := false
	for _, id := range append([]string{t.SessionID}, known.Native...) {
		file, err := files.find(id, "")
		if err != nil {
			continue // nothing was said under this id
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		some = true
		if err := bridge.PutFile(put, id+".jsonl", file); err != nil {
			return err
		}
		if err := bridge.PutFolder(put, id, strings.TrimSuffix(file, ".jsonl")); err != nil {
			return err
		}
	}
	if !some {
		return nil
	}
	b, err := schema.Encode(luggage{known.Native, known.Cost})
	if err != nil {
		return fmt.Errorf("encode what is known of a session: %w", err)
	}
	return put(travelFile, bytes.NewReader(b))
}

// Import implements [adapters.Traveller].
func (Adapter) Import(ctx context.Context, t adapters.Travel, files fs.FS) (undo func() error, err error) {
	if !bridge.IsUUID(t.SessionID) {
		return nil, fmt.Errorf("claude's id of a session is a UUID, not %q", t.SessionID)
	}
	b, err := fs.ReadFile(files, travelFile)
	var bag luggage
	if err != nil || json.Unmarshal(b, &bag) != nil {
		return nil, fmt.Errorf("%s of claude's files cannot be read", travelFile)
	}
	at := transcriptsOf(bridge.Environ(t.Options, nil))
	if at.projects == "" {
		return nil, errors.New("claude has no folder of its own: HOME is not set")
	}
	cwd := t.Cwd
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		cwd = real
	}
	folder := folderOf(cwd)
	if len(folder) > maxFolder {
		return nil, fmt.Errorf("claude names the folder of a directory with more than %d letters in a way of its own: choose a directory with a shorter path than %s", maxFolder, cwd)
	}
	var placed bridge.Placed
	remembered := newStore(t.StateDir)
	_, had := remembered.Load(t.SessionID)
	undo = func() error {
		err := placed.Undo()
		if !had {
			err = errors.Join(err, remembered.Forget(t.SessionID))
		}
		return err
	}
	for _, id := range append([]string{t.SessionID}, bag.Native...) {
		if !bridge.IsUUID(id) {
			err = fmt.Errorf("claude's id of a conversation is a UUID, not %q", id)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = placed.Folder(files, id, filepath.Join(at.projects, folder, id))
		}
		if _, missing := fs.Stat(files, id+".jsonl"); err == nil && missing == nil {
			err = placed.File(files, id+".jsonl", filepath.Join(at.projects, folder, id+".jsonl"))
		}
		if err != nil {
			return nil, errors.Join(err, undo())
		}
	}
	err = remembered.Change(t.SessionID, func(r *record) {
		r.Cwd, r.Made, r.Native, r.Cost, r.Granted = t.Cwd, true, bag.Native, bag.Cost, nil
	})
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}
