package tunnel

import (
	"encoding/binary"
	"fmt"
)

// The frames are those of yamux, version 0, and one that it does not have. Each begins with a header of twelve bytes: version, kind,
// flags, stream and length. Only data is followed by something.
const (
	headerSize = 12
	// mostPayload bounds the data of a frame that is sent, so that streams take turns. What comes is
	// bounded by windows.
	mostPayload = 64<<10 - headerSize

	kindData   = 0
	kindWindow = 1 // the length is what the other end may send beyond what it could
	kindPing   = 2 // the length comes back in the answer
	kindAway   = 3 // the tunnel ends
	kindLane   = 4 // the length is the number of a lane: the hub wants it, or with flagResets the node has none
)

// The flags of frames.
const (
	flagOpens   = 1 << iota // the first frame of a stream; of a ping the question
	flagAccepts             // the first frame of the other end; of a ping the answer
	flagEnds                // nothing is sent behind it
	flagResets              // nothing is sent or read any more
)

type header struct {
	kind   byte
	flags  uint16
	stream uint32
	length uint32
}

func (h header) append(b []byte) []byte {
	b = append(b, 0, h.kind)
	b = binary.BigEndian.AppendUint16(b, h.flags)
	b = binary.BigEndian.AppendUint32(b, h.stream)
	return binary.BigEndian.AppendUint32(b, h.length)
}

// parseHeader reads the header of a frame, which has headerSize bytes.
func parseHeader(b []byte) (header, error) {
	h := header{kind: b[1], flags: binary.BigEndian.Uint16(b[2:]), stream: binary.BigEndian.Uint32(b[4:]), length: binary.BigEndian.Uint32(b[8:])}
	if b[0] != 0 || h.kind > kindLane {
		return h, fmt.Errorf("a frame of version %d and kind %d is none of the tunnel", b[0], h.kind)
	}
	return h, nil
}
