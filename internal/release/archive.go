package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// archive packs a platform's programs with the license into one file. The same programs
// give the same bytes: it tells no time and no user.
func archive(o options, p platform, staged string) (err error) {
	name := fmt.Sprintf("sandbox-agent-%s-%s-%s", o.version, p.os, p.arch)
	f, err := os.Create(filepath.Join(staged, name+".tar.gz"))
	if err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	packed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(packed)
	for _, program := range programs {
		if err := add(w, filepath.Join(staged, p.file(program)), name+"/"+program, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if err := add(w, filepath.Join(o.root, file), name+"/"+file, 0o644); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	return nil
}

func add(w *tar.Writer, from, name string, mode int64) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size(), ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err != nil {
		return fmt.Errorf("put %s into an archive: %w", name, err)
	}
	return nil
}
