package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
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
	for name, c := range map[string]struct{ kept, want string }{
		"the session has come":      {"session-1", "there\n"},
		"it has not":                {"", "here\n"},
		"it came by another folder": {"session-2", "here\n"},
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
			if _, err := files.PlaceWorkspace(t.Context(), home, ws, fs.PlaceWorkspaceOptions{Merge: true, Base: base}, m); err != nil {
				t.Fatal(err)
			}
			b, err := json.Marshal(coming{Session: "s", Directory: home})
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
			if list, err := os.ReadDir(home); err != nil || len(list) != 1 {
				t.Errorf("left is %v, %v", list, err)
			}
		})
	}
	// What had no workspace has nothing to be ended.
	if err := EndArrivals(nil)(t.TempDir(), nil); err != nil {
		t.Error(err)
	}
}
