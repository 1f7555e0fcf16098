package fs

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// memory returns a folder in memory if there is one, so that a disk is not what
// is measured.
func memory(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "fs-bench-")
	if err != nil {
		return b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func small(b *testing.B) []byte {
	entries := make([]string, 10_000)
	for i := range entries {
		entries[i] = fmt.Sprintf("d%02d/f%05d.txt=%s", i%100, i, bytes.Repeat([]byte("x"), 512))
	}
	return archive(b, entries...)
}

func BenchmarkUnpack_10kFiles(b *testing.B) {
	tarball, dir := small(b), memory(b)
	s, err := New(Options{Home: dir})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		if _, err := s.Unpack(b.Context(), fmt.Sprintf("%s/%d", dir, n), bytes.NewReader(tarball), nil); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = os.RemoveAll(fmt.Sprintf("%s/%d", dir, n))
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*10_000/b.Elapsed().Seconds(), "files/s")
}

// The least that unpacking can be, without any protection.
func BenchmarkUnpack_10kFilesMinimal(b *testing.B) {
	tarball, dir := small(b), memory(b)
	buf := make([]byte, 64<<10)
	n := 0
	for b.Loop() {
		n++
		root := fmt.Sprintf("%s/%d", dir, n)
		r := tar.NewReader(bufio.NewReaderSize(bytes.NewReader(tarball), copySize))
		for {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			p := filepath.Join(root, filepath.Clean("/"+h.Name))
			f, err := os.Create(p)
			if errors.Is(err, os.ErrNotExist) {
				_ = os.MkdirAll(filepath.Dir(p), 0o755)
				f, err = os.Create(p)
			}
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(struct{ io.Writer }{f}, r, buf); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
		b.StopTimer()
		_ = os.RemoveAll(root)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*10_000/b.Elapsed().Seconds(), "files/s")
}
