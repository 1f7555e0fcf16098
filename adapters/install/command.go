package install

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// maxOutput bounds what is kept of a program's stdout; the rest is discarded.
const maxOutput = 1 << 20

// stopping is how programs of an installation are ended. None of them has a
// state that deserves more time.
var stopping = process.Ladder{EOF: time.Millisecond, Term: 300 * time.Millisecond}

// runError says how a program ended that was expected to succeed.
type runError struct {
	exit   process.Exit
	output string // the end of what it wrote
}

func (e *runError) Error() string {
	how := fmt.Sprintf("exited with code %d", e.exit.Code)
	if e.exit.Signal != "" {
		how = "was ended by " + e.exit.Signal
	}
	if e.output == "" {
		return how + " and wrote nothing"
	}
	return fmt.Sprintf("%s and wrote: %q", how, e.output)
}

// run runs a program to its end with input as its stdin and returns its stdout
// and the end of its stderr. It and everything it started are gone when run
// returns, whatever happened. answered, if set, ends the program successfully
// as soon as it is true of the output so far.
func run(ctx context.Context, limit time.Duration, spec process.Spec, input string, answered func(stdout string) bool) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("did not end within %s", limit))
	defer cancel()
	p, err := start(ctx, spec)
	if err != nil {
		return "", "", err
	}
	var out strings.Builder
	enough := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 32<<10)
		for done := false; ; {
			n, err := p.Stdout.Read(buf)
			out.Write(buf[:max(0, min(n, maxOutput-out.Len()))])
			if !done && answered != nil && answered(out.String()) {
				done = true
				close(enough)
			}
			if err != nil {
				return
			}
		}
	}()
	_, _ = io.WriteString(p.Stdin, input) // less than a pipe holds
	if answered == nil {
		_ = p.Stdin.Close()
	}
	select {
	case <-p.Done():
	case <-enough:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.Stop(stopping)
	select {
	case <-read:
	case <-time.After(200 * time.Millisecond): // somebody unmarked holds stdout open
	}
	_ = p.Stdout.Close()
	<-read
	_, stderr, _, _ = p.Stderr()
	stdout = out.String()
	if err != nil {
		return stdout, stderr, err
	}
	select {
	case <-enough:
		return stdout, stderr, nil
	default:
	}
	if e := p.Exit(); e.Code != 0 || e.Signal != "" {
		return stdout, stderr, &runError{exit: e, output: ending(stderr + stdout)}
	}
	return stdout, stderr, nil
}

// start starts a program that may have been written a moment ago: as long as
// another goroutine of this process is starting a child, that child holds the
// file open for writing, and the kernel refuses to run it.
func start(ctx context.Context, spec process.Spec) (*process.Process, error) {
	for tries := 0; ; tries++ {
		p, err := process.Start(ctx, spec)
		if err == nil || !errors.Is(err, syscall.ETXTBSY) || tries == 20 {
			return p, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// ending returns the end of a program's output, short enough for an error.
func ending(s string) string {
	const most = 600
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return s
}

// environ returns the variables of this process that every program needs, those of names, and those whose names begin
// with one of the prefixes, which end with "_". Case does not count.
func environ(names ...string) []string {
	always := map[string]bool{"PATH": true, "LANG": true, "LC_ALL": true, "TZ": true, "TMPDIR": true, "LD_LIBRARY_PATH": true, "NIX_LD": true, "NIX_LD_LIBRARY_PATH": true}
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		keep := always[name]
		for _, n := range names {
			upper := strings.ToUpper(name)
			keep = keep || upper == n || strings.HasSuffix(n, "_") && strings.HasPrefix(upper, n)
		}
		if keep {
			env = append(env, kv)
		}
	}
	return env
}

// fetchEnviron returns what package clients need to find their configuration
// and their way through the network.
func fetchEnviron(client ...string) []string {
	return environ(append(client, "HOME", "USER", "LOGNAME", "XDG_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_", "NODE_EXTRA_CA_CERTS")...)
}
