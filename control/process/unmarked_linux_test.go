package process

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Somebody whom nothing marks holds an output and never stops to write: that keeps nobody waiting for the end.
func TestEnd_SomebodyWritesOn(t *testing.T) {
	// It is up before the process ends: until it has another environment it is found by its mark.
	line := func(t *testing.T) string {
		up := filepath.Join(t.TempDir(), "up")
		return `env -i setsid sh -c 'echo up >` + up + `; while echo on; do sleep 0.05; done' & until [ -s ` + up + ` ]; do sleep 0.01; done; echo begun`
	}
	for name, do := range map[string]func(t *testing.T, s *Service) string{
		"run": func(t *testing.T, s *Service) string {
			r, err := s.Run(context.Background(), shell(line(t)), RunOptions{})
			if err != nil {
				t.Error(err)
			}
			return string(r.Stdout.Data)
		},
		"its time is over": func(t *testing.T, s *Service) string {
			for lasts := 2 * time.Second; ; lasts *= 2 { // a machine with much else to do needs longer to begin
				r, err := s.Run(context.Background(), shell(line(t)+"; sleep 1000"), RunOptions{Timeout: lasts})
				if err != nil || !r.TimedOut {
					t.Errorf("%+v, %v", r, err)
				}
				if out := string(r.Stdout.Data); strings.Contains(out, "begun") || err != nil || lasts > 20*time.Second {
					return out
				}
			}
		},
		"process": func(t *testing.T, s *Service) string { return await(t, start(t, s, shell(line(t))), "") },
		"terminal": func(t *testing.T, s *Service) string {
			spec := shell(line(t))
			spec.TTY = true
			return await(t, start(t, s, spec), "")
		},
		"delete": func(t *testing.T, s *Service) string {
			p := start(t, s, shell(line(t)+"; sleep 1000"))
			out := await(t, p, "begun")
			s.Delete(p)
			return out
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := service(t)
			done := make(chan string, 1)
			go func() { done <- do(t, s) }()
			select {
			case out := <-done:
				if !strings.Contains(out, "begun") {
					t.Errorf("its output is %q", out)
				}
			case <-time.After(time.Minute):
				t.Fatal("it has not ended")
			}
		})
	}
}
