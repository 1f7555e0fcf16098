package amp

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// ask runs a delegate as Amp does: no arguments, the call's input on stdin, the
// rest in the environment.
func ask(t *testing.T, program, input string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "AGENT=amp", "AGENT_TOOL_NAME=Bash", "AGENT_TOOL_USE_ID=toolu_4", "AMP_THREAD_ID=T-01a1fbff-5f07-7012-add9-aae840da841c")
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	_ = cmd.Run() // the state says more
	return cmd.ProcessState.ExitCode(), stderr.String()
}

func TestDelegate_AsksTheGateway(t *testing.T) {
	d, err := newDesk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	got := make(chan *request, 4)
	answers := make(chan reply, 4)
	ctx, cancel := context.WithCancel(t.Context())
	work.Go(func() {
		d.serve(ctx, work.Go, func(ctx context.Context, r *request) reply {
			got <- r
			select {
			case a := <-answers:
				return a
			case <-ctx.Done():
				return reply{Reason: "withdrawn"}
			}
		})
	})
	answers <- reply{Allow: true}
	if code, said := ask(t, d.program, `{"cmd":"rm -rf ./nothing_here"}`); code != exitAllow || said != "" {
		t.Errorf("allowed: %d, %q", code, said)
	}
	want := &request{Tool: "Bash", ID: "toolu_4", Thread: "T-01a1fbff-5f07-7012-add9-aae840da841c", Input: json.RawMessage(`{"cmd":"rm -rf ./nothing_here"}`)}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Error(diff)
	}
	answers <- reply{Reason: "no thanks"}
	if code, said := ask(t, d.program, `{}`); code != exitRefuse || said != "no thanks" {
		t.Errorf("refused: %d, %q", code, said)
	}
	<-got
	if code, said := ask(t, d.program, `no JSON`); code != exitRefuse || !strings.Contains(said, "JSON") {
		t.Errorf("no JSON: %d, %q", code, said)
	}
	// The gateway ends while a delegate waits.
	ended := make(chan int, 1)
	go func() {
		code, _ := ask(t, d.program, `{}`)
		ended <- code
	}()
	<-got
	cancel()
	if code := <-ended; code != exitRefuse {
		t.Errorf("a gateway that ends: %d", code)
	}
	d.close()
	work.Wait()
}

// A delegate whose gateway is gone refuses, and at once.
func TestDelegate_GatewayIsGone(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, DelegateName)
	if err := os.Symlink(exe, program); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if code, said := ask(t, program, `{}`); code != exitRefuse || !strings.Contains(said, "gone") {
		t.Errorf("%d, %q", code, said)
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A socket's path has a bound that folders of data exceed.
func TestDesk_LongFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := newDesk(dir)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(d.program)
	info, err := os.Stat(folder)
	if err != nil || info.Mode().Perm() != 0o700 || len(folder) > maxSocket {
		t.Errorf("%s: %v, %v", folder, info.Mode(), err)
	}
	d.close()
	if _, err := os.Stat(folder); err == nil {
		t.Errorf("%s is left", folder)
	}
}
