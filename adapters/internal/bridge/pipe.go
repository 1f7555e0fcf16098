package bridge

import (
	"io"
	"sync"
)

// pipeBound is how many bytes wait in one direction. A writer finds it full and
// waits; what it writes may then go beyond the bound, so that a frame of any
// size passes.
const pipeBound = 1 << 20

// pipe is a stream of bytes within the process. A Read and any number of Writes
// may run at the same time; Writes do not mix.
type pipe struct {
	mu     sync.Mutex
	change sync.Cond // of everything below
	buf    []byte
	read   int  // bytes of buf that were read
	ended  bool // nothing more is written; what is there can be read
	broken bool // nothing more is read either
}

func newPipe() *pipe {
	p := &pipe{}
	p.change.L = &p.mu
	return p
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.buf)-p.read >= pipeBound && !p.ended {
		p.change.Wait()
	}
	if p.ended {
		return 0, io.ErrClosedPipe
	}
	if p.read > 0 && p.read >= len(p.buf)/2 {
		p.buf = append(p.buf[:0], p.buf[p.read:]...)
		p.read = 0
	}
	p.buf = append(p.buf, b...)
	p.change.Broadcast()
	return len(b), nil
}

func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.emptyLocked() {
		p.change.Wait()
	}
	return p.takeLocked(b)
}

// readAhead is Read of what is there; 0 bytes and no error when that is nothing yet.
func (p *pipe) readAhead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.emptyLocked() {
		return 0, nil
	}
	return p.takeLocked(b)
}

// emptyLocked reports whether a Read has to wait.
func (p *pipe) emptyLocked() bool { return p.read == len(p.buf) && !p.ended && !p.broken }

func (p *pipe) takeLocked(b []byte) (int, error) {
	if p.broken || p.read == len(p.buf) {
		return 0, io.EOF
	}
	n := copy(b, p.buf[p.read:])
	if p.read += n; p.read == len(p.buf) {
		p.read = 0
		if p.buf = p.buf[:0]; cap(p.buf) > pipeBound/16 {
			p.buf = nil // an idle session keeps no buffer
		}
	}
	p.change.Broadcast()
	return n, nil
}

// end makes Writes fail and Read end behind what is there.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.change.Broadcast()
}

// abort also drops what is there.
func (p *pipe) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended, p.broken, p.buf, p.read = true, true, nil, 0
	p.change.Broadcast()
}
