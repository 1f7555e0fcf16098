package journal

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// updates are messages as agents send them, of about size bytes each.
func updates(n, size int) (out [][]byte) {
	dice := rand.New(rand.NewPCG(5, 6))
	words := []string{"the ", "function ", "returns ", "an ", "error ", "if ", "file ", "is ", "not ", "there ", "and ", "then ", "test ", "of ", "package ", "runs ", "again ", "with ", "value ", "x := 1; "}
	for range n {
		b := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"0197a0f3-52c5-7cc1-b1a3-2f6cbd0a4a11","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`)
		for len(b) < size {
			b = append(b, words[dice.IntN(len(words))]...)
		}
		out = append(out, append(b, `"}}}}`...))
	}
	return out
}

func BenchmarkFlush(b *testing.B) {
	for _, size := range []int{200, 1 << 10, 64 << 10} {
		for _, batch := range []int{1, 16, 256} {
			if size*batch > 1<<20 {
				continue
			}
			b.Run(fmt.Sprintf("%dx%d", batch, size), func(b *testing.B) {
				l, _ := Open(filepath.Join(b.TempDir(), "log.journal"), Options{})
				defer l.Close()
				lines := updates(256, size)
				b.SetBytes(int64(size * batch))
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					for range batch {
						l.Append(Update, 0, lines[i%len(lines)])
						i++
					}
					if err := l.Flush(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(l.size)/float64(i), "B/entry")
			})
		}
	}
}
