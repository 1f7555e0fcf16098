package replica

import (
	"encoding/json"
	"testing"
)

const usualLine = `{"seq":7,"time":"2026-01-02T03:04:05.678Z","direction":"agent","message":{"jsonrpc":"2.0","method":"x","params":{"a":[1,"}",{}]}}}`

func TestUsual_IsWhatGatewaysWrite(t *testing.T) {
	if seq, ok := usual([]byte(usualLine)); !ok || seq != 7 {
		t.Errorf("%d, %v", seq, ok)
	}
}

// What is taken without being decoded is what decoding it takes.
func FuzzUsual(f *testing.F) {
	for _, line := range []string{
		usualLine,
		`{"seq":7,"time":"2026-01-02T03:04:05Z","direction":"client","message":null}`,
		`{"seq":7,"time":"2026-01-02T03:04:05Z","direction":"gateway","message":{},"seq":8}`,
		`{"seq":7,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{}}}`,
		`{"seq":7,"time":"2026-01-02T03:04:05Z","direction":"nobody","message":{}}`,
		`{"seq":07,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{}}`,
		`{"seq":0,"time":"2026-01-02T03:04:05Z","direction":"agent","message":{}}`,
		`{"seq":7,"time":"0001-01-01T00:00:00Z","direction":"agent","message":{}}`,
		`{"seq":7,"time":"2026-1-2T03:04:05Z","direction":"agent","message":{}}`,
		`{"seq":7,"time":"2026-01-02T03:04:05Z","direction":"agent","message":}`,
		`{"seq":99999999999999999999,"time":"2026-01-02T03:04:05Z","direction":"agent","message":1}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		seq, ok := usual(line)
		if !ok || !json.Valid(line) { // what is not JSON does not come so far
			return
		}
		if ev, err := EventOf(line); err != nil || ev.Seq != seq {
			t.Errorf("%q is taken as event %d, and decoded it is %d: %v", line, seq, ev.Seq, err)
		}
	})
}
