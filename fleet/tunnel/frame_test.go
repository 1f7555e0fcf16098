package tunnel

import (
	"bytes"
	"testing"
)

// What is read as the header of a frame is written as the same bytes.
func FuzzHeader(f *testing.F) {
	f.Add(header{kind: kindData, flags: flagOpens | flagEnds, stream: 7, length: 1 << 31}.append(nil))
	f.Add(header{kind: kindAway, length: 2}.append(nil))
	f.Add(bytes.Repeat([]byte{255}, headerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		if h, err := parseHeader(b); err == nil && !bytes.Equal(h.append(nil), b[:headerSize]) {
			t.Errorf("%x is read as %+v, which is written as %x", b[:headerSize], h, h.append(nil))
		}
	})
}
