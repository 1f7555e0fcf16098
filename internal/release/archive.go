package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// member is a file of an archive.
type member struct {
	name string
	mode os.FileMode // 0 is 0o644
	data []byte
}

func (m member) perm() os.FileMode {
	if m.mode == 0 {
		return 0o644
	}
	return m.mode
}

// archive packs a platform's programs with the license into one file: a zip for Windows,
// else a tar.
func archive(o options, p platform, staged string) error {
	name := fmt.Sprintf("sandbox-agent-%s-%s-%s", o.version, p.os, p.arch)
	var all []member
	read := func(from, as string, mode os.FileMode) error {
		data, err := os.ReadFile(from)
		all = append(all, member{name + "/" + as, mode, data})
		return err
	}
	var err error
	for _, program := range programs {
		err = errors.Join(err, read(filepath.Join(staged, p.file(program)), program+p.suffix(), 0o755))
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		err = errors.Join(err, read(filepath.Join(o.root, file), file, 0))
	}
	if err != nil {
		return fmt.Errorf("make an archive: %w", err)
	}
	if p.os == "windows" {
		return writeZip(filepath.Join(staged, name+".zip"), all)
	}
	return writeTarGz(filepath.Join(staged, name+".tar.gz"), all)
}

// writeTarGz and writeZip make an archive. The same files give the same bytes: it tells no
// user, and no time but the first that such an archive knows.
func writeTarGz(name string, all []member) error {
	return writeArchive(name, func(to io.Writer) error {
		packed, err := gzip.NewWriterLevel(to, gzip.DefaultCompression)
		if err != nil {
			return err
		}
		w := tar.NewWriter(packed)
		for _, m := range all {
			header := &tar.Header{Name: m.name, Mode: int64(m.perm()), Size: int64(len(m.data)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
			if err := w.WriteHeader(header); err != nil {
				return err
			}
			if _, err := w.Write(m.data); err != nil {
				return err
			}
		}
		return errors.Join(w.Close(), packed.Close())
	})
}

func writeZip(name string, all []member) error {
	return writeArchive(name, func(to io.Writer) error {
		w := zip.NewWriter(to)
		w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.DefaultCompression) })
		for _, m := range all {
			header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
			header.SetMode(m.perm())
			file, err := w.CreateHeader(header)
			if err != nil {
				return err
			}
			if _, err := file.Write(m.data); err != nil {
				return err
			}
		}
		return w.Close()
	})
}

func writeArchive(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err == nil {
		err = errors.Join(write(f), f.Close())
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", filepath.Base(name), err)
	}
	return nil
}
