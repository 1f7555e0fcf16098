package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/fs"
)

// carried is a workspace on its way, in memory.
type carried map[string]*bytes.Buffer

type part struct{ *bytes.Buffer }

func (part) Close() error { return nil }

func (m carried) Create(name string) (io.WriteCloser, error) {
	m[name] = new(bytes.Buffer)
	return part{m[name]}, nil
}

func (m carried) Put(name string, size int64, r io.Reader) (sum [sha256.Size]byte, err error) {
	m[name] = new(bytes.Buffer)
	_, err = io.CopyN(m[name], r, size)
	return sha256.Sum256(m[name].Bytes()), err
}

func (m carried) Open(name string) (io.ReadCloser, error) {
	if m[name] == nil {
		return nil, nil
	}
	return io.NopCloser(bytes.NewReader(m[name].Bytes())), nil
}

func (carried) File(string) (string, [sha256.Size]byte) { return "", [sha256.Size]byte{} }

// A gateway was killed when the files of a workspace were in their places. They stay if the
// session came by the same arrival, and are taken back if it has not come, or was there
// before by another one.
func TestEndArrivals(t *testing.T) {
	yes, no := true, false
	for name, c := range map[string]struct {
		kept, by string
		decided  *bool // at an earlier start, which could not end it
		want     string
		left     int
	}{
		"the session has come":                    {"session-1", "session-1", nil, "there\n", 1},
		"it has not":                              {"", "session-1", nil, "here\n", 1},
		"it came by another folder":               {"session-2", "session-1", nil, "here\n", 1},
		"it had come, and was deleted since":      {"", "session-1", &yes, "there\n", 1},
		"it had not, and came by one of its name": {"session-1", "session-1", &no, "here\n", 1},
		"another one came there since":            {"", "session-2", nil, "there\n", 2},
		"an earlier version put it there":         {"", "", nil, "here\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files, err := fs.New(fs.Options{})
			if err != nil {
				t.Fatal(err)
			}
			home, away, folder := filepath.Join(dir, "home"), filepath.Join(dir, "away"), filepath.Join(dir, "session-1")
			for path, content := range map[string]string{home + "/a": "here\n", away + "/a": "there\n", folder + "/x": ""} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			taking, err := files.OpenWorkspace(t.Context(), away, fs.TakeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer taking.Close()
			m := carried{}
			ws, err := taking.Write(t.Context(), "away", m)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256([]byte("here\n"))
			base := func(*fs.Places) *fs.Snapshot {
				return &fs.Snapshot{Files: map[string]string{"a": fmt.Sprintf("-%x", sum)}}
			}
			// Nobody keeps it or takes it back: the gateway is killed here.
			if _, err := files.PlaceWorkspace(t.Context(), home, ws, fs.PlaceWorkspaceOptions{Merge: true, By: c.by, Base: base}, m); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(coming{"s", home, c.decided})
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, comingFile), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			err = EndArrivals(files)(folder, func(id, name string) ([]byte, error) {
				if id != "s" || name != keptArrival {
					t.Errorf("asked for %s of %s", name, id)
				}
				return []byte(c.kept), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(home + "/a"); err != nil || string(b) != c.want {
				t.Errorf("%q, %v; want %q", b, err, c.want)
			}
			if list, err := os.ReadDir(home); err != nil || len(list) != c.left {
				t.Errorf("left is %v, %v", list, err)
			}
			var at coming
			b, err = os.ReadFile(filepath.Join(folder, comingFile))
			if err := errors.Join(err, json.Unmarshal(b, &at)); err != nil || at.Keep == nil || c.decided == nil && *at.Keep != (c.kept == "session-1") {
				t.Errorf("for the next start there is %s, %v", b, err)
			}
		})
	}
	// What had no workspace has nothing to be ended, nor has what was written as the machine lost its power.
	empty := t.TempDir()
	if err := os.WriteFile(filepath.Join(empty, comingFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{t.TempDir(), empty} {
		if err := EndArrivals(nil)(dir, nil); err != nil {
			t.Error(err)
		}
	}
}
