package parcel

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// frameSize is how much of the content is one frame of Zstandard: little enough for
	// memory, and much enough to be compressed well. The frame says it, see [Passing].
	frameSize = 1 << 20
	// encoders is how many frames are compressed at one time, beside whoever writes.
	encoders = 2
	// framesAhead bounds the frames that are full and not written. A writer waits there.
	framesAhead = 3
)

// frames compresses a stream as frames by themselves, several at one time. It is not safe
// for concurrent use.
type frames struct {
	w     io.Writer
	zip   *zstd.Encoder
	now   *frame   // that is filled; nil before the first byte of it
	ahead []*frame // in the order of the stream
	free  []*frame
	err   error // the first; nothing is written behind it
}

// frame is a piece of the stream.
type frame struct {
	in, out []byte
	done    chan struct{} // has a value when out is made
}

func newFrames(w io.Writer) (*frames, error) {
	// The fastest level: most of what is large, such as git's packs, cannot be compressed
	// any more. A window that every reader must have room for.
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(encoders), zstd.WithWindowSize(frameSize), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	return &frames{w: w, zip: zip}, nil
}

// Write implements io.Writer.
func (f *frames) Write(b []byte) (int, error) {
	total := len(b)
	for len(b) > 0 && f.err == nil {
		if f.now == nil {
			f.now = f.take()
		}
		k := min(len(b), frameSize-len(f.now.in))
		f.now.in, b = append(f.now.in, b[:k]...), b[k:]
		if len(f.now.in) == frameSize {
			f.compress()
		}
	}
	return total - len(b), f.err
}

// take returns a frame that nobody uses.
func (f *frames) take() *frame {
	if n := len(f.free); n > 0 {
		one := f.free[n-1]
		f.free = f.free[:n-1]
		return one
	}
	return &frame{in: make([]byte, 0, frameSize), done: make(chan struct{}, 1)}
}

// compress begins to compress what has been written, and writes what is ready where too
// much is ahead.
func (f *frames) compress() {
	one := f.now
	f.now = nil
	f.ahead = append(f.ahead, one)
	go func() { // whoever writes the frame waits for it
		one.out = f.zip.EncodeAll(one.in, one.out[:0])
		one.done <- struct{}{}
	}()
	if len(f.ahead) == framesAhead {
		f.settle()
	}
}

// settle waits for the first frame, and writes it.
func (f *frames) settle() {
	one := f.ahead[0]
	f.ahead = append(f.ahead[:0], f.ahead[1:]...)
	<-one.done
	if f.err == nil {
		_, f.err = f.w.Write(one.out)
	}
	one.in = one.in[:0]
	f.free = append(f.free, one)
}

// Flush writes all that was written to it.
func (f *frames) Flush() error {
	if f.now != nil {
		f.compress()
	}
	for len(f.ahead) > 0 {
		f.settle()
	}
	return f.err
}

// Close flushes. It must be called, also when nothing is to be written any more.
func (f *frames) Close() error {
	err := f.Flush()
	f.err = io.ErrClosedPipe
	return err
}

// abandon has nothing more be written.
func (f *frames) abandon(err error) {
	if f.err == nil {
		f.err = err
	}
	f.now = nil
	_ = f.Close()
}
