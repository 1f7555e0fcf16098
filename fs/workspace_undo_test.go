package fs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// killed is what a step panics with in the place of the end of the process.
type killed struct{}

// until does something up to its n-th step; over reports that it has fewer.
func until(s *Service, n int, do func()) (over bool) {
	s.reached = func(string) {
		if n--; n < 0 {
			panic(killed{})
		}
	}
	defer func() {
		s.reached = nil
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
		}
	}()
	do()
	return true
}

// A process is killed at each step of putting a workspace into a folder, and at each of
// taking it back. The folder is then as it was before, and takes the workspace after all.
func TestWorkspace_KilledAtEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	repository := func(t *testing.T, dir string) {
		git(t, dir, "init", "-q", "-b", "main")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "first")
	}
	changed := func(t *testing.T, home, away string) {
		put(t, away+"/a", "there\n")
		remove(t, away+"/dir")
		put(t, away+"/new/er/file", "new\n")
		remove(t, away+"/swap")
		put(t, away+"/swap/now", "a folder\n")
		link(t, "a", away+"/l")
		put(t, home+"/own", "mine\n")
	}
	for name, build := range map[string]func(t *testing.T, v *traveller, home, away string){
		"repositories": func(t *testing.T, v *traveller, home, away string) {
			repository(t, home)
			v.must(home, away)
			changed(t, home, away)
			git(t, away, "checkout", "-qb", "topic")
			git(t, away, "add", "-A")
			git(t, away, "commit", "-qm", "second")
			put(t, away+"/b", "staged\n")
			git(t, away, "add", "b")
		},
		"a repository where files are": func(t *testing.T, v *traveller, home, away string) {
			repository(t, home)
			v.must(home, away)
			changed(t, home, away)
			remove(t, home+"/.git")
			remove(t, home+"/own")
		},
		"files": func(t *testing.T, v *traveller, home, away string) { v.must(home, away); changed(t, home, away) },
		"an empty folder": func(t *testing.T, v *traveller, home, away string) {
			repository(t, home)
			v.must(home, away)
			remove(t, home)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			s := open(t, Options{Root: top})
			v := &traveller{t, s, map[string]*Places{}}
			home, away, dir := top+"/home", top+"/away", top+"/work"
			for _, name := range []string{"a", "b", "dir/deep/only", "swap"} {
				put(t, home+"/"+name, name+"\n")
			}
			build(t, v, home, away)
			ws, p := v.take(away, TakeOptions{})
			copied := func() {
				remove(t, dir)
				if _, err := os.Lstat(home); err == nil {
					if out, err := exec.CommandContext(t.Context(), "cp", "-a", home, dir).CombinedOutput(); err != nil {
						t.Fatalf("%v, %s", err, out)
					}
				}
			}
			state := func() map[string]string {
				if _, err := os.Lstat(dir); err != nil {
					return map[string]string{}
				}
				all := contents(t, dir)
				if _, err := os.Lstat(dir + "/.git"); err == nil {
					for _, args := range [][]string{{"ls-files", "--stage"}, {"for-each-ref"}, {"symbolic-ref", "HEAD"}, {"status", "--porcelain=v1"}} {
						all[strings.Join(args, " ")] = git(t, dir, args...)
					}
				}
				return all
			}
			place := func() {
				placed, err := s.PlaceWorkspace(t.Context(), dir, ws, PlaceWorkspaceOptions{Merge: true, Base: v.base(home)}, p)
				if err == nil {
					err = placed.Keep()
				}
				if err != nil {
					t.Error(err)
				}
			}
			back := func() {
				if err := s.RecoverWorkspace(t.Context(), dir, "", false); err != nil {
					t.Error(err)
				}
			}
			copied()
			before := state()
			place()
			after := state()
			copied()
			steps := 0
			for !until(s, steps, place) {
				steps++
				if _, err := os.Lstat(dir + "/" + undoFile); err != nil {
					if err := s.RecoverWorkspace(t.Context(), dir, "", true); err != nil {
						t.Error(err)
					}
					differ(t, state(), after)
					copied()
					continue
				}
				for n := 0; steps%8 == 0 && !until(s, n, back); n++ { // of what takes back all, and less
				}
				back()
				differ(t, state(), before)
				if t.Failed() {
					t.Fatalf("at step %d", steps)
				}
				if steps%4 != 1 && !agentcache.IsLong() { // the long tier does it behind each step
					continue
				}
				until(s, steps, place)
				place() // which takes back by itself what is there
				differ(t, state(), after)
				copied()
			}
			if steps < 4 {
				t.Errorf("there are %d steps", steps)
			}
		})
	}
}

