package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// makeRelease makes all files beside the output folder and then moves them there.
func makeRelease(ctx context.Context, o options, progress io.Writer) (err error) {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the output folder: %w", err)
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return fmt.Errorf("find the output folder: %w", err)
	}
	staged, err := os.MkdirTemp(out, ".release-")
	if err != nil {
		return fmt.Errorf("make a folder for the release: %w", err)
	}
	defer func() { _ = os.RemoveAll(staged) }()

	fmt.Fprintln(progress, "the page")
	packages, err := buildPage(ctx, o, filepath.Join(staged, "page.json"))
	if err != nil {
		return err
	}
	for _, p := range o.platforms {
		fmt.Fprintln(progress, p)
		for _, name := range programs {
			if err := buildProgram(ctx, o, p, name, filepath.Join(staged, p.file(name)), packages); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(filepath.Join(staged, "page.json")); err != nil {
		return fmt.Errorf("remove the list of packages: %w", err)
	}
	for _, p := range o.platforms {
		if err := archive(o, p, staged); err != nil {
			return err
		}
	}
	fmt.Fprintln(progress, "the packages for npm")
	if err := packNPM(ctx, o, staged); err != nil {
		return err
	}
	fmt.Fprintln(progress, "the packages for Python")
	if err := packPython(o, staged); err != nil {
		return err
	}
	script, err := os.ReadFile(filepath.Join(o.root, "install.sh"))
	if err == nil {
		err = os.WriteFile(filepath.Join(staged, "install.sh"), script, 0o755)
	}
	if err != nil {
		return fmt.Errorf("copy the installer: %w", err)
	}
	if err := provenance(ctx, o, staged); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(staged, notesFile), []byte(o.notes), 0o644); err != nil {
		return fmt.Errorf("write the notes: %w", err)
	}
	return land(staged, out, progress)
}

// notesFile has what has changed, for the page of the release.
const notesFile = "notes.md"

// npmPackage is a package whose code is in the page.
type npmPackage struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	License string `json:"license"`
	SHA512  string `json:"sha512"` // of the package's archive, in hex; "" when unknown
}

// buildPage builds the page that goes into the program and returns what packages
// the bundler put into it.
func buildPage(ctx context.Context, o options, list string) ([]npmPackage, error) {
	cmd := exec.CommandContext(ctx, "node", "internal/release/page.mjs", list)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the page: %w\n%s", err, out)
	}
	b, err := os.ReadFile(list)
	if err != nil {
		return nil, fmt.Errorf("read the page's packages: %w", err)
	}
	var packages []npmPackage
	if err := json.Unmarshal(b, &packages); err != nil {
		return nil, fmt.Errorf("read the page's packages: %w", err)
	}
	return packages, nil
}

// buildProgram builds a program, and writes what is in it beside it.
func buildProgram(ctx context.Context, o options, p platform, name, to string, packages []npmPackage) error {
	// The state of the work tree is not in the program: an archive of the sources
	// has none, and gives the same bytes.
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "urfave_cli_no_docs", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+o.version, "-o", to, "./cmd/"+name)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %v: %w\n%s", name, p, err, out)
	}
	bom, err := describe(to, name, p, o.version, packages)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to+".cdx.json", bom, 0o644); err != nil {
		return fmt.Errorf("write the list of parts: %w", err)
	}
	return nil
}

// land writes the checksums and moves everything to the output folder; the list
// of checksums comes last, so that what it names is there.
func land(staged, out string, progress io.Writer) error {
	entries, err := os.ReadDir(staged)
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	const list = "SHA256SUMS"
	var sums bytes.Buffer
	var names []string
	for _, e := range entries {
		sum, err := checksum(filepath.Join(staged, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, e.Name())
		names = append(names, e.Name())
	}
	if err := os.WriteFile(filepath.Join(staged, list), sums.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the checksums: %w", err)
	}
	old, err := os.ReadDir(out)
	if err != nil {
		return fmt.Errorf("list the output folder: %w", err)
	}
	_ = os.Remove(filepath.Join(out, list)) // it does not describe what is there from now on
	for _, name := range append(names, list) {
		if err := os.Rename(filepath.Join(staged, name), filepath.Join(out, name)); err != nil {
			return fmt.Errorf("move a file in place: %w", err)
		}
	}
	for _, e := range old { // programs of a former release are not part of this one
		ours := slices.ContainsFunc(append([]string{"acp-http-client", "sandbox_agent"}, programs...), func(name string) bool { return strings.HasPrefix(e.Name(), name+"-") })
		if ours && !slices.Contains(names, e.Name()) {
			if err := os.Remove(filepath.Join(out, e.Name())); err != nil {
				return fmt.Errorf("remove a file of a former release: %w", err)
			}
		}
	}
	_, err = progress.Write(sums.Bytes())
	return err
}

// checksum returns a file's SHA-256 in hex.
func checksum(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("checksum: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
