package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
)

const registry = "ghcr.io/sandboxagent/"

// images are what examples/docker/Dockerfile makes of a release.
var images = []struct{ target, name string }{{"gateway", "sandbox-agent"}, {"hub", "sandbox-hub"}}

// step is one thing that publishing does, in its order.
type step struct {
	says    string
	command []string
}

// need is what has to be so before anything is published.
type need struct {
	says   string
	met    func(ctx context.Context) bool
	remedy string
}

// steps are what publishes the files in a folder. Nobody sees the release before
// everything else is out: it is a draft until the last step.
func steps(o options, dir string, files []string) []step {
	tag := "v" + o.version
	early := strings.Contains(o.version, "-")
	draft := []string{"gh", "release", "create", tag, "--verify-tag", "--draft", "--title", tag, "--notes-file", filepath.Join(dir, notesFile)}
	if early {
		draft = append(draft, "--prerelease")
	}
	upload := []string{"gh", "release", "upload", tag, "--clobber"}
	var packages, python []string
	for _, name := range files {
		if strings.HasSuffix(name, ".tgz") {
			packages = append(packages, name)
		} else if name != notesFile {
			upload = append(upload, filepath.Join(dir, name))
		}
		if strings.HasPrefix(name, "sandbox_agent-") {
			python = append(python, filepath.Join(dir, name))
		}
	}
	// What others depend on goes first.
	slices.SortStableFunc(packages, func(a, b string) int { return order(a, o.version) - order(b, o.version) })
	out := []step{{"a draft of the release, with its notes", draft}, {"its files", upload}}
	for _, name := range packages {
		publish := []string{"npm", "publish", filepath.Join(dir, name), "--access", "public"}
		if early {
			publish = append(publish, "--tag", "next")
		}
		if os.Getenv("ACTIONS_ID_TOKEN_REQUEST_URL") != "" { // only there npm can say who made it
			publish = append(publish, "--provenance")
		}
		out = append(out, step{"the package " + name, publish})
	}
	out = append(out, step{"the packages for Python", append([]string{"uv", "publish"}, python...)})
	for _, i := range images {
		build := []string{
			"docker", "buildx", "build", "--platform", "linux/amd64,linux/arm64", "--file", "examples/docker/Dockerfile", "--target", i.target,
			"--build-arg", "VERSION=" + o.version, "--provenance=mode=max", "--sbom=true", "--tag", registry + i.name + ":" + o.version,
		}
		if !early {
			build = append(build, "--tag", registry+i.name+":latest")
		}
		out = append(out, step{"the image " + i.name, append(build, "--push", ".")})
	}
	return append(out, step{"the release, for everybody", []string{"gh", "release", "edit", tag, "--draft=false"}})
}

// order puts the platforms' packages before the one that names them.
func order(name, version string) int {
	switch name {
	case "acp-http-client-" + version + ".tgz":
		return 1
	case "sandbox-agent-" + version + ".tgz":
		return 2
	}
	return 0
}

// needs are what publishing takes for granted.
func needs(o options, dir string) []need {
	runs := func(name string, args ...string) func(context.Context) bool {
		return func(ctx context.Context) bool {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Dir = o.root
			return cmd.Run() == nil
		}
	}
	return []need{
		{"the program of this machine runs, and says " + o.version, func(ctx context.Context) bool {
			here := platform{goruntime.GOOS, goruntime.GOARCH}
			return strings.Contains(output(ctx, dir, filepath.Join(dir, here.file("sandbox-agent")), "--version"), o.version)
		}, "make the release for this platform, too"},
		{"the work tree is clean", func(ctx context.Context) bool {
			cmd := exec.CommandContext(ctx, "git", "status", "--porcelain")
			cmd.Dir = o.root
			b, err := cmd.Output()
			return err == nil && len(b) == 0
		}, "commit or stash what has changed"},
		{"the commit has the tag v" + o.version, func(ctx context.Context) bool {
			return slices.Contains(strings.Fields(output(ctx, o.root, "git", "tag", "--points-at", "HEAD")), "v"+o.version)
		}, "git tag v" + o.version + " && git push origin v" + o.version},
		{"somebody is logged in at GitHub", runs("gh", "auth", "status"), "install gh, then gh auth login"},
		{"somebody is logged in at npm", runs("npm", "whoami"), "npm login; in a workflow set NODE_AUTH_TOKEN"},
		{"somebody may publish for Python", func(ctx context.Context) bool {
			return (os.Getenv("UV_PUBLISH_TOKEN") != "" || os.Getenv("ACTIONS_ID_TOKEN_REQUEST_URL") != "") && runs("uv", "--version")(ctx)
		}, "install uv and set UV_PUBLISH_TOKEN; a workflow that the index trusts needs no token"},
		{"docker can build for several platforms", runs("docker", "buildx", "inspect"), "install Docker, then docker login ghcr.io && docker buildx create --use"},
	}
}

// publish publishes the files in a folder, or says what it would do.
func publish(ctx context.Context, o options, dir string, progress io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the files: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	var files []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			files = append(files, e.Name())
		}
	}
	missing := 0
	for _, n := range needs(o, dir) {
		if n.met(ctx) {
			fmt.Fprintf(progress, "yes  %s\n", n.says)
			continue
		}
		missing++
		fmt.Fprintf(progress, "no   %s: %s\n", n.says, n.remedy)
	}
	if missing > 0 && !o.dryRun {
		return fmt.Errorf("nothing was published: %d of what it needs is missing", missing)
	}
	all := steps(o, dir, files)
	for i, s := range all {
		fmt.Fprintf(progress, "%d of %d: %s\n     %s\n", i+1, len(all), s.says, strings.Join(s.command, " "))
		if o.dryRun {
			continue
		}
		cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = o.root, progress, progress
		if err := cmd.Run(); err != nil {
			return errors.Join(
				fmt.Errorf("publish %s: %w", s.says, err),
				fmt.Errorf("the release is a draft, which nobody sees; when the reason is gone, run the commands from step %d on by hand", i+1),
			)
		}
	}
	if o.dryRun {
		fmt.Fprintln(progress, "nothing was published: this was a dry run")
	}
	return nil
}