// What somebody has changed after the end of the process stays.
func TestRecoverWorkspace_Changed(t *testing.T) {
	top := t.TempDir()
	s := open(t, Options{Root: top})
	v := &traveller{t, s, map[string]*Places{}}
	home, away := top+"/home", top+"/away"
	for _, name := range []string{"a", "b"} {
		put(t, home+"/"+name, name+"\n")
	}
	v.must(home, away)
	put(t, away+"/a", "there\n")
	put(t, away+"/b", "there\n")
	put(t, away+"/n/x", "new\n")
	ws, p := v.take(away, TakeOptions{})
	place := func() {
		placed, err := s.PlaceWorkspace(t.Context(), home, ws, PlaceWorkspaceOptions{Merge: true, Base: v.base(home)}, p)
		if err == nil {
			err = placed.Keep()
		}
		if err != nil {
			t.Error(err)
		}
	}
	for n := 0; ; n++ {
		if until(s, n, place) {
			t.Fatal("it was not killed with all in its place")
		}
		if b, err := os.ReadFile(home + "/n/x"); err == nil && string(b) == "new\n" {
			break
		}
	}
	put(t, home+"/a", "mine\n")
	put(t, home+"/n/own", "mine\n")
	if err := s.RecoverWorkspace(t.Context(), home, "", false); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a": "mine\n", "b": "b\n", "n/own": "mine\n"} {
		if b, err := os.ReadFile(home + "/" + name); err != nil || string(b) != want {
			t.Errorf("%s is %q, %v; want %q", name, b, err, want)
		}
	}
	if _, err := os.Lstat(home + "/n/x"); err == nil {
		t.Error("what came is there")
	}
}

// Behind a power cut files are empty that were not on the disk when they got their names. The folder is then as it was
// before, too.
func TestRecoverWorkspace_EmptiedByAPowerCut(t *testing.T) {
	for name, tt := range map[string]struct {
		before map[string]string // nil for no folder
		came   []string
	}{
		"what was replaced": {map[string]string{"a.go": "before\n", "dir/b": "b\n"}, []string{"a.go", "dir/b"}},
		"what was empty":    {map[string]string{"a.go": "", "dir/b": "b\n"}, []string{"a.go", "dir/b"}},
		"what is new":       {map[string]string{"a.go": "before\n"}, []string{"a.go", "new", "er/new"}},
		"an empty folder":   {nil, []string{"a.go", "dir/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			s := open(t, Options{Root: top})
			v := &traveller{t, s, map[string]*Places{}}
			home, away := top+"/home", top+"/away"
			for name, text := range tt.before {
				put(t, home+"/"+name, text)
			}
			if tt.before != nil {
				v.must(home, away)
			}
			for _, name := range tt.came {
				put(t, away+"/"+name, "there\n")
			}
			ws, p := v.take(away, TakeOptions{})
			tried := 0
			for steps, ends := 0, 0; !t.Failed(); {
				s := open(t, Options{Root: top}) // of the next process
				over := until(s, steps, func() {
					if _, err := s.PlaceWorkspace(t.Context(), home, ws, PlaceWorkspaceOptions{Merge: true, Base: v.base(home)}, p); err != nil {
						t.Error(err)
					}
				})
				for _, name := range tt.came {
					if b, err := os.ReadFile(home + "/" + name); err == nil && string(b) == "there\n" {
						tried++
						put(t, home+"/"+name, "")
					}
				}
				next := open(t, Options{Root: top})
				recovered := until(next, ends, func() {
					if err := next.RecoverWorkspace(t.Context(), home, "", false); err != nil {
						t.Error(err)
					}
				})
				if err := open(t, Options{Root: top}).RecoverWorkspace(t.Context(), home, "", false); err != nil {
					t.Fatal(err)
				}
				now := map[string]string{}
				if _, err := os.Lstat(home); err == nil {
					now = contents(t, home)
				}
				if want := len(tt.before); len(now) != want {
					t.Errorf("at step %d, taken back to step %d, there are %d files, want %d: %v", steps, ends, len(now), want, now)
				}
				for name, text := range tt.before {
					if b, err := os.ReadFile(home + "/" + name); err != nil || string(b) != text {
						t.Errorf("at step %d, taken back to step %d, %s is %q, %v", steps, ends, name, b, err)
					}
				}
				ends++
				if recovered {
					ends, steps = 0, steps+1
				}
				if over && recovered {
					break
				}
			}
			if tried < len(tt.came) {
				t.Errorf("%d files were emptied", tried)
			}
		})
	}
}

