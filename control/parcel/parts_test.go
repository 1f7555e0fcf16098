package parcel_test

import (
	"bytes"
	"io"
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/control/parcel"
)

func TestStream(t *testing.T) {
	for _, size := range []int{0, 1, 2 << 20, 2<<20 + 1, 5 << 20} {
		var file bytes.Buffer
		w, err := parcel.NewWriter(&file, manifest)
		if err != nil {
			t.Fatal(err)
		}
		want := noise(size)
		s := w.Stream("workspace/x")
		for rest := want; len(rest) > 0; {
			n, err := io.WriteString(s, rest[:min(len(rest), 777_777)])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := parcel.Unpack(&file, dir, parcel.Usual, nil); err != nil {
			t.Fatal(err)
		}
		r, err := parcel.OpenStream(os.DirFS(dir), "workspace/x")
		if err != nil || r == nil {
			t.Fatalf("%d: %v", size, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want {
			t.Errorf("%d bytes became %d, %v", size, len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		for _, to := range []int{0, 1, size / 2, 2 << 20, size} { // forward, over the parts
			to = min(to, size)
			r, err := parcel.OpenStream(os.DirFS(dir), "workspace/x")
			if err != nil {
				t.Fatal(err)
			}
			at, err := r.(io.Seeker).Seek(int64(to), io.SeekCurrent)
			if rest, rerr := io.ReadAll(r); err != nil || rerr != nil || at != int64(to) || string(rest) != want[to:] {
				t.Errorf("of %d bytes, behind %d: at %d, %d bytes, %v, %v", size, to, at, len(rest), err, rerr)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if none, err := parcel.OpenStream(os.DirFS(dir), "workspace/y"); none != nil || err != nil {
			t.Errorf("what is not there: %v, %v", none, err)
		}
	}
}
