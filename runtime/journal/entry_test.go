package journal

import (
	"math"
	"testing"
)

// What is written of an entry is read again, whoever it is for.
func TestEntry_IsReadAsItWasWritten(t *testing.T) {
	for _, to := range []Recipient{Everyone, 1, Except(1), 1795288465505582, Except(1795288465505582), Nobody, Except(Nobody), math.MaxInt64, -math.MaxInt64} {
		for _, seq := range []uint64{1, 9_999_999, math.MaxInt64} {
			line := append(appendHead(nil, seq, 1795288465992, Response, to), `{"a":1}`+lineEnd...)
			e, ok := parseLine(line[:len(line)-1])
			if !ok || e.Seq != seq || e.To != to || e.Kind != Response || string(e.Frame) != `{"a":1}` || e.Time().UnixMilli() != 1795288465992 {
				t.Errorf("%s was read as %v %+v", line, ok, e)
			}
		}
	}
	if _, ok := parseLine([]byte(`{"seq":9223372036854775808,"time":1,"kind":"r","to":0,"message":{}}`)); ok {
		t.Error("a number that is too large was read")
	}
}
