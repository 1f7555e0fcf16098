package journal

import "sync"

// To write takes new pages of the system's cache, which costs as much as to compress what repeats itself. To compress
// other text costs several times as much, and waits until the log is given back.
const (
	packFrom = 3 << 10 // bytes that are written at once

	firstPause, longestPause = 16, 1024 // blocks that are written as they are behind one that does not repeat itself
)

// packing is whether blocks are compressed as they are written.
type packing struct {
	pause int // of the next block that does not repeat itself
	left  int // blocks until the next one is tried
}

// scratch holds room for a block that is written compressed.
var scratch = sync.Pool{New: func() any {
	b := make([]byte, 0, headerSize+2*maxBlock)
	return &b
}}

// pack returns the block with the payload of b, of which the header is the place before it, compressed, nil when it is to be written as it is. The
// result goes back to scratch.
func (p *packing) pack(h *header, b []byte) *[]byte {
	raw := b[headerSize:]
	if h.kind != entries || len(raw) < packFrom || len(raw) > maxBlock {
		return nil
	}
	if p.left > 0 {
		p.left--
		return nil
	}
	out := scratch.Get().(*[]byte)
	*out = compress((*out)[:headerSize], raw)
	if n := len(*out) - headerSize; n == 0 || n > len(raw)/4 {
		p.pause = min(max(2*p.pause, firstPause), longestPause)
		p.left = p.pause
		if n == 0 {
			scratch.Put(out)
			return nil
		}
	} else {
		p.pause = 0
	}
	h.seal(*out, compressed, len(raw))
	return out
}
