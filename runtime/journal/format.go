package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/klauspost/compress/s2"
)

// ErrFormat is matched by the error for a file that this version of the package
// does not understand. Such a file is never changed.
var ErrFormat = errors.New("journal: the file's format is not known")

const (
	versionLead = "sandbox-agent journal "
	versionLine = versionLead + "2\n"

	// A block's mark holds two bytes that no JSON text has within a line, so
	// nothing that is logged looks like one.
	blockMark  = "\x00j2\n"
	headerSize = 56

	compressFrom = 256 // bytes of lines; what is shorter is stored as it is
)

// What a block holds.
const (
	entries    = 'e' // lines of entries
	aboutBlock = 'h' // what is known of the session, for one whose record is lost
	closed     = 'c' // nothing: the log was closed, or given back, in good order
	lost       = 'g' // nothing: entries from first up to bound were lost
	expired    = 'x' // nothing: entries up to bound were let go; at the file's beginning
)

const (
	stored     = 0
	compressed = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header stands before each block's payload.
type header struct {
	kind    byte
	codec   byte
	first   uint64 // number of the first entry; of the next one when there is none
	count   uint32
	raw     uint32 // bytes of the payload before compression
	stored  uint32 // bytes of the payload in the file
	sum     uint32 // of the payload in the file
	bound   uint64 // numbers up to it may have been given
	skipped uint64 // numbers before first that no entry had: those of entries that are lost are not among them
	boot    uint32 // the machine's run in which it was written
}

// last is the newest number that was given when the block was written.
func (h *header) last() uint64 {
	if h.kind == lost || h.kind == expired {
		return h.bound
	}
	return h.first + uint64(h.count) - 1
}

// next is the number that the next entry has, unless numbers were skipped. The
// zero header is before the first.
func (h *header) next() uint64 {
	if h.kind == 0 {
		return 1
	}
	return h.last() + 1
}

// misses reports whether entries that came between the block before and this one are not in the file: more numbers lie
// between the two than were skipped.
func (h *header) misses(before *header) bool {
	between, skipped := int64(h.first-before.next()), int64(h.skipped-before.skipped)
	if before.kind == lost && skipped > between { // earlier versions took the numbers of what was lost for skipped ones
		skipped -= int64(before.next() - before.first)
	}
	return between > 0 && skipped < between
}

// cutOff reports whether the machine was stopped between the two blocks: entries whose numbers were given may never have
// reached the disk.
func (h *header) cutOff(before *header) bool {
	return before.kind != 0 && before.kind != closed && before.kind != expired && before.boot != h.boot
}

// length is what the block takes in the file.
func (h *header) length() int64 { return headerSize + int64(h.stored) }

func (h *header) put(b []byte) {
	copy(b, blockMark)
	b[4], b[5], b[6], b[7] = h.kind, h.codec, 0, 0
	binary.LittleEndian.PutUint64(b[8:], h.first)
	binary.LittleEndian.PutUint32(b[16:], h.count)
	binary.LittleEndian.PutUint32(b[20:], h.raw)
	binary.LittleEndian.PutUint32(b[24:], h.stored)
	binary.LittleEndian.PutUint32(b[28:], h.sum)
	binary.LittleEndian.PutUint64(b[32:], h.bound)
	binary.LittleEndian.PutUint64(b[40:], h.skipped)
	binary.LittleEndian.PutUint32(b[48:], h.boot)
	binary.LittleEndian.PutUint32(b[52:], crc32.Checksum(b[:52], castagnoli))
}

// readHeader reads the header that b begins with; ok is false when there is none.
func readHeader(b []byte) (h header, ok bool) {
	if len(b) < headerSize || string(b[:4]) != blockMark || crc32.Checksum(b[:52], castagnoli) != binary.LittleEndian.Uint32(b[52:]) {
		return h, false
	}
	return header{
		kind: b[4], codec: b[5],
		first:   binary.LittleEndian.Uint64(b[8:]),
		count:   binary.LittleEndian.Uint32(b[16:]),
		raw:     binary.LittleEndian.Uint32(b[20:]),
		stored:  binary.LittleEndian.Uint32(b[24:]),
		sum:     binary.LittleEndian.Uint32(b[28:]),
		bound:   binary.LittleEndian.Uint64(b[32:]),
		skipped: binary.LittleEndian.Uint64(b[40:]),
		boot:    binary.LittleEndian.Uint32(b[48:]),
	}, true
}

// seal makes b, the header's place and a payload, a block.
func (h *header) seal(b []byte, codec byte, raw int) {
	payload := b[headerSize:]
	h.codec, h.raw, h.stored = codec, uint32(raw), uint32(len(payload))
	h.sum = crc32.Checksum(payload, castagnoli)
	h.put(b)
}

// compress appends raw, compressed, to dst, which it returns as it was when that does not take less.
func compress(dst, raw []byte) []byte {
	start, n := len(dst), s2.MaxEncodedLen(len(raw))
	if cap(dst)-start < n {
		dst = append(make([]byte, 0, start+n), dst...)
	}
	if out := s2.Encode(dst[start:start+n], raw); len(out) < len(raw)-len(raw)/8 {
		return dst[:start+len(out)]
	}
	return dst
}

// appendBlock appends the block with the payload raw to dst. The caller sets
// what of h is not the payload's.
func appendBlock(dst []byte, h header, raw []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	codec := byte(stored)
	if len(raw) >= compressFrom {
		dst = compress(dst, raw)
	}
	if len(dst) > start+headerSize {
		codec = compressed
	} else {
		dst = append(dst, raw...)
	}
	h.seal(dst[start:], codec, len(raw))
	return dst
}

// appendPayload appends the block's payload as it was before compression.
func (h *header) appendPayload(dst, payload []byte) ([]byte, error) {
	switch h.codec {
	case stored:
		return append(dst, payload...), nil
	case compressed:
		n, err := s2.DecodedLen(payload)
		if err != nil || n != int(h.raw) {
			return dst, fmt.Errorf("it decodes to %d bytes and not %d: %w", n, h.raw, err)
		}
		start := len(dst)
		if cap(dst)-start < n {
			dst = append(make([]byte, 0, start+n), dst...)
		}
		if _, err := s2.Decode(dst[start:start+n], payload); err != nil {
			return dst, err
		}
		return dst[:start+n], nil
	}
	return dst, fmt.Errorf("%w: blocks are coded as %d", ErrFormat, h.codec)
}

// dataStart returns where the blocks of a file begin that begins with head. A
// line that is damaged is for whoever reads the blocks.
func dataStart(head []byte) (int64, error) {
	if bytes.HasPrefix(head, []byte(versionLine)) {
		return int64(len(versionLine)), nil
	}
	if rest, ok := strings.CutPrefix(string(head), versionLead); ok {
		digits, blocks, ok := strings.Cut(rest, "\n")
		// A digit may be damaged, too: blocks of another version begin with another mark.
		if ok && digits != "" && strings.Trim(digits, "0123456789") == "" && !strings.HasPrefix(blocks, blockMark) {
			return 0, fmt.Errorf("%w: it has version %s: it was written by a newer sandbox-agent", ErrFormat, digits)
		}
	}
	return 0, nil
}
