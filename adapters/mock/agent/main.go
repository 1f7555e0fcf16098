package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Environment variables that change the agent.
const (
	// EnvAuthRequired set to 1 makes sessions need authenticate first.
	EnvAuthRequired = "MOCK_AUTH_REQUIRED"
	// EnvNoLoad set to 1 leaves out session/load and session/resume.
	EnvNoLoad = "MOCK_NO_LOAD"
)

// Main runs the agent over stdin and stdout until stdin ends and returns the
// exit code. It owns its process: some prompts end it, change its signals or
// leave processes behind. When ctx ends, Main returns without waiting for stdin.
func Main(ctx context.Context, args []string, stdin io.ReadCloser, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mock-agent", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("state-dir", "", "directory of the sessions (default: a private one among the temporary files)")
	highest := flags.Int("acp", 1, "the highest version of ACP to speak: 1 or 2")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 2
	}
	if *highest != 1 && *highest != 2 {
		_, _ = fmt.Fprintf(stderr, "mock-agent: --acp %d: use 1 or 2\n", *highest)
		return 2
	}
	store, err := openStore(*dir)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "mock-agent:", err)
		return 1
	}
	a := newAgent(store, stderr, os.Getenv(EnvAuthRequired) == "1", os.Getenv(EnvNoLoad) == "1")
	conn := acp.OverLines(newStdio(stdin, stdout))
	if *highest == 2 {
		a.second = newSecond(conn)
		conn = a.second
	}
	err = acp.ServeAgent(ctx, conn, a.serve)
	if a.outlive.Load() {
		_, _ = fmt.Fprintln(stderr, "mock-agent: stdin has ended, this process stays")
		for {
			time.Sleep(time.Hour)
		}
	}
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintln(stderr, "mock-agent:", err)
		return 1
	}
	return 0
}

// openStore returns the store in dir, or in the default directory for "", which
// must not be open to other users.
func openStore(dir string) (*store, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		return &store{dir: dir}, nil
	}
	dir = filepath.Join(os.TempDir(), "sandbox-agent-mock-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() || filepath.Separator == '/' && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("state directory %s is not a private directory", dir)
	}
	return &store{dir: dir}, nil
}

// stdio joins stdin and stdout. Reading a blocking stdin cannot be ended, so it
// is read by a goroutine that lives as long as the process, behind a pipe.
type stdio struct {
	*io.PipeReader
	out io.Writer
}

func newStdio(stdin io.Reader, stdout io.Writer) stdio {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, stdin)
		_ = w.CloseWithError(err)
	}()
	return stdio{r, stdout}
}

func (s stdio) Write(p []byte) (int, error) { return s.out.Write(p) }
