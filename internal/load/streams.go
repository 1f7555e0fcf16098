package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// streams is a connection over the standard streams of a program that was started for it.
type streams struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	errs  lastBytes
	mu    sync.Mutex    // of the input
	ended chan struct{} // the output has ended
}

func startStreams(ctx context.Context, line, env []string, dir string) (*streams, error) {
	s := &streams{cmd: exec.CommandContext(ctx, line[0], line[1:]...), ended: make(chan struct{})}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stderr = env, dir, &s.errs
	s.cmd.WaitDelay = endBound
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if s.out, err = s.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return s, s.cmd.Start()
}

// read gives each line to take, until there is none.
func (s *streams) read(take func(frame []byte)) {
	defer close(s.ended)
	eachLine(s.out, take)
}

// eachLine gives each line to take, without spaces around it, until there is none.
func eachLine(r io.Reader, take func(line []byte)) {
	lines := bufio.NewReaderSize(r, 256<<10)
	var long []byte
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			for long = long[:0]; errors.Is(err, bufio.ErrBufferFull); line, err = lines.ReadSlice('\n') {
				long = append(long, line...)
			}
			line = append(long, line...)
		}
		if err != nil {
			return
		}
		take(bytes.TrimSpace(line))
	}
}

func (s *streams) send(message []byte, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.in.Write(append(message, '\n'))
	return err
}

func (s *streams) opened(string) error { return nil }
func (s *streams) close()              { _ = s.in.Close() }

// stop ends the program as editors do, and what it leaves behind.
func (s *streams) stop() error {
	all := withBelow([]int{s.cmd.Process.Pid}, func(int) bool { return true })
	s.close()
	bound := time.AfterFunc(endBound, func() { _ = s.cmd.Process.Kill() })
	defer bound.Stop()
	<-s.ended
	err := s.cmd.Wait()
	for _, pid := range all[1:] {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // most are gone
		}
	}
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil // each has its own idea of a code
	}
	return err
}

func (s *streams) said() []byte { return s.errs.last() }

// lastBytes keeps the last of what is written to it.
type lastBytes struct {
	mu sync.Mutex
	b  []byte
}

// lastBound is how much that is.
const lastBound = 4 << 10

func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if n := len(l.b) - lastBound; n > 0 {
		l.b = append(l.b[:0], l.b[n:]...)
	}
	return len(p), nil
}

func (l *lastBytes) last() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.b)
}
