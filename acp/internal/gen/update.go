package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The package and version that the schema files are taken from.
const (
	pinnedPackage = "@agentclientprotocol/sdk"
	pinnedVersion = "2.4.0"
)

// schemaFiles maps a path in the package to a file name here.
var schemaFiles = map[string]string{
	"package/schema/v1/schema.json":          "v1.json",
	"package/schema/v1/schema.unstable.json": "v1.unstable.json",
	"package/schema/v2/schema.unstable.json": "v2.unstable.json",
}

// schemaNames are the file names here, in the order in which VERSION has them.
var schemaNames = []string{"v1.json", "v1.unstable.json", "v2.unstable.json"}

// update fetches the pinned package through the user's npm configuration and
// writes its schema files and VERSION to dir.
func update(dir string) error {
	tmp, err := os.MkdirTemp("", "acp-schema-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	cmd := exec.Command("npm", "pack", "--silent", pinnedPackage+"@"+pinnedVersion, "--pack-destination", tmp)
	cmd.Dir, cmd.Stderr = tmp, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm pack: %w", err)
	}
	archives, err := filepath.Glob(filepath.Join(tmp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack left %d archives", len(archives))
	}
	found, err := unpack(archives[0])
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(archives[0]), err)
	}
	for _, name := range schemaNames {
		if err := os.WriteFile(filepath.Join(dir, name), found[name], 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "VERSION"), []byte(versionFile(found)), 0o644)
}

// versionFile is the content of VERSION for the schema files.
func versionFile(files map[string][]byte) string {
	var out strings.Builder
	fmt.Fprintf(&out, "package %s\nversion %s\n", pinnedPackage, pinnedVersion)
	for _, name := range schemaNames {
		fmt.Fprintf(&out, "%s sha256 %x\n", name, sha256.Sum256(files[name]))
	}
	return out.String()
}

// unpack returns the schema files of an npm archive.
func unpack(path string) (map[string][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	zr, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte)
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if name, ok := schemaFiles[h.Name]; ok {
			if out[name], err = io.ReadAll(tr); err != nil {
				return nil, err
			}
		}
	}
	if len(out) != len(schemaFiles) {
		return nil, fmt.Errorf("the archive holds %d of %d schema files", len(out), len(schemaFiles))
	}
	return out, nil
}
