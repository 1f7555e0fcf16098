package traffic

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// Bounds of a recording, in bytes.
const (
	// maxQueued is what waits to be written. A line that does not fit is left out.
	maxQueued = 8 << 20
	// maxFile is the size at which a file is full.
	maxFile = 8 << 20
	// maxLine is what is kept of a line: its beginning.
	maxLine = 1 << 20
)

// Recording records one agent process. Its methods are safe for concurrent use. Close it.
type Recording struct {
	clean func(string) string
	wake  chan struct{} // cap 1
	done  chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	queue   []entry
	queued  int // bytes in queue
	lost    loss
	told    uint64 // lines that were told
	written uint64 // of them those that are in the file, or left out
	settled chan struct{}
	folder  string
	placed  bool // the folder is known
	over    bool // nothing is recorded any more: it was closed, or writing has failed
	ended   func(error)
}

var _ adapters.Tap = (*Recording)(nil)

// entry is one line that waits.
type entry struct {
	at   time.Time
	from string
	line []byte
}

// loss is what was left out since the last line.
type loss struct{ lines, bytes int }

// Who a line is from.
const (
	fromGateway = "gateway"
	fromAgent   = "agent"
)

// New returns a recording that keeps lines in memory until it is told where to write them.
// clean takes secrets out of a line.
func New(clean func(string) string) *Recording {
	r := &Recording{clean: clean, wake: make(chan struct{}, 1), done: make(chan struct{}), settled: make(chan struct{})}
	go r.run()
	return r
}

// Into says in which folder the recording is, which must exist. The first call counts.
// ended is called once, by another goroutine, when writing has failed.
func (r *Recording) Into(folder string, ended func(error)) {
	r.mu.Lock()
	if !r.placed {
		r.folder, r.ended, r.placed = folder, ended, true
	}
	r.mu.Unlock()
	r.stir()
}

// ToAgent implements [adapters.Tap].
func (r *Recording) ToAgent(line []byte) { r.tell(fromGateway, line) }

// FromAgent implements [adapters.Tap].
func (r *Recording) FromAgent(line []byte) { r.tell(fromAgent, line) }

func (r *Recording) tell(from string, line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if r.queued+len(line) > maxQueued {
		r.lost.lines, r.lost.bytes = r.lost.lines+1, r.lost.bytes+len(line)
		return
	}
	r.queue = append(r.queue, entry{time.Now(), from, slices.Clone(line)})
	r.queued += len(line)
	r.told++
	r.stir()
}

func (r *Recording) stir() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Flush waits until what was told before is in the file.
func (r *Recording) Flush(ctx context.Context) error {
	r.mu.Lock()
	want := r.told
	for r.placed && !r.over && r.written < want {
		settled := r.settled
		r.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		r.mu.Lock()
	}
	over := r.over
	r.mu.Unlock()
	if over { // the rest is being written
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close writes what waits and ends the recording. What has no folder by now is gone.
func (r *Recording) Close() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.stir()
	<-r.done
}

// run writes until the recording is over.
func (r *Recording) run() {
	defer close(r.done)
	var f *files
	for range r.wake {
		r.mu.Lock()
		if !r.placed {
			over := r.over
			r.mu.Unlock()
			if over {
				return
			}
			continue
		}
		batch, lost, folder, over := r.queue, r.lost, r.folder, r.over
		r.queue, r.queued, r.lost = nil, 0, loss{}
		r.mu.Unlock()
		err := error(nil)
		if f == nil {
			f, err = open(folder)
		}
		if err == nil {
			err = f.add(batch, lost, r.clean)
		}
		if err != nil || over {
			if f != nil {
				err = errors.Join(err, f.close())
			}
			r.end(err)
			return
		}
		r.settle(len(batch))
	}
}

func (r *Recording) settle(lines int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written += uint64(lines)
	close(r.settled)
	r.settled = make(chan struct{})
}

// end ends the recording. Whoever owns it is told why, unless it was closed, or the session
// is deleted.
func (r *Recording) end(err error) {
	r.mu.Lock()
	r.over, r.queue, r.queued = true, nil, 0
	close(r.settled)
	r.settled = make(chan struct{})
	ended := r.ended
	r.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && ended != nil {
		ended(err)
	}
}
