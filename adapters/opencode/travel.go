package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Traveller = Adapter{}

const (
	travelBound = 60 * time.Second // for the program to write or read one session
	// maxTravelling bounds the sessions of subagents that travel with one; those of
	// more are left behind, and their results are in the session.
	maxTravelling = 256
)

// exported is what is looked at of what the program writes of a session.
type exported struct {
	Info struct {
		ID string `json:"id"`
	} `json:"info"`
	Messages []struct {
		Info struct {
			ID string `json:"id"`
		} `json:"info"`
		Parts []struct {
			Tool  string `json:"tool"`
			State struct {
				Metadata struct {
					SessionID string `json:"sessionId"`
				} `json:"metadata"`
			} `json:"state"`
		} `json:"parts"`
	} `json:"messages"`
}

func readExported(path string) (*exported, error) {
	b, err := os.ReadFile(path)
	e := new(exported)
	if err == nil {
		err = json.Unmarshal(b, e)
	}
	if err != nil {
		return nil, fmt.Errorf("read opencode's export of a session: %w", err)
	}
	return e, nil
}

// run has the program do one thing in a directory, with its output in a file: it cuts
// what it writes to a pipe.
func (Adapter) run(ctx context.Context, t adapters.Travel, dir string, out *os.File, args ...string) error {
	if t.Program.Path == "" {
		return &adapters.NotInstalledError{Agent: ID, Remedy: "install it with `sandbox-agent agents install opencode`: it keeps sessions in a database of its own"}
	}
	ctx, cancel := bridge.Within(ctx, travelBound)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.Program.Path, append(append([]string{}, t.Program.Args...), args...)...)
	cmd.Env = bridge.Environ(t.Options, nil, "OPENCODE_DISABLE_AUTOUPDATE=1")
	cmd.Dir = dir
	var said bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &said, time.Second
	if out != nil {
		cmd.Stdout = out
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("opencode %s: %w: %s", args[0], err, bridge.OneLine(said.String()))
	}
	return nil
}

// export writes a session into a new file of dir. The path is "" when the program has
// none of that id.
func (a Adapter) export(ctx context.Context, t adapters.Travel, dir, id string) (path string, err error) {
	f, err := os.CreateTemp(dir, "session-*.json")
	if err != nil {
		return "", fmt.Errorf("make a file for opencode's export: %w", err)
	}
	err = a.run(ctx, t, dir, f, "export", "--pure", id)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil && strings.Contains(err.Error(), "not found") {
		return "", nil
	}
	return f.Name(), err
}

// Export implements [adapters.Traveller]: what the program exports of a session, and of
// those of its subagents.
func (a Adapter) Export(ctx context.Context, t adapters.Travel, put adapters.Put) error {
	if !native.MatchString(t.SessionID) {
		return nil
	}
	dir, err := os.MkdirTemp(t.Temp, "opencode-export-")
	if err != nil {
		return fmt.Errorf("make a folder for opencode's export: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	known := map[string]bool{t.SessionID: true}
	for list := []string{t.SessionID}; len(list) > 0; list = list[1:] {
		path, err := a.export(ctx, t, dir, list[0])
		if err != nil {
			return err
		}
		if path == "" {
			continue // a subagent's, that somebody has deleted
		}
		e, err := readExported(path)
		if err != nil {
			return err
		}
		if len(e.Messages) == 0 {
			continue // nothing was said
		}
		for _, m := range e.Messages {
			for _, p := range m.Parts {
				if id := p.State.Metadata.SessionID; p.Tool == "task" && native.MatchString(id) && !known[id] && len(known) < maxTravelling {
					known[id], list = true, append(list, id)
				}
			}
		}
		if err := bridge.PutFile(put, list[0]+".json", path); err != nil {
			return err
		}
	}
	return nil
}

// Import implements [adapters.Traveller].
func (a Adapter) Import(ctx context.Context, t adapters.Travel, files fs.FS) (undo func() error, err error) {
	if !native.MatchString(t.SessionID) {
		return nil, fmt.Errorf("opencode's id of a session begins with ses_, unlike %q", t.SessionID)
	}
	cwd, err := filepath.EvalSymlinks(t.Cwd) // OpenCode knows directories by their real names
	if err != nil {
		return nil, fmt.Errorf("find the session's directory: %w", err)
	}
	dir, err := os.MkdirTemp(t.Temp, "opencode-import-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for opencode's import: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	list, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("read opencode's files: %w", err)
	}
	store := newStore(t.StateDir)
	_, had := store.Load(t.SessionID)
	var made []string
	undo = func() error {
		var errs []error
		for _, id := range made {
			errs = append(errs, a.run(context.WithoutCancel(ctx), t, cwd, nil, "session", "delete", "--pure", id))
		}
		if !had {
			errs = append(errs, store.Forget(t.SessionID))
		}
		return errors.Join(errs...)
	}
	found := false
	for _, f := range list {
		id, isJSON := strings.CutSuffix(f.Name(), ".json")
		if !isJSON || !native.MatchString(id) || len(list) > maxTravelling {
			err = fmt.Errorf("%q is not one of at most %d exported sessions of opencode", f.Name(), maxTravelling)
		}
		isNew := false
		if err == nil {
			isNew, err = a.place(ctx, t, files, f.Name(), dir, cwd, id)
		}
		if err != nil {
			return nil, errors.Join(err, undo())
		}
		if isNew {
			made = append(made, id)
		}
		found = found || id == t.SessionID
	}
	if !found {
		return nil, errors.Join(errors.New("opencode's files do not have the session"), undo())
	}
	if err := store.Change(t.SessionID, func(r *record) { r.Made, r.Granted = true, nil }); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// place has the program import one session, and reports whether it did not have it.
func (a Adapter) place(ctx context.Context, t adapters.Travel, files fs.FS, name, dir, cwd, id string) (isNew bool, err error) {
	in, err := files.Open(name)
	if err != nil {
		return false, fmt.Errorf("read opencode's files: %w", err)
	}
	defer func() { _ = in.Close() }()
	path := filepath.Join(dir, name)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, fmt.Errorf("write what opencode imports: %w", err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return false, fmt.Errorf("write what opencode imports: %w", err)
	}
	coming, err := readExported(path)
	if err != nil {
		return false, err
	}
	if coming.Info.ID != id {
		return false, fmt.Errorf("%s is of session %q", name, coming.Info.ID)
	}
	was, err := a.export(ctx, t, dir, id)
	if err != nil {
		return false, err
	}
	if was != "" {
		there, err := readExported(was)
		if err != nil {
			return false, err
		}
		for i, m := range there.Messages {
			if i < len(coming.Messages) && coming.Messages[i].Info.ID != m.Info.ID {
				return false, fmt.Errorf("%w: opencode's session %s is another one: delete it with `opencode session delete %s`", adapters.ErrHere, id, id)
			}
		}
		if len(there.Messages) >= len(coming.Messages) {
			return false, nil
		}
	}
	return was == "", a.run(ctx, t, cwd, nil, "import", "--pure", path)
}
