package fs

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// hostile repositories name programs in every place that git looks into. Each
// has a file a that was changed; run is a program that leaves a mark.
var hostile = map[string]func(t *testing.T, dir, run string){
	"attributes and their drivers": func(t *testing.T, dir, run string) {
		put(t, dir+"/.gitattributes", "* filter=evil diff=evil merge=evil\n")
		config(t, dir, "filter.evil.clean", run, "filter.evil.smudge", run, "filter.evil.process", run, "filter.evil.required", "true",
			"diff.evil.textconv", run, "diff.evil.command", run, "merge.evil.driver", run)
	},
	"attributes of .git/info": func(t *testing.T, dir, run string) {
		put(t, dir+"/.git/info/attributes", "* filter=evil diff=evil\n")
		config(t, dir, "filter.evil.clean", run, "filter.evil.required", "true", "diff.evil.textconv", run)
	},
	"variables that name programs": func(t *testing.T, dir, run string) {
		for _, name := range []string{
			"diff.external", "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.gitProxy", "core.askPass",
			"core.alternateRefsCommand", "credential.helper", "gpg.program", "gpg.ssh.program", "interactive.diffFilter",
			"pager.diff", "pager.status", "sequence.editor", "uploadpack.packObjectsHook", "alias.diff", "alias.status",
		} {
			config(t, dir, name, run)
		}
	},
	"hooks": func(t *testing.T, dir, run string) {
		for _, hook := range []string{"post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout"} {
			script(t, dir+"/hooks/"+hook, run)
			script(t, dir+"/.git/hooks/"+hook, run)
		}
		config(t, dir, "core.hooksPath", dir+"/hooks", "core.fsmonitor", dir+"/hooks/fsmonitor-watchman")
	},
	"included configuration": func(t *testing.T, dir, run string) {
		put(t, dir+"/.git/more", "[diff]\n\texternal = "+run+"\n[core]\n\tfsmonitor = "+run+"\n")
		config(t, dir, "include.path", "more", "includeIf.gitdir:/.path", "more")
	},
	"configuration of the work tree": func(t *testing.T, dir, run string) {
		config(t, dir, "extensions.worktreeConfig", "true")
		put(t, dir+"/.git/config.worktree", "[diff]\n\texternal = "+run+"\n[core]\n\tfsmonitor = "+run+"\n")
	},
	"a submodule": func(t *testing.T, dir, run string) {
		embedded(t, dir+"/sub", run)
		put(t, dir+"/.gitmodules", "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tignore = none\n")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "submodule")
		put(t, dir+"/sub/a", "changed in the submodule\n")
		git(t, dir+"/sub", "commit", "-qam", "second")
		config(t, dir, "submodule.sub.url", dir+"/sub", "submodule.sub.update", "!"+run, "diff.submodule", "diff", "status.submoduleSummary", "true", "submodule.recurse", "true", "diff.ignoreSubmodules", "none", "submodule.sub.active", "true")
		arm(t, dir+"/sub", run)
	},
	"an embedded repository that git does not know": func(t *testing.T, dir, run string) {
		embedded(t, dir+"/sub", run)
		git(t, dir, "init", "-q", "empty")
		arm(t, dir+"/sub", run)
		arm(t, dir+"/empty", run)
		config(t, dir, "diff.submodule", "diff", "diff.external", run)
	},
	"an embedded repository": func(t *testing.T, dir, run string) {
		embedded(t, dir+"/sub", run)
		git(t, dir, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
		git(t, dir, "commit", "-qm", "embedded")
		put(t, dir+"/sub/a", "changed in the embedded one\n")
		git(t, dir+"/sub", "commit", "-qam", "second")
		config(t, dir, "diff.submodule", "diff", "diff.ignoreSubmodules", "none")
		arm(t, dir+"/sub", run)
	},
	"objects of a partial clone": func(t *testing.T, dir, run string) {
		config(t, dir, "extensions.partialClone", "origin", "remote.origin.promisor", "true", "remote.origin.url", dir,
			"remote.origin.uploadpack", run, "remote.origin.vcs", run, "protocol.allow", "always", "protocol.ext.allow", "always")
		config(t, dir, "remote.other.url", "ext::"+run, "remote.other.promisor", "true")
		oid := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD:a"))
		if err := os.Remove(filepath.Join(dir, ".git/objects", oid[:2], oid[2:])); err != nil {
			t.Fatal(err)
		}
	},
}

func config(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		git(t, dir, "config", "--local", pairs[i], pairs[i+1])
	}
}

func script(t *testing.T, path, run string) {
	t.Helper()
	put(t, path, "#!/bin/sh\nexec "+run+" \"$@\"\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// embedded makes a repository within another.
func embedded(t *testing.T, dir, run string) {
	t.Helper()
	git(t, filepath.Dir(dir), "init", "-q", filepath.Base(dir))
	put(t, dir+"/a", "one\n")
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", "first")
}

func arm(t *testing.T, dir, run string) {
	t.Helper()
	put(t, dir+"/.git/info/attributes", "* diff=evil filter=evil\n")
	config(t, dir, "diff.external", run, "core.fsmonitor", run, "diff.evil.textconv", run, "diff.evil.command", run, "filter.evil.clean", run)
}

// Whatever a repository names, nothing of it runs: also when the user's own
// configuration asks git to look into submodules.
func TestGit_HostileRepositories(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	home := t.TempDir()
	put(t, home+"/.gitconfig", "[diff]\n\tsubmodule = diff\n\tignoreSubmodules = none\n[status]\n\tsubmoduleSummary = true\n[submodule]\n\trecurse = true\n")
	for name, build := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOME", home)
			t.Setenv("SECRET_OF_THE_GATEWAY", "s3cret")
			dir, marks := t.TempDir(), t.TempDir()
			s := open(t, Options{Root: dir, Home: dir})
			run := marks + "/run"
			put(t, run, "#!/bin/sh\nenv > "+marks+"/ran\ncat\n")
			if err := os.Chmod(run, 0o755); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "init", "-q", "-b", "main")
			put(t, dir+"/a", "one\n")
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-qm", "first")
			build(t, dir, run)
			_ = os.Remove(marks + "/ran") // building one may run it
			put(t, dir+"/a", "changed\n")
			st, err := s.GitStatus(t.Context(), dir)
			if err != nil || len(st.Files) == 0 {
				t.Errorf("status: %+v, %v", st, err)
			}
			for _, o := range []DiffOptions{{}, {Staged: true}, {Base: "HEAD"}} {
				_, _, err := s.GitDiff(t.Context(), dir, o)
				if err != nil && name != "objects of a partial clone" {
					t.Errorf("diff %+v: %v", o, err)
				}
			}
			if b, err := os.ReadFile(marks + "/ran"); err == nil {
				t.Errorf("a program of the repository was run, in this environment:\n%s", b)
			}
			if name == "objects of a partial clone" {
				return // git itself refuses most of it
			}
			// The same without the protection: the test would notice.
			for _, args := range [][]string{{"status"}, {"diff"}} {
				unprotected := exec.CommandContext(t.Context(), "git", args...)
				unprotected.Dir = dir
				_ = unprotected.Run() // the programs are no good filters
			}
			if _, err := os.Stat(marks + "/ran"); err != nil {
				t.Error("git itself runs none of them: the test tests nothing")
			}
		})
	}
}
