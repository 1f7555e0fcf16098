package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// read returns the elements of a list that comes in pieces.
func read(r io.Reader) (got []string, err error) {
	v := &values{r: r}
	err = v.list('[', ']', func() error {
		raw, err := v.value()
		got = append(got, string(raw))
		return err
	})
	return got, err
}

// even gives pieces of one size.
type even struct {
	r    io.Reader
	size int
}

func (e *even) Read(b []byte) (int, error) { return e.r.Read(b[:min(len(b), e.size)]) }

func TestValues_ComeInAnyPieces(t *testing.T) {
	long := strings.Repeat("long \\\" ", 3*leastRead/8) // that comes with several reads
	text := " [ 1,-2.5e3 ,\n\"a]\\\"\", {\"b\" : [true, null]},[],\"" + long + "\", 12 ] "
	want := []string{"1", "-2.5e3", `"a]\""`, `{"b" : [true, null]}`, "[]", `"` + long + `"`, "12"}
	whole, err := read(strings.NewReader(text))
	some, failed := read(&even{strings.NewReader(text), 997})
	for how, got := range map[string][]string{"whole": whole, "in pieces": some} {
		if strings.Join(got, "|") != strings.Join(want, "|") || err != nil || failed != nil {
			t.Errorf("%s: %.200q: %v, %v", how, got, err, failed)
		}
	}
	// Each byte that comes alone has a value looked at again, so a long one is not sent like that.
	short := func(s string) string { return strings.Replace(s, long, long[:800], 1) }
	bytewise, err := read(iotest.OneByteReader(strings.NewReader(short(text))))
	if strings.Join(bytewise, "|") != short(strings.Join(want, "|")) || err != nil {
		t.Errorf("bytewise: %q: %v", bytewise, err)
	}
	for n := range len(text) {
		if n > 60 && n < len(text)-20 {
			continue
		}
		for how, r := range map[string]io.Reader{
			"ends":  strings.NewReader(text[:n]),
			"fails": io.MultiReader(strings.NewReader(text[:n]), iotest.ErrReader(io.ErrUnexpectedEOF)),
		} {
			if _, err := read(r); n < len(text)-1 && !errors.Is(err, errLost) {
				t.Errorf("%s after %d bytes: %v", how, n, err)
			}
		}
	}
	for _, bad := range []string{"{}", "[1 2]", "[1,]", "[,1]", "[1}", "[01]", "[\"\x01\"]", "[tru, 1, 2]", "[{1:2}]", "[{\"a\":1,,\"b\":2}]"} {
		if got, err := read(strings.NewReader(bad)); !errors.Is(err, errNotAGateway) {
			t.Errorf("%s is read as %q: %v", bad, got, err)
		}
	}
	if got, err := read(strings.NewReader("[{\"a\":\n1}]")); err != nil || got[0] != `{"a":1}` {
		t.Errorf("line breaks stay: %q, %v", got, err)
	}
}

// What is read is what encoding/json reads, however the text comes.
func FuzzValues(f *testing.F) {
	for _, text := range []string{`[]`, `[1,"a",{"b":[null]}]`, `[1,]`, `[01]`, "[\"\\u00e9\", 1e5]", `[[[[]]]]x`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want []json.RawMessage
		dec := json.NewDecoder(bytes.NewReader(text))
		failed := dec.Decode(&want)
		if failed == nil && want == nil { // null
			return
		}
		got, err := read(iotest.DataErrReader(&pieces{text}))
		if (err == nil) != (failed == nil) {
			t.Fatalf("%q: %v, and encoding/json says %v", text, err, failed)
		}
		for i, v := range want {
			if err == nil && !alikeJSON(v, []byte(got[i])) {
				t.Errorf("%q: %q and not %q", text, got[i], v)
			}
		}
	})
}

func alikeJSON(a, b []byte) bool {
	var one, two bytes.Buffer
	return json.Compact(&one, a) == nil && json.Compact(&two, b) == nil && bytes.Equal(one.Bytes(), two.Bytes())
}

// pieces are read in parts of any length.
type pieces struct{ b []byte }

func (p *pieces) Read(to []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(to[:min(len(to), 1+rand.IntN(8))], p.b)
	p.b = p.b[n:]
	return n, nil
}
