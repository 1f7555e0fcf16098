//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
)

// outside is a folder with a release of small files, a repository that is ready for it,
// and programs in PATH that note how they were called.
func outside(t *testing.T, version string) (o options, dir string, called func() []string) {
	t.Helper()
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "called")
	for _, name := range []string{"gh", "npm", "docker", "uv"} {
		write(t, filepath.Join(bin, name), "#!/bin/sh\necho \"$(basename \"$0\") $*\" >>"+log+"\ncase \"$*\" in *$REFUSE*) exit 3;; esac\n")
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("REFUSE", "nothing at all")
	t.Setenv("ACTIONS_ID_TOKEN_REQUEST_URL", "")
	t.Setenv("UV_PUBLISH_TOKEN", "x")
	o = options{version: version, root: t.TempDir(), notes: "What is new.\n"}
	dir = t.TempDir()
	for _, name := range []string{
		"SHA256SUMS", "acp-http-client-" + version + ".tgz", "install.sh", "notes.md", "sandbox-agent-" + version + ".tgz", "sandbox-agent-darwin-arm64",
		"sandbox_agent-" + version + ".tar.gz", "sandbox_agent-" + version + "-py3-none-any.whl",
		"sandbox-agent-linux-x64-" + version + ".tgz", "sandbox-agent-linux-arm64-" + version + ".tgz",
	} {
		write(t, filepath.Join(dir, name), name)
	}
	write(t, filepath.Join(dir, platform{goruntime.GOOS, goruntime.GOARCH}.file("sandbox-agent")), "#!/bin/sh\necho sandbox-agent version "+version+"\n")
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "--allow-empty", "-m", "x"}, {"tag", "v" + version}} {
		if out, err := exec.Command("git", append([]string{"-C", o.root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return o, dir, func() []string {
		b, _ := os.ReadFile(log)
		return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(b), dir+"/", "")), "\n")
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// uploads are the calls that change something outside.
func uploads(calls []string) (out []string) {
	for _, c := range calls {
		if !slices.Contains([]string{"gh auth status", "npm whoami", "docker buildx inspect", "uv --version", ""}, c) {
			out = append(out, c)
		}
	}
	return out
}

// What others need is out before those who need it, and nobody sees the release before all
// of it is.
func TestPublish_InOrder(t *testing.T) {
	o, dir, called := outside(t, "1.2.3")
	var said strings.Builder
	if err := publish(t.Context(), o, dir, &said); err != nil {
		t.Fatalf("%v\n%s", err, &said)
	}
	const build = "docker buildx build --platform linux/amd64,linux/arm64 --file examples/docker/Dockerfile --target %s --build-arg VERSION=1.2.3 --provenance=mode=max --sbom=true --tag ghcr.io/sandboxagent/%s:1.2.3 --tag ghcr.io/sandboxagent/%s:latest --push ."
	files := "SHA256SUMS install.sh sandbox-agent-darwin-arm64"
	const python = " sandbox_agent-1.2.3-py3-none-any.whl sandbox_agent-1.2.3.tar.gz"
	if here := (platform{goruntime.GOOS, goruntime.GOARCH}).file("sandbox-agent"); !strings.Contains(files, here) {
		files += " " + here
	}
	files += python
	want := []string{
		"gh release create v1.2.3 --verify-tag --draft --title v1.2.3 --notes-file notes.md",
		"gh release upload v1.2.3 --clobber " + files,
		"npm publish sandbox-agent-linux-arm64-1.2.3.tgz --access public",
		"npm publish sandbox-agent-linux-x64-1.2.3.tgz --access public",
		"npm publish acp-http-client-1.2.3.tgz --access public",
		"npm publish sandbox-agent-1.2.3.tgz --access public",
		"uv publish" + python,
		fmt.Sprintf(build, "gateway", "sandbox-agent", "sandbox-agent"),
		fmt.Sprintf(build, "hub", "sandbox-hub", "sandbox-hub"),
		"gh release edit v1.2.3 --draft=false",
	}
	if got := uploads(called()); !slices.Equal(got, want) {
		t.Errorf("called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A version before a release is nobody's newest one.
func TestPublish_BeforeARelease(t *testing.T) {
	o, dir, called := outside(t, "1.2.3-rc.1")
	if err := publish(t.Context(), o, dir, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	for _, c := range uploads(called()) {
		if strings.Contains(c, "latest") || strings.HasPrefix(c, "npm publish") && !strings.HasSuffix(c, "--tag next") || strings.HasPrefix(c, "gh release create") && !strings.HasSuffix(c, "--prerelease") {
			t.Errorf("called %s", c)
		}
	}
}

// What fails in the middle leaves a draft, and says where to go on.
func TestPublish_FailsInTheMiddle(t *testing.T) {
	o, dir, called := outside(t, "1.2.3")
	t.Setenv("REFUSE", "publish*acp-http-client")
	err := publish(t.Context(), o, dir, new(strings.Builder))
	if err == nil || !strings.Contains(err.Error(), "the package acp-http-client-1.2.3.tgz: exit status 3") || !strings.Contains(err.Error(), "from step 5 on") {
		t.Errorf("%v", err)
	}
	if got := uploads(called()); len(got) != 5 || strings.Contains(strings.Join(got, "\n"), "--draft=false") {
		t.Errorf("called %q", got)
	}
}

// What is missing is said before anything leaves, and a dry run lets nothing leave.
func TestPublish_WhatItNeeds(t *testing.T) {
	for _, tt := range []struct {
		says    string
		without func(t *testing.T, o options, dir string)
	}{
		{"no   the work tree is clean", func(t *testing.T, o options, _ string) { write(t, filepath.Join(o.root, "left"), "x") }},
		{"no   the commit has the tag v1.2.3: git tag v1.2.3", func(t *testing.T, o options, _ string) {
			_ = exec.Command("git", "-C", o.root, "tag", "-d", "v1.2.3").Run()
		}},
		{"no   somebody is logged in at GitHub", func(t *testing.T, _ options, _ string) { t.Setenv("REFUSE", "auth") }},
		{"no   somebody is logged in at npm", func(t *testing.T, _ options, _ string) { t.Setenv("REFUSE", "whoami") }},
		{"no   somebody may publish for Python", func(t *testing.T, _ options, _ string) { t.Setenv("UV_PUBLISH_TOKEN", "") }},
		{"no   docker can build", func(t *testing.T, _ options, _ string) { t.Setenv("REFUSE", "inspect") }},
		{"no   the program of this machine runs", func(t *testing.T, _ options, dir string) {
			write(t, filepath.Join(dir, platform{goruntime.GOOS, goruntime.GOARCH}.file("sandbox-agent")), "#!/bin/sh\nexit 1\n")
		}},
	} {
		t.Run(tt.says, func(t *testing.T) {
			o, dir, called := outside(t, "1.2.3")
			tt.without(t, o, dir)
			var said strings.Builder
			if err := publish(t.Context(), o, dir, &said); err == nil || !strings.Contains(said.String(), tt.says) {
				t.Errorf("%v\n%s", err, &said)
			}
			o.dryRun = true
			if err := publish(t.Context(), o, dir, &said); err != nil || !strings.Contains(said.String(), "gh release edit v1.2.3 --draft=false\nnothing was published") {
				t.Errorf("a dry run: %v\n%s", err, &said)
			}
			if got := uploads(called()); len(got) > 0 {
				t.Errorf("called %q", got)
			}
		})
	}
}

func TestChangesOf(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "CHANGELOG.md"), "# Changes\n\n## 1.1.0\n\n- new\n\n### part\n\n- more\n\n## 1.0.0\n\nfirst\n")
	for _, tt := range []struct{ version, want, err string }{
		{"", "1.1.0 - new\n\n### part\n\n- more\n", ""},
		{"1.0.0", "1.0.0 first\n", ""},
		{"2.0.0", "", "no heading ## 2.0.0; it has 1.1.0, 1.0.0"},
	} {
		got, err := changesOf(root, tt.version)
		if tt.err == "" && (err != nil || got.version+" "+got.text != tt.want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: %+v, %v", tt.version, got, err)
		}
	}
	for text, want := range map[string]string{"## soon\n\nx\n": `"soon" is not a version`, "## 1.0.0\n\n## 0.9.0\n\nx\n": "says nothing under 1.0.0"} {
		write(t, filepath.Join(root, "CHANGELOG.md"), text)
		if _, err := changesOf(root, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := changesOf("../..", ""); err != nil {
		t.Error(err)
	}
}
