package main_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal returns both sides of a new pseudo terminal.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number, locked uint32
	for request, arg := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made: %v", err)
	}
	return master, slave
}

// On a terminal progress is one line, which is gone at the end.
func TestInstallCLI_BarOnATerminal(t *testing.T) {
	s := newShop(t)
	body := gadget("1.0.0")
	s.sell("1.0.0")
	shown := make(chan struct{})
	s.handle(gadgetFile, serveSlowly(body, shown))
	c := newCommandLine(t)
	c.env = append(c.env, "TERM=xterm")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.command(ctx, append([]string{"agents", "install", "gadget", "--source", "registry"}, s.flags()...)...)
	master, slave := openTerminal(t)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	var screen strings.Builder
	buf := make([]byte, 4096)
	for seen := false; ; {
		n, err := master.Read(buf)
		screen.Write(buf[:n])
		if !seen && strings.Contains(screen.String(), "[##########----------]  50%  1.5 MB of 3.0 MB") {
			seen = true
			close(shown)
		}
		if err != nil { // EIO: the other side is closed
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%q", err, tail(screen.String()))
	}
	if got := screen.String(); strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("progress is more than a line, or stays: %q", tail(got))
	}
	if !strings.HasPrefix(out.String(), "installed gadget 1.0.0") {
		t.Errorf("output %q", out.String())
	}
}

func tail(s string) string { return s[max(0, len(s)-1000):] }
