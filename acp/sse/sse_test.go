package sse

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

func decode(t *testing.T, r io.Reader, limit int) []string {
	t.Helper()
	d := NewDecoder(r, limit)
	var out []string
	for {
		ev, err := d.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ev.ID+"|"+ev.Type+"|"+string(ev.Data))
	}
}

func TestDecoder_FollowsTheStandard(t *testing.T) {
	for in, want := range map[string]string{
		"data: a\n\n":                            "|message|a",
		"data:a\r\ndata: b\r\n\r\n":              "|message|a\nb",
		"id: 7\rdata: x\r\r":                     "7|message|x",
		"\xEF\xBB\xBFdata: bom\n\n":              "|message|bom",
		": hi\nevent: e\ndata\nfoo: bar\n\n":     "|e|",
		"id: 1\ndata: a\n\ndata: b\n\n":          "1|message|a;1|message|b",
		"event: lost\n\ndata: a\n\n":             "|message|a",
		"data: cut off":                          "",
		"data: \u2028 is no line end\n\n":        "|message|\u2028 is no line end",
		"id: bad\x00\ndata: a\n\n":               "|message|a",
		"data: a\n\n:\n\ndata:  two spaces \n\n": "|message|a;|message| two spaces ",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in), "bytes": iotest.OneByteReader(strings.NewReader(in))} {
			if got := strings.Join(decode(t, r, 1000), ";"); got != want {
				t.Errorf("%q (%s): got %q, want %q", in, name, got, want)
			}
		}
	}
}

func TestAppendEvent_RoundTrips(t *testing.T) {
	var b []byte
	var want []string
	for i := range uint64(1000) {
		data := `{"n":` + strconv.FormatUint(i, 10) + `,"s":"` + strings.Repeat("x", int(i)*7) + `"}`
		b = AppendEvent(b, i+1, []byte(data))
		want = append(want, strconv.FormatUint(i+1, 10)+"|message|"+data)
	}
	got := decode(t, iotest.HalfReader(bytes.NewReader(b)), 1<<20)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Error("events differ")
	}
}

func TestDecoder_RefusesWhatIsOverTheLimit(t *testing.T) {
	for _, in := range []string{"data: " + strings.Repeat("x", 2000) + "\n\n", strings.Repeat("data: "+strings.Repeat("x", 100)+"\n", 20) + "\n"} {
		if _, err := NewDecoder(strings.NewReader(in), 1000).Next(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("err %v", err)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	f.Add([]byte("id: 1\nevent: e\ndata: a\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d1, d2 := NewDecoder(bytes.NewReader(b), 200), NewDecoder(iotest.OneByteReader(bytes.NewReader(b)), 200)
		for n := 0; ; n++ {
			e1, err1 := d1.Next()
			e2, err2 := d2.Next()
			if !errors.Is(err1, err2) || string(e1.Data) != string(e2.Data) || e1.ID != e2.ID || e1.Type != e2.Type {
				t.Fatalf("chunking changes event %d: %q %v, %q %v", n, e1.Data, err1, e2.Data, err2)
			}
			if err1 != nil {
				return
			}
			if n > len(b) {
				t.Fatal("more events than bytes")
			}
		}
	})
}

func BenchmarkAppendEvent(b *testing.B) {
	data := bytes.Repeat([]byte("x"), 200)
	var buf []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if buf = AppendEvent(buf, 123456, data); len(buf) > 256<<10 {
			buf = buf[:0]
		}
	}
}
