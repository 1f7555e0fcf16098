package parcel_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"sandboxagent.dev/sandbox-agent/control/parcel"
)

func TestPassing(t *testing.T) {
	for name, content := range map[string]string{
		"that can be compressed": strings.Repeat("a line of a text\n", 500_000), "that cannot": noise(5 << 20), "one byte": strings.Repeat("a", 3<<20), "both": strings.Repeat("line\n", 300_000) + noise(1<<20),
	} {
		var file bytes.Buffer
		w, err := parcel.NewWriter(&file, manifest)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Put("agent/large", strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for how, r := range map[string]io.Reader{"at once": bytes.NewReader(file.Bytes()), "in pieces": iotest.HalfReader(bytes.NewReader(file.Bytes())), "byte by byte": iotest.OneByteReader(bytes.NewReader(file.Bytes()))} {
			done := int64(0)
			var out bytes.Buffer
			if _, err := io.Copy(&out, parcel.Passing(r, func(n int64) {
				if n < done {
					t.Fatalf("%d after %d", n, done)
				}
				done = n
			})); err != nil {
				t.Fatal(err)
			}
			if want := int64(len(content)); done < want || done > want+8192 {
				t.Errorf("%s, %s: %d bytes, want about %d", name, how, done, want)
			}
			if !bytes.Equal(out.Bytes(), file.Bytes()) {
				t.Errorf("%s, %s: it was changed", name, how)
			}
		}
	}
}

// FuzzPassing: whatever passes is not changed, and what is a frame is counted.
func FuzzPassing(f *testing.F) {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	two := append(enc.EncodeAll([]byte("hello"), nil), 0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2)
	f.Add(append(two, enc.EncodeAll(bytes.Repeat([]byte("x"), 300_000), nil)...))
	f.Add([]byte("hello"))
	f.Fuzz(func(t *testing.T, b []byte) {
		done := int64(0)
		got, err := io.ReadAll(parcel.Passing(iotest.HalfReader(bytes.NewReader(b)), func(n int64) { done = n }))
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%q, %v", got, err)
		}
		d, err := zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderMaxMemory(1<<20))
		if err != nil {
			return
		}
		defer d.Close()
		n, err := io.Copy(io.Discard, d)
		if err == nil && bytes.Equal(b[:min(len(b), 5)], []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa4}) && done < n {
			t.Errorf("%d bytes passed, and %d are told", n, done)
		}
	})
}
