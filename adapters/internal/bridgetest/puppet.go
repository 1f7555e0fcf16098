package bridgetest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"testing"
)

// PuppetVar makes a test binary a native process that does what its test says: it has the
// address that [RunPuppet] gets.
const PuppetVar = "SANDBOX_TEST_PUPPET"

// What a puppet and its test tell each other, each with the rest of the line.
const (
	puppetRead        = '<' // the puppet has read a line
	puppetInterrupted = '!' // it was interrupted
	puppetEOF         = '.' // its input has ended
	puppetSay         = '>' // it is to write a line
	puppetExit        = 'x' // it is to exit with a code
)

// RunPuppet is the main function of a puppet. It returns the exit code.
func RunPuppet(addr string) int {
	interrupts := make(chan os.Signal, 8)
	signal.Notify(interrupts, os.Interrupt)
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return 3
	}
	hello, _ := json.Marshal(os.Args[1:])
	var mu sync.Mutex
	tell := func(kind byte, rest []byte) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = conn.Write(append(append([]byte{kind}, rest...), '\n'))
	}
	tell(puppetRead, hello)
	go func() {
		for range interrupts {
			tell(puppetInterrupted, nil)
		}
	}()
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				tell(puppetEOF, nil)
				return
			}
			tell(puppetRead, bytes.TrimSpace(line))
		}
	}()
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 4 // the test is gone
		}
		if line[0] == puppetExit {
			code, _ := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
			return code
		}
		if _, err := os.Stdout.Write(line[1:]); err != nil {
			return 5
		}
	}
}

// Puppet is a native process, as its test has it. Its methods are safe for concurrent use.
type Puppet struct {
	Args []string

	conn net.Conn
}

// Show is how a test plays a puppet. Its methods are called one after another.
type Show interface {
	Line(line []byte) // the puppet has read a line
	Interrupted()
	EOF()
	Ended() // the process has
}

// Puppets serves the puppets that start from now on, until the test ends. begin returns
// who plays one. It returns the address for [PuppetVar].
func Puppets(t *testing.T, begin func(p *Puppet) Show) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { attend(conn, begin) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		work.Wait()
	})
	return l.Addr().String()
}

func attend(conn net.Conn, begin func(p *Puppet) Show) {
	p := &Puppet{conn: conn}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	hello, err := in.ReadBytes('\n')
	if err != nil || json.Unmarshal(hello[1:], &p.Args) != nil {
		return
	}
	show := begin(p)
	defer show.Ended()
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		switch line[0] {
		case puppetRead:
			show.Line(line[1 : len(line)-1])
		case puppetInterrupted:
			show.Interrupted()
		case puppetEOF:
			show.EOF()
		}
	}
}

// Say has the process write lines.
func (p *Puppet) Say(lines ...string) {
	var b []byte
	for _, l := range lines {
		b = append(append(append(b, puppetSay), l...), '\n')
	}
	_, _ = p.conn.Write(b) // it may have ended
}

// Exit has the process exit, when it has written what it was to say.
func (p *Puppet) Exit(code int) {
	_, _ = p.conn.Write(append(strconv.AppendInt([]byte{puppetExit}, int64(code), 10), '\n'))
}
