package agent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The files of a session's directory.
const (
	infoFile = "session.json"
	logFile  = "updates.jsonl" // one params.update per line
)

// store keeps sessions in a directory.
type store struct{ dir string }

// info is what a session is apart from its updates.
type info struct {
	Cwd         string            `json:"cwd"`
	Directories []string          `json:"additionalDirectories,omitempty"`
	Title       string            `json:"title,omitempty"`
	UpdatedAt   time.Time         `json:"updatedAt"`
	Turns       int               `json:"turns"`
	Config      map[string]string `json:"config"`
	Granted     bridge.Grants     `json:"granted,omitempty"` // what the client has always allowed
}

func (st *store) create(cwd string, dirs []string) (*session, error) {
	return st.make(info{Cwd: cwd, Directories: dirs, UpdatedAt: time.Now(), Config: defaultConfig()}, nil)
}

func (st *store) make(in info, log []byte) (*session, error) {
	id := schema.SessionID("mock-" + strings.ToLower(rand.Text()))
	dir := filepath.Join(st.dir, string(id))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, logFile), log, 0o600); err != nil {
		return nil, err
	}
	if err := in.save(dir); err != nil {
		return nil, err
	}
	return st.open(id)
}

// open opens a session. A torn last line of its log is dropped.
func (st *store) open(id schema.SessionID) (*session, error) {
	in, err := st.info(id)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(st.dir, string(id))
	f, err := os.OpenFile(filepath.Join(dir, logFile), os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	if err == nil {
		err = f.Truncate(int64(bytes.LastIndexByte(b, '\n') + 1))
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("open log of %s: %w", id, err)
	}
	return &session{id: id, dir: dir, log: f, info: in, stop: make(chan struct{})}, nil
}

func (st *store) info(id schema.SessionID) (info, error) {
	var in info
	if !validID(id) {
		return in, notFound(id)
	}
	b, err := os.ReadFile(filepath.Join(st.dir, string(id), infoFile))
	if errors.Is(err, os.ErrNotExist) {
		return in, notFound(id)
	}
	if err != nil {
		return in, err
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return in, fmt.Errorf("read session %s: %w", id, err)
	}
	return in, nil
}

// validID keeps ids of others from being paths.
func validID(id schema.SessionID) bool {
	rest, ok := strings.CutPrefix(string(id), "mock-")
	return ok && rest != "" && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func (st *store) fork(id schema.SessionID, cwd string, dirs []string) (*session, error) {
	in, err := st.info(id)
	if err != nil {
		return nil, err
	}
	log, err := os.ReadFile(filepath.Join(st.dir, string(id), logFile))
	if err != nil {
		return nil, err
	}
	in.Cwd, in.Directories, in.UpdatedAt, in.Granted = cwd, dirs, time.Now(), nil
	return st.make(in, log)
}

// Grants are what clients have always allowed in a session that is kept in a directory.
func Grants(dir, session string) []adapters.Grant {
	in, _ := (&store{dir: dir}).info(schema.SessionID(session))
	return in.Granted.List()
}

// Forget takes some of that back, of a session that is not open.
func Forget(dir, session string, ids []string) error {
	in, err := (&store{dir: dir}).info(schema.SessionID(session))
	if err != nil {
		return err
	}
	in.Granted.Forget(ids)
	return in.save(filepath.Join(dir, session))
}

func (st *store) remove(id schema.SessionID) error {
	if _, err := st.info(id); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(st.dir, string(id)))
}

// list returns the sessions, the latest first.
func (st *store) list() ([]schema.SessionInfo, error) {
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		return nil, err
	}
	type dated struct {
		at   time.Time
		info schema.SessionInfo
	}
	var all []dated
	for _, e := range entries {
		id := schema.SessionID(e.Name())
		in, err := st.info(id)
		if err != nil {
			continue // being made or removed
		}
		s := schema.SessionInfo{
			SessionID: id, Cwd: in.Cwd, AdditionalDirectories: in.Directories,
			UpdatedAt: new(in.UpdatedAt.UTC().Format(time.RFC3339)),
		}
		if in.Title != "" {
			s.Title = &in.Title
		}
		all = append(all, dated{in.UpdatedAt, s})
	}
	slices.SortFunc(all, func(a, b dated) int {
		return cmp.Or(b.at.Compare(a.at), cmp.Compare(a.info.SessionID, b.info.SessionID))
	})
	out := make([]schema.SessionInfo, len(all))
	for i := range all {
		out[i] = all[i].info
	}
	return out, nil
}

// save replaces the session's file.
func (in *info) save(dir string) error {
	b, err := json.Marshal(in)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, infoFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, infoFile))
}
