package ndjson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sandboxagent.dev/sandbox-agent/acp"
)

func good(i int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"m","params":{"n":%d}}`, i) }

// readAll returns every frame of the stream, and the methods.
func readAll(t *testing.T, r io.Reader, maxLine int) (frames, methods []string) {
	t.Helper()
	c := New(r, io.Discard, nil, maxLine)
	for {
		m, err := c.Read(context.Background())
		if errors.Is(err, io.EOF) {
			return frames, methods
		}
		if err != nil {
			t.Fatal(err)
		}
		frames, methods = append(frames, string(m.Frame())), append(methods, m.Method())
	}
}

func TestRead_AnyChunking(t *testing.T) {
	var in strings.Builder
	var want []string
	for i := range 300 {
		f := good(i)
		if i%50 == 0 {
			f = good(i)[:len(good(i))-2] + `,"pad":"` + strings.Repeat("ü", 40000) + `"}}`
		}
		want = append(want, f)
		in.WriteString(f + []string{"\n", "\r\n", "\n\n", " \n"}[i%4])
	}
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(in.String()), "bytes": iotest.OneByteReader(strings.NewReader(in.String())),
		"halves": iotest.HalfReader(strings.NewReader(in.String())), "data+err": iotest.DataErrReader(strings.NewReader(in.String())),
		"no last newline": strings.NewReader(strings.TrimSpace(in.String())),
	} {
		got, _ := readAll(t, r, 0)
		if len(got) != len(want) {
			t.Fatalf("%s: %d frames, want %d", name, len(got), len(want))
		}
		for i := range got {
			if strings.TrimSpace(got[i]) != want[i] {
				t.Fatalf("%s: frame %d differs", name, i)
			}
		}
	}
}

func TestRead_BadLinesBecomeNotificationsAndEndNothing(t *testing.T) {
	in := strings.Join([]string{good(0), "not json", "[1]", `{"a":`, good(1), strings.Repeat("x", 100_000), good(2), `{"jsonrpc":"2.0","method":"m","params":{"s":"` + "\xff" + `"}}`, good(3)}, "\n")
	frames, methods := readAll(t, strings.NewReader(in), 50_000)
	want := []string{"m", MethodUnparsed, MethodUnparsed, MethodUnparsed, "m", MethodUnparsed, "m", "m", "m"}
	if strings.Join(methods, " ") != strings.Join(want, " ") {
		t.Fatalf("got %v", methods)
	}
	if !strings.Contains(frames[5], "over the limit of 50000") || len(frames[5]) > 10_000 {
		t.Errorf("long line: %.200s", frames[5])
	}
	if !strings.Contains(frames[7], `"s":"`+"\uFFFD"+`"`) {
		t.Errorf("invalid UTF-8: %q", frames[7])
	}
	for _, f := range frames {
		if _, err := acp.Parse([]byte(f)); err != nil {
			t.Errorf("%.80s: %v", f, err)
		}
	}
}

func TestBuffered_TellsWhetherReadWouldWait(t *testing.T) {
	r, w := io.Pipe()
	c := New(r, io.Discard, r.Close, 0)
	go func() { _, _ = io.WriteString(w, good(0)+"\n"+good(1)+"\n"+good(2)[:10]) }()
	for i, want := range []bool{true, false} {
		if _, err := c.Read(context.Background()); err != nil {
			t.Fatal(err)
		}
		if c.Buffered() != want {
			t.Errorf("after message %d: buffered is %v", i, !want)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWrite_KeepsFramesWhole(t *testing.T) {
	var out bytes.Buffer
	c := New(strings.NewReader(""), &out, nil, 0)
	done := make(chan error, 8)
	for i := range 8 {
		go func() { done <- c.Write(context.Background(), acp.MustParse([]byte(good(i)))) }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	frames, _ := readAll(t, &out, 0)
	if len(frames) != 8 {
		t.Fatalf("%d frames", len(frames))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good(1)+"\n\xff\n"), 20)
	f.Add([]byte("{\n}\n"+good(2)), 1000)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		if limit < 1 || limit > 1<<20 {
			limit = 100
		}
		c := New(iotest.HalfReader(bytes.NewReader(b)), io.Discard, nil, limit)
		for n := 0; ; n++ {
			m, err := c.Read(context.Background())
			if err != nil {
				if err != io.EOF {
					t.Fatal(err)
				}
				return
			}
			if n > len(b) {
				t.Fatal("more messages than bytes")
			}
			if bytes.IndexByte(m.Frame(), '\n') >= 0 {
				t.Fatalf("frame with a line break: %q", m.Frame())
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"stub-123-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + strings.Repeat("a", 50) + `"}}}}` + "\n")
	c := New(endless{line}, io.Discard, nil, 0)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Read(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// endless yields as many copies of a line as fit.
type endless struct{ line []byte }

func (e endless) Read(p []byte) (n int, err error) {
	if len(p) < len(e.line) {
		return copy(p, e.line[:len(p)]), nil
	}
	for len(p)-n >= len(e.line) {
		n += copy(p[n:], e.line)
	}
	return n, nil
}
