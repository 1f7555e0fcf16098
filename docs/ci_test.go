package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The job of ci.mdx has the whole change in its patch, whatever the agent does with git.
func TestCI_Patch(t *testing.T) {
	page, err := os.ReadFile("ci.mdx")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(page), "cat > fix.sh <<'END'\n")
	script, _, ok := strings.Cut(script, "END\n")
	if !ok {
		t.Fatal("ci.mdx has no fix.sh")
	}
	const commit = " && git -c user.name=a -c user.email=a@example.com commit --quiet --message fixed"
	for name, does := range map[string]string{
		"neither":                              "echo two > new.txt",
		"staged":                               "echo two > new.txt && git add --all",
		"committed":                            "echo two > new.txt && git add --all" + commit,
		"beside a repository without a commit": "echo two > new.txt && git init --quiet within && touch within/file",
		"beside a repository":                  "echo two > new.txt && git init --quiet within && cd within && touch file && git add file" + commit,
		"a part of it each way":                "git add --all" + commit + " && touch empty && git add empty && echo two > new.txt",
	} {
		t.Run(name, func(t *testing.T) {
			dir, bin := t.TempDir(), t.TempDir()
			agent := "#!/bin/sh\ncat >/dev/null; echo forty-two > answer.txt && " + does + "\n"
			if err := os.WriteFile(filepath.Join(bin, "sandbox-agent"), []byte(agent), 0o700); err != nil { //nolint:gosec // a program
				t.Fatal(err)
			}
			run := func(line string) string {
				cmd := exec.CommandContext(t.Context(), "sh", "-ec", line)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "AGENT=double", "PROMPT=fix it")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", line, err, out)
				}
				return string(out)
			}
			run("git init --quiet; echo 'grep -q forty-two answer.txt' > test.sh; echo forty-one > answer.txt; printf '%s\\n' test.log fixed.patch fix.sh > .gitignore; git add .; git -c user.name=a -c user.email=a@example.com commit --quiet --message first")
			if err := os.WriteFile(filepath.Join(dir, "fix.sh"), []byte(script), 0o600); err != nil {
				t.Fatal(err)
			}
			first := run("git rev-parse HEAD")
			if within := strings.Contains(does, "git init"); !within {
				run("sh fix.sh")
			} else if said := run("! sh fix.sh 2>&1"); !strings.Contains(said, "'within/' does not have a commit") && !strings.Contains(said, "\twithin\nthese are repositories of their own") {
				t.Errorf("nobody is told that the patch is not whole: %s", said)
			}
			run("cp fixed.patch .git; git reset --quiet --hard " + strings.TrimSpace(first) + "; git clean -qffd; git apply .git/fixed.patch")
			if got := run("cat answer.txt new.txt"); got != "forty-two\ntwo\n" {
				t.Errorf("the patch makes %q", got)
			}
		})
	}
}
