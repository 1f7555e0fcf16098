//go:build unix

package group

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
)

// Each program of the group holds the pipe, which ends with the last of them.
func TestRun_TheWholeGroupEnds(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		canceled     bool
	}{
		{"ends by itself", "sleep 600 & echo runs", false},
		{"is canceled", "sleep 600 & echo runs; wait", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", tt.script)
			cmd.Stdout = w
			ended := make(chan error, 1)
			go func() {
				err := Run(cmd)
				_ = w.Close()
				ended <- err
			}()
			word := make([]byte, len("runs\n"))
			if _, err := io.ReadFull(r, word); err != nil {
				t.Fatal(err)
			}
			if tt.canceled {
				cancel()
			}
			if err := <-ended; (err != nil) != tt.canceled {
				t.Error(err)
			}
			if _, err := r.Read(word); !errors.Is(err, io.EOF) {
				t.Errorf("the pipe: %v", err)
			}
		})
	}
}
