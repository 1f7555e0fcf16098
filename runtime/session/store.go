package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// store keeps a directory per session. The zero store keeps nothing.
type store struct {
	dir string
}

const (
	recordFile = "session.json"
	logFile    = "log.jsonl"
)

// path returns the session's directory. Ids come from clients and agents, so
// what is not plain is escaped.
func (st store) path(id string) string {
	name := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
	if len(name) > 200 {
		name = name[:160] + "~" + shortHash(id)
	}
	return filepath.Join(st.dir, name)
}

// logPath returns where the session's log lives, "" for memory.
func (st store) logPath(id string) string {
	if st.dir == "" {
		return ""
	}
	return filepath.Join(st.path(id), logFile)
}

// save replaces the session's record atomically.
func (st store) save(rec record) error {
	if st.dir == "" {
		return nil
	}
	rec.Version = recordVersion
	b, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return fmt.Errorf("encode session record: %w", err)
	}
	dir := st.path(rec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("save session record: %w", err)
	}
	tmp := filepath.Join(dir, recordFile+".tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("save session record: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil {
		return fmt.Errorf("save session record: %w", err)
	}
	return nil
}

// remove deletes everything of the session.
func (st store) remove(id string) error {
	if st.dir == "" {
		return nil
	}
	if err := os.RemoveAll(st.path(id)); err != nil {
		return fmt.Errorf("delete session files: %w", err)
	}
	return nil
}

// list reads every session's record. One that cannot be read is reported and
// left alone.
func (st store) list(log *slog.Logger) ([]record, error) {
	if st.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(st.dir)
	if err != nil {
		return nil, err
	}
	var out []record
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(st.dir, e.Name(), recordFile))
		var rec record
		if err == nil {
			err = json.Unmarshal(b, &rec)
		}
		if err == nil && (rec.ID == "" || filepath.Base(st.path(rec.ID)) != e.Name()) {
			err = errors.New("its id does not match the directory")
		}
		if err != nil {
			log.Warn("skip unreadable session", "directory", e.Name(), "err", err)
			continue
		}
		out = append(out, rec)
	}
	return out, nil
}

// writable reports whether sessions can be kept.
func (st store) writable() error {
	if st.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(st.dir, ".ready-*")
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the data directory is not writable")
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
