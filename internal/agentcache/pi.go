package agentcache

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// Pi is the newest version of Pi that all tests passed with. It cannot be
	// installed with npm: packages that it names were not published. Its program
	// is one file and needs them only for what the tests leave out.
	Pi = "1.5.2"
	// PiInstallable is the newest version that npm installs.
	PiInstallable = "0.87.1"
	// PiLegacy is a version from before most of what the bridge relies on: its
	// runs say nothing when they have settled.
	PiLegacy = "0.73.1"
)

// piBeside is what the program of Pi needs beside it: it loads extensions by the
// one and makes images smaller by the other.
var piBeside = []string{"jiti@2.7.0", "@silvia-odwyer/photon-node@0.3.4"}

// Script is a program that Node.js runs.
type Script struct {
	Node string // the program that runs it
	File string
}

// PiScript returns a version of Pi, with a Node.js that runs it. The test is
// skipped, with the reason, when npm is missing or cannot reach its registry.
func PiScript(t testing.TB, version string) Script {
	t.Helper()
	bin := Node(t)
	switch version {
	case PiLegacy:
		return Script{bin, NPM(t, "@mariozechner/pi-coding-agent/dist/cli.js", "@mariozechner/pi-coding-agent@"+version)}
	case Pi:
		return Script{bin, orSkip(t, PiFile)}
	}
	return Script{bin, NPM(t, "@earendil-works/pi-coding-agent/dist/cli.js", "@earendil-works/pi-coding-agent@"+version)}
}

// PiFile returns the file of [Pi], for programs that are no tests.
func PiFile(ctx context.Context) (string, error) {
	return unpacked(ctx, "@earendil-works/pi-coding-agent", Pi, "dist/bundle/cli.js", piBeside...)
}

// Unpacked is [NPM] for a package whose dependencies cannot all be installed: it
// is unpacked beside those that are named, and nothing else is installed for it.
// It returns the path of a file of the package.
func Unpacked(t testing.TB, name, version, file string, beside ...string) string {
	t.Helper()
	return orSkip(t, func(ctx context.Context) (string, error) { return unpacked(ctx, name, version, file, beside...) })
}

func unpacked(ctx context.Context, name, version, file string, beside ...string) (string, error) {
	key := strings.Join(slices.Concat([]string{name + "@" + version + "-unpacked"}, beside), "\n")
	return cached(ctx, key, filepath.Join(filepath.FromSlash(name), filepath.FromSlash(file)), func(ctx context.Context, root string) error {
		return installWith(ctx, root, beside, func(tmp string) error { return unpack(ctx, tmp, name, version) })
	})
}

// unpack puts a package where npm would have put it below tmp.
func unpack(ctx context.Context, tmp, name, version string) error {
	packs, err := os.MkdirTemp(tmp, "packs-")
	if err != nil {
		return fmt.Errorf("make a folder for a package: %w", err)
	}
	defer os.RemoveAll(packs)
	cmd := exec.CommandContext(ctx, "npm", "pack", "--ignore-scripts", "--loglevel=error", name+"@"+version)
	cmd.Dir = packs
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s@%s: %w\n%s", name, version, err, out)
	}
	found, err := filepath.Glob(filepath.Join(packs, "*.tgz"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("npm pack %s@%s made %q, %w", name, version, found, err)
	}
	dir := filepath.Join(tmp, "node_modules", filepath.FromSlash(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of a package: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xzf", found[0], "--strip-components=1", "-C", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", found[0], err, out)
	}
	return nil
}
