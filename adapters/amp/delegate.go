package amp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// DelegateName is the name under which the gateway's binary runs as the program
// that Amp delegates permissions to. Amp gives it no arguments.
const DelegateName = "amp-permission"

const (
	socketName = "s"
	// maxRequest bounds what a delegate reads and sends: the input of a call. A
	// larger one is refused.
	maxRequest = 64 << 20
	// dialBound limits how long a delegate tries to reach its gateway.
	dialBound = 10 * time.Second
)

// The exit codes that Amp knows. It also knows 1, ask on a terminal.
const (
	exitAllow  = 0
	exitRefuse = 2
)

// IsDelegate reports whether a program that was started under this name is a
// delegate.
func IsDelegate(arg0 string) bool { return filepath.Base(arg0) == DelegateName }

// RunDelegate asks the gateway whether a call may be made and returns the exit
// code that tells Amp. The socket is beside the name that the program was started
// by. Whatever goes wrong is a refusal.
func RunDelegate(arg0 string, in io.Reader, stderr io.Writer) int {
	refuse := func(format string, args ...any) int {
		fmt.Fprintf(stderr, format, args...)
		return exitRefuse
	}
	raw, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	switch {
	case err != nil:
		return refuse("The call's input cannot be read: %v", err)
	case len(raw) > maxRequest:
		return refuse("The call's input is too large to be asked about.")
	case !json.Valid(raw):
		return refuse("The call's input is no JSON.")
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialBound)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(filepath.Dir(arg0), socketName))
	if err != nil {
		return refuse("The gateway that decides about permissions is gone.")
	}
	defer func() { _ = conn.Close() }()
	line, err := schema.Encode(&request{
		Tool: os.Getenv("AGENT_TOOL_NAME"), ID: os.Getenv("AGENT_TOOL_USE_ID"), Thread: os.Getenv("AMP_THREAD_ID"), Input: raw,
	})
	if err == nil {
		_, err = conn.Write(append(line, '\n'))
	}
	var a reply
	if err == nil {
		err = json.NewDecoder(conn).Decode(&a)
	}
	switch {
	case err != nil:
		return refuse("The gateway that decides about permissions is gone.")
	case !a.Allow:
		return refuse("%s", a.Reason)
	}
	return exitAllow
}

// desk is where the delegates of a session ask. Its goroutines end with close.
type desk struct {
	net.Listener
	program string // what Amp runs
	own     string // the folder of both, removed with it; "" when it is the session's
}

// maxSocket bounds the path of a socket; systems differ, the least is 104.
const maxSocket = 100

// newDesk makes a socket, and the delegate's name beside it, in dir. If the path
// would be too long for a socket, they get a private folder for temporary files.
func newDesk(dir string) (*desk, error) {
	d := &desk{}
	if len(filepath.Join(dir, socketName)) > maxSocket {
		base := os.TempDir()
		if len(base) > maxSocket/2 {
			base = "/tmp"
		}
		own, err := os.MkdirTemp(base, "amp-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for permissions: %w", err)
		}
		d.own, dir = own, own
	}
	exe, err := os.Executable()
	if err == nil {
		d.program = filepath.Join(dir, DelegateName)
		err = os.Symlink(exe, d.program)
	}
	if err == nil {
		d.Listener, err = (&net.ListenConfig{}).Listen(context.Background(), "unix", filepath.Join(dir, socketName))
	}
	if err != nil {
		if d.own != "" {
			_ = os.RemoveAll(d.own)
		}
		return nil, fmt.Errorf("listen for permissions: %w", err)
	}
	return d, nil
}

func (d *desk) close() {
	_ = d.Close()
	if d.own != "" {
		_ = os.RemoveAll(d.own)
	}
}

// serve answers delegates until the desk is closed, each on a goroutine that run
// starts.
func (d *desk) serve(ctx context.Context, run func(func()), decide func(ctx context.Context, r *request) reply) {
	for {
		conn, err := d.Accept()
		if err != nil {
			return
		}
		run(func() { attend(ctx, conn, decide) })
	}
}

// attend answers one delegate. The question is withdrawn when the delegate goes.
func attend(ctx context.Context, conn net.Conn, decide func(ctx context.Context, r *request) reply) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		stop()
		cancel()
		_ = conn.Close()
	}()
	r := new(request)
	in := bufio.NewReader(io.LimitReader(conn, maxRequest*2))
	line, err := in.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, r) != nil {
		return
	}
	gone := make(chan struct{})
	go func() { // ends with conn
		defer close(gone)
		_, _ = in.ReadByte()
		cancel()
	}()
	if b, err := schema.Encode(decide(ctx, r)); err == nil {
		_, _ = conn.Write(b)
	}
	_ = conn.Close()
	<-gone
}
