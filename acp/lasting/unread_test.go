package lasting

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// What a client does not read is bounded by its bytes, too, and comes in order.
func TestConn_LargeMessagesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := newWire()
		c := New(Options{Dial: dials(one)})
		begin(t, c, one)
		const n, size = 40, 1 << 20
		sent := make(chan int, n)
		go func() {
			for i := range n {
				one.says(`{"jsonrpc":"2.0","method":"x/%d","params":{"x":%q}}`, i, strings.Repeat("x", size))
				sent <- i
			}
		}()
		synctest.Wait()
		if took := len(sent) * size; took > unreadBytes+3*size {
			t.Errorf("%d bytes were taken of a client that does not read", took)
		}
		for i := range n {
			m, err := c.Read(t.Context())
			if err != nil || m.Method() != fmt.Sprint("x/", i) {
				t.Fatalf("%s came as number %d: %v", m.Method(), i, err)
			}
		}
		_ = c.Close()
	})
}
