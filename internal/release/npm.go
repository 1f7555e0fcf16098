package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// npmNames are the platforms as npm calls them.
var npmNames = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32", "amd64": "x64", "arm64": "arm64"}

// packNPM makes the packages for npm out of the programs: one for each platform, and the
// two that people install.
func packNPM(ctx context.Context, o options, staged string) error {
	out := filepath.Join(staged, "npm")
	args := []string{"sdk-ts/scripts/release.mjs", "--version", o.version, "--out", out, "--programs", staged}
	for _, p := range o.platforms {
		args = append(args, "--platform", npmNames[p.os]+"-"+npmNames[p.arch])
	}
	cmd := exec.CommandContext(ctx, "node", args...)
	cmd.Dir = o.root
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the packages for npm: %w\n%s", err, b)
	}
	made, err := filepath.Glob(filepath.Join(out, "*.tgz"))
	if err != nil {
		return err
	}
	for _, file := range made {
		if err := os.Rename(file, filepath.Join(staged, filepath.Base(file))); err != nil {
			return fmt.Errorf("move a package: %w", err)
		}
	}
	if err := os.RemoveAll(out); err != nil {
		return fmt.Errorf("remove what the packages were made of: %w", err)
	}
	return nil
}
