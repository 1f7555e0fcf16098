//go:build unix

package process

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
)

func TestReadAhead_DoesNotWait(t *testing.T) {
	p, err := Start(context.Background(), Spec{Path: os.Args[0], Env: append(os.Environ(), "TEST_CHILD=cat")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.StopMute(DefaultLadder)
	b := make([]byte, 16)
	ahead := func(want string, wantErr error) {
		t.Helper()
		if n, err := p.ReadAhead(b); string(b[:n]) != want || !errors.Is(err, wantErr) {
			t.Errorf("read ahead: %q, %v; want %q, %v", b[:n], err, want, wantErr)
		}
	}
	ahead("", nil) // it says nothing unasked
	if _, err := p.Write([]byte("word\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(p.Stdout, b[:1]); err != nil { // waits for it
		t.Fatal(err)
	}
	ahead("ord\n", nil)
	ahead("", nil)
	if n := testing.AllocsPerRun(100, func() { _, _ = p.ReadAhead(b) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
	_ = p.Stdin.Close()
	<-p.Done()
	ahead("", io.EOF)
	_ = p.Stdout.Close()
	ahead("", nil) // a read says that it is closed
}
