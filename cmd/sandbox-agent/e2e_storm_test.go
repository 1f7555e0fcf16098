package main_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// Six clients do what comes to their minds with the same few files and programs, all
// at once. Whatever meets, each is told what happened, and never of an error that is
// the gateway's own; in the end everything works and nothing runs.
func TestMeet_FilesAndPrograms(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--fs-root", root)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	steps := 80
	if agentcache.IsLong() {
		steps = 5_000
	}
	var mu sync.Mutex
	programs := []string{"p_none"}
	var clients sync.WaitGroup
	for i := range uint64(6) {
		clients.Go(func() {
			dice := rand.New(rand.NewPCG(seed, i))
			for range steps {
				mu.Lock()
				id := programs[dice.IntN(len(programs))]
				mu.Unlock()
				s := randomStep(dice, id)
				status, body, err := g.takes(s)
				if err != nil {
					t.Errorf("%s %s: %v", s.method, s.path, err)
					return
				}
				if status >= 500 {
					t.Errorf("%s %s is answered with %d: %s", s.method, s.path, status, body)
				}
				if s.path == "/v2/processes" && status == http.StatusCreated {
					var p struct{ ID string }
					if err := json.Unmarshal(body, &p); err != nil || p.ID == "" {
						t.Errorf("started: %s, %v", body, err)
						return
					}
					mu.Lock()
					programs = append(programs, p.ID)
					if len(programs) > 6 {
						programs = programs[1:]
					}
					mu.Unlock()
				}
			}
		})
	}
	clients.Wait()
	if a := g.ask("PUT", "/v2/fs/file?path=last&parents=true", "still works"); a.status >= 300 {
		t.Errorf("then a file: %d %s", a.status, a.body)
	}
	var list struct{ Processes []struct{ ID string } }
	g.get("/v2/processes", &list)
	for _, p := range list.Processes {
		g.ask("POST", "/v2/processes/"+p.ID+"/stop?patienceMs=0", "")
		if a := g.ask("DELETE", "/v2/processes/"+p.ID, ""); a.status != http.StatusNoContent && a.status != http.StatusNotFound {
			t.Errorf("a program that was stopped is not removed: %d %s", a.status, a.body)
		}
	}
	if g.get("/v2/processes", &list); len(list.Processes) > 0 {
		t.Errorf("programs are left: %+v", list.Processes)
	}
}

// step is a request.
type step struct{ method, path, body string }

func randomStep(dice *rand.Rand, program string) step {
	names := []string{"a", "b", "a/x", "a/y", "b/x", "a/deep/z", "link"}
	name := func() string { return url.QueryEscape(names[dice.IntN(len(names))]) }
	p := "/v2/processes/" + program
	start := func(line string, tty bool) string {
		b, _ := json.Marshal(map[string]any{"command": "sh", "args": []string{"-c", line}, "tty": tty})
		return string(b)
	}
	archive := func() string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, n := range []string{"x", "deep/z", "new/file"} {
			_ = w.WriteHeader(&tar.Header{Name: n, Mode: 0o644, Size: 3, Typeflag: tar.TypeReg})
			_, _ = w.Write([]byte("tar"))
		}
		_ = w.Close()
		return b.String()
	}
	steps := []func() step{
		func() step {
			return step{"PUT", "/v2/fs/file?parents=true&path=" + name(), strings.Repeat("text\n", dice.IntN(2000))}
		},
		func() step { return step{"PUT", "/v2/fs/file?path=" + name(), "one"} },
		func() step { return step{"GET", "/v2/fs/file?path=" + name(), ""} },
		func() step { return step{"GET", "/v2/fs/stat?path=" + name(), ""} },
		func() step { return step{"GET", "/v2/fs/entries?recursive=true&path=", ""} },
		func() step { return step{"GET", "/v2/fs/entries?path=" + name(), ""} },
		func() step { return step{"POST", "/v2/fs/mkdir?parents=true&path=" + name(), ""} },
		func() step { return step{"POST", "/v2/fs/mkdir?path=" + name(), ""} },
		func() step {
			return step{"POST", "/v2/fs/move?overwrite=true&parents=true&from=" + name() + "&to=" + name(), ""}
		},
		func() step { return step{"POST", "/v2/fs/copy?parents=true&from=" + name() + "&to=" + name(), ""} },
		func() step { return step{"DELETE", "/v2/fs/entry?recursive=true&path=" + name(), ""} },
		func() step { return step{"DELETE", "/v2/fs/entry?path=" + name(), ""} },
		func() step { return step{"GET", "/v2/fs/search?content=text&path=", ""} },
		func() step { return step{"GET", "/v2/fs/download-batch?path=" + name(), ""} },
		func() step { return step{"POST", "/v2/fs/upload-batch?path=" + name(), archive()} },
		func() step { return step{"GET", "/v2/fs/git/status?path=" + name(), ""} },
		func() step { return step{"POST", "/v2/processes", start("echo ready; cat", false)} },
		func() step { return step{"POST", "/v2/processes", start("echo ready; exec sleep 600", true)} },
		func() step { return step{"POST", "/v2/processes/run", start("ls -R . | head -3", false)} },
		func() step { return step{"GET", "/v2/processes", ""} },
		func() step { return step{"GET", p, ""} },
		func() step { return step{"GET", p + "/logs", ""} },
		func() step { return step{"POST", p + "/stdin", "input\n"} },
		func() step { return step{"POST", p + "/stdin?close=true", ""} },
		func() step { return step{"POST", p + "/signal", `{"signal":"SIGTERM"}`} },
		func() step { return step{"POST", p + "/stop?patienceMs=50", ""} },
		func() step { return step{"DELETE", p, ""} },
	}
	return steps[dice.IntN(len(steps))]()
}

// takes sends a request and reads all of its answer.
func (g *gateway) takes(s step) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.method, g.url+s.path, strings.NewReader(s.body))
	if err != nil {
		return 0, nil, err
	}
	switch {
	case strings.Contains(s.path, "upload-batch"):
		req.Header.Set("Content-Type", "application/x-tar")
	case strings.HasPrefix(s.body, "{"):
		req.Header.Set("Content-Type", "application/json")
	}
	g.authorize(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil && resp.StatusCode == http.StatusOK && s.method == http.MethodGet {
		return resp.StatusCode, nil, nil // it changed while it was read, and who reads it knows
	}
	if err == nil && resp.StatusCode >= 400 && !json.Valid(b) {
		err = fmt.Errorf("%d with %q", resp.StatusCode, b)
	}
	return resp.StatusCode, b, err
}