// Nothing outside is reached by what a folder says is to be taken back.
func TestRecoverWorkspace_Hostile(t *testing.T) {
	for name, text := range map[string]string{
		"a path that leads out": undoBegins + "{}\x00c-00\t../outside\x00",
		"an absolute path":      undoBegins + "{}\x00c-00\t/outside\x00",
		"git's own":             undoBegins + "{}\x00c\t.git/config\x00",
		"a ref that is none":    undoBegins + `{"git":{"ref":"--all"}}` + "\x00",
		"a head that is none":   undoBegins + `{"git":{"headTo":"HEAD"}}` + "\x00",
		"something else":        "hello",
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			s := open(t, Options{Root: top})
			put(t, top+"/outside", "mine\n")
			put(t, top+"/dir/.git/config", "mine\n")
			put(t, top+"/dir/"+arriving+"/"+before+"/0", "theirs\n")
			put(t, top+"/dir/"+undoFile, text)
			if err := s.RecoverWorkspace(t.Context(), top+"/dir", "", false); err == nil {
				t.Error("it was taken")
			}
			for _, path := range []string{"/outside", "/dir/.git/config"} {
				if b, err := os.ReadFile(top + path); err != nil || string(b) != "mine\n" {
					t.Errorf("%s: %q, %v", path, b, err)
				}
			}
		})
	}
}

// FuzzParseUndo: whatever is read, it names paths within the folder and what git takes for
// names.
func FuzzParseUndo(f *testing.F) {
	f.Add([]byte(undoBegins + `{"whole":true}` + "\x00m.git\x00ma b\x00c-00\ta b/c\x00dnew\x00"))
	f.Add([]byte(undoBegins + `{"git":{"headWas":"refs/heads/a","ref":"refs/heads/b","refTo":"` + strings.Repeat("1", 40) + `"}}` + "\x00"))
	f.Add([]byte(undoBegins + "{}\x00c-00\t../x\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := parseUndo(b)
		if err != nil {
			return
		}
		paths := slices.Concat(u.moves, u.folders)
		for _, c := range u.changes {
			paths = append(paths, c.path)
			if isGit(c.path) {
				t.Errorf("%q was taken", c.path)
			}
		}
		for _, p := range paths {
			if !filepath.IsLocal(filepath.FromSlash(p)) {
				t.Errorf("%q was taken", p)
			}
		}
		if u.Git != nil && (strings.HasPrefix(u.Git.Ref, "-") || strings.HasPrefix(u.Git.HeadWas, "-") || strings.HasPrefix(u.Git.RefTo, "-")) {
			t.Errorf("%+v was taken", u.Git)
		}
	})
}
