package acp

import (
	"bytes"
	"testing"
)

var frame50 = []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"stub-123-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"@ts=0000000000000000000#00000000;abcdefghijklmnop"}}}}`)

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{50, 1024, 65536} {
		f := bytes.Replace(frame50, []byte("abcdefghijklmnop"), bytes.Repeat([]byte("a"), n-34), 1)
		b.Run("size="+string(IntID(int64(n))), func(b *testing.B) {
			b.SetBytes(int64(len(f)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
