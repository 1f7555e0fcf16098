package fs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// traveller is a workspace that goes to and fro between folders, as gateways have it do:
// each keeps what is known of the places where it was. The place of a folder is its path.
type traveller struct {
	t    *testing.T
	s    *Service
	kept map[string]*Places // by folder
}

// known is what is kept for a folder, as it is read again.
func (v *traveller) known(dir string) *Places {
	v.t.Helper()
	kept := v.kept[dir]
	if kept == nil {
		kept = new(Places)
	}
	b, err := kept.Text()
	if err == nil {
		kept, err = ParsePlaces(b)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	return kept
}

func (v *traveller) take(from string, o TakeOptions) (*Workspace, parts) {
	v.t.Helper()
	o.Places = v.known(from)
	return take(v.t, v.s, from, o)
}

// move takes a workspace from one folder to another that may have files.
func (v *traveller) move(from, to string) error {
	v.t.Helper()
	ws, p := v.take(from, TakeOptions{})
	return v.place(to, ws, p)
}

// place puts what was taken into a folder.
func (v *traveller) place(to string, ws *Workspace, p parts) error {
	v.t.Helper()
	placed, err := v.s.PlaceWorkspace(v.t.Context(), to, ws, PlaceWorkspaceOptions{Merge: true, Base: v.base(to)}, filed{p, v.t.TempDir()})
	if err != nil {
		return err
	}
	placed.Places.Meet(placed.Snapshot, ws.Place, to)
	v.kept[to] = placed.Places
	return placed.Keep()
}

func (v *traveller) base(to string) func(*Places) *Snapshot {
	return func(came *Places) *Snapshot { return came.At(to) }
}

// stay has a session go from one folder to another without its files.
func (v *traveller) stay(from, to string) { v.kept[to] = v.known(from) }

func (v *traveller) must(from, to string) {
	v.t.Helper()
	if err := v.move(from, to); err != nil {
		v.t.Fatalf("%v: %q", err, conflictsOf(err))
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func conflictsOf(err error) []string {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == Conflicting {
		return e.Conflicts
	}
	return nil
}

// What only one side has changed is put together, of files and of repositories.
func TestWorkspace_WayBack(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		home, away := dir+"/home", dir+"/away"
		v := &traveller{t, s, map[string]*Places{}}
		put(t, home+"/.gitignore", "*.log\n")
		for _, name := range []string{"a", "b", "c", "gone", "sub/x", "sub/y", "dir/only", "swap"} {
			put(t, home+"/"+name, name+"\n")
		}
		git(t, home, "init", "-q", "-b", "main")
		git(t, home, "config", "user.name", "somebody")
		git(t, home, "add", "-A")
		git(t, home, "commit", "-qm", "first")
		put(t, home+"/mine.log", "ignored\n")
		put(t, home+"/.env", "SECRET=1\n")
		put(t, home+"/notes", "untracked\n")
		v.must(home, away)

		// There: commits, changes, staged things, removals, modes, links.
		put(t, away+"/a", "there\n")
		git(t, away, "add", "a")
		git(t, away, "commit", "-qm", "second")
		put(t, away+"/b", "staged there\n")
		git(t, away, "add", "b")
		git(t, away, "rm", "-q", "gone")
		remove(t, away+"/dir")
		put(t, away+"/new/file", "new\n")
		put(t, away+"/noise.log", "ignored there\n")
		if err := os.Chmod(away+"/sub/x", 0o755); err != nil {
			t.Fatal(err)
		}
		link(t, "a", away+"/l")
		remove(t, away+"/swap")
		put(t, away+"/swap/now", "a folder\n")
		// Here meanwhile: other files.
		put(t, home+"/c", "here\n")
		put(t, home+"/notes", "untracked, changed here\n")
		put(t, home+"/fresh", "new here\n")
		put(t, home+"/.git/hooks/reference-transaction", "#!/bin/sh\ntouch "+dir+"/ran\n")
		if err := os.Chmod(home+"/.git/hooks/reference-transaction", 0o755); err != nil {
			t.Fatal(err)
		}

		v.must(away, home)
		for name, want := range map[string]string{
			"a": "there\n", "b": "staged there\n", "c": "here\n", "notes": "untracked, changed here\n", "fresh": "new here\n", "new/file": "new\n",
			"mine.log": "ignored\n", ".env": "SECRET=1\n", "swap/now": "a folder\n",
		} {
			if b, err := os.ReadFile(home + "/" + name); err != nil || string(b) != want {
				t.Errorf("%s is %q, %v; want %q", name, b, err, want)
			}
		}
		for _, name := range []string{"gone", "dir", arriving} {
			if _, err := os.Lstat(home + "/" + name); err == nil {
				t.Errorf("%s is there", name)
			}
		}
		if info, err := os.Stat(home + "/sub/x"); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("sub/x: %v, %v", info, err)
		}
		if target, err := os.Readlink(home + "/l"); err != nil || target != "a" {
			t.Errorf("the link: %q, %v", target, err)
		}
		if _, err := os.Lstat(dir + "/ran"); err == nil {
			t.Error("a hook of the repository was run")
		}
		for _, args := range [][]string{{"log", "--format=%H %s"}, {"diff", "--cached"}, {"ls-files", "--stage"}, {"symbolic-ref", "HEAD"}} {
			if got, want := git(t, home, args...), git(t, away, args...); got != want {
				t.Errorf("git %q:\n%s\nwant:\n%s", args, got, want)
			}
		}
		if got := git(t, home, "config", "user.name"); got != "somebody\n" {
			t.Errorf("the configuration: %q", got)
		}
		git(t, home, "fsck", "--strict")

		// And there again, where nothing was changed since: only what was made here.
		put(t, home+"/again", "again\n")
		v.must(home, away)
		if b, err := os.ReadFile(away + "/again"); err != nil || string(b) != "again\n" {
			t.Errorf("%q, %v", b, err)
		}
		if b, err := os.ReadFile(away + "/noise.log"); err != nil || string(b) != "ignored there\n" {
			t.Errorf("what is ignored there: %q, %v", b, err)
		}
	})
}

// What both sides have changed is named, and nothing is touched.
func TestWorkspace_Conflicts(t *testing.T) {
	commit := func(t *testing.T, dir, name, content string) {
		put(t, dir+"/"+name, content)
		git(t, dir, "add", name)
		git(t, dir, "commit", "-qm", content)
	}
	for name, c := range map[string]struct {
		away, home func(t *testing.T, dir string)
		want       string
	}{
		"a file":            {func(t *testing.T, d string) { put(t, d+"/a", "there") }, func(t *testing.T, d string) { put(t, d+"/a", "here") }, "a"},
		"removed there":     {func(t *testing.T, d string) { remove(t, d+"/a") }, func(t *testing.T, d string) { put(t, d+"/a", "here") }, "a"},
		"removed here":      {func(t *testing.T, d string) { put(t, d+"/a", "there") }, func(t *testing.T, d string) { remove(t, d+"/a") }, "a"},
		"new on both":       {func(t *testing.T, d string) { put(t, d+"/n", "there") }, func(t *testing.T, d string) { put(t, d+"/n", "here") }, "n"},
		"a folder here":     {func(t *testing.T, d string) { put(t, d+"/n", "there") }, func(t *testing.T, d string) { put(t, d+"/n/own", "here") }, "n"},
		"a file on the way": {func(t *testing.T, d string) { put(t, d+"/n/x", "there") }, func(t *testing.T, d string) { put(t, d+"/n", "here") }, "n/x"},
		"a link on the way": {func(t *testing.T, d string) { put(t, d+"/n/x", "there") }, func(t *testing.T, d string) { link(t, "sub", d+"/n") }, "n/x"},
		"staged": {
			func(t *testing.T, d string) { put(t, d+"/a", "s"); git(t, d, "add", "a"); put(t, d+"/a", "one\n") },
			func(t *testing.T, d string) { put(t, d+"/a", "h"); git(t, d, "add", "a"); put(t, d+"/a", "one\n") }, "a (staged)",
		},
		"commits": {func(t *testing.T, d string) { commit(t, d, "x", "there") }, func(t *testing.T, d string) { commit(t, d, "y", "here") }, "what is checked out: main at"},
		"another branch": {func(t *testing.T, d string) { git(t, d, "checkout", "-qb", "b"); commit(t, d, "x", "there") }, func(t *testing.T, d string) {
			git(t, d, "checkout", "-qb", "b")
			commit(t, d, "y", "here")
			git(t, d, "checkout", "-q", "main")
		}, "the branch b, at commit"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Root: dir})
			v := &traveller{t, s, map[string]*Places{}}
			home, away := dir+"/home", dir+"/away"
			put(t, home+"/a", "one\n")
			put(t, home+"/sub/b", "b\n")
			git(t, home, "init", "-q", "-b", "main")
			git(t, home, "add", "-A")
			git(t, home, "commit", "-qm", "first")
			v.must(home, away)
			put(t, away+"/other", "would come\n")
			c.away(t, away)
			c.home(t, home)
			state := func() map[string]string {
				all := contents(t, home)
				for _, args := range [][]string{{"ls-files", "--stage"}, {"for-each-ref"}, {"symbolic-ref", "HEAD"}} {
					all[strings.Join(args, " ")] = git(t, home, args...)
				}
				return all
			}
			before := state()
			err := v.move(away, home)
			if got := conflictsOf(err); !slices.ContainsFunc(got, func(one string) bool { return one == c.want || strings.HasPrefix(one, c.want+" ") }) || slices.Contains(got, "other") {
				t.Errorf("%v: %q, want %q", err, got, c.want)
			}
			differ(t, state(), before)
		})
	}
}

// Only what the other side lacks is sent to where the repository is.
func TestWorkspace_Have(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	v := &traveller{t, s, map[string]*Places{}}
	origin, one, two := dir+"/origin", dir+"/one", dir+"/two"
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * i >> 7)
	}
	put(t, origin+"/large", string(noise))
	put(t, origin+"/a", "one\n")
	git(t, dir, "init", "-q", "-b", "main", origin)
	git(t, origin, "add", "-A")
	git(t, origin, "commit", "-qm", "first")
	git(t, dir, "clone", "-q", origin, one)
	git(t, dir, "clone", "-q", origin, two)
	put(t, one+"/a", "two\n")
	git(t, one, "commit", "-qam", "second")
	put(t, one+"/a", "three\n")

	st, err := s.GitStatus(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	have, err := s.GitRecent(t.Context(), two, st.Commit)
	if err != nil || !slices.Contains(have, st.Commit) {
		t.Fatalf("%q, %v", have, err)
	}
	_, all := v.take(one, TakeOptions{})
	ws, some := v.take(one, TakeOptions{Have: append(have, strings.Repeat("a", 40), "--all")})
	if some[partPack].Len() > 2000 || all[partPack].Len() < 2*some[partPack].Len() {
		t.Errorf("%d bytes are sent, and %d of all", some[partPack].Len(), all[partPack].Len())
	}
	// Changed here is what nobody has changed there: it stays.
	put(t, two+"/own", "mine\n")
	placed, err := s.PlaceWorkspace(t.Context(), two, ws, PlaceWorkspaceOptions{Merge: true}, some)
	if err != nil {
		t.Fatal(err)
	}
	if err := placed.Keep(); err != nil {
		t.Fatal(err)
	}
	if got, want := git(t, two, "log", "--format=%H"), git(t, one, "log", "--format=%H"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := git(t, two, "status", "--porcelain=v1"); got != " M a\n?? own\n" {
		t.Errorf("status: %q", got)
	}
	git(t, two, "fsck", "--strict")
	// Where the commits are not, what lacks them is refused.
	empty := dir + "/empty"
	if _, err := s.PlaceWorkspace(t.Context(), empty, ws, PlaceWorkspaceOptions{Merge: true}, some); err == nil || !strings.Contains(err.Error(), "not whole") {
		t.Errorf("without the commits: %v", err)
	}
	if _, err := os.Lstat(empty); err == nil {
		t.Error("it has left a folder")
	}
}

// What has nothing to do with the workspace is not mixed with it.
func TestWorkspace_Strangers(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	one := dir + "/one"
	put(t, one+"/a", "one\n")
	put(t, one+"/sub/b", "b\n")
	git(t, one, "init", "-q", "-b", "main")
	git(t, one, "add", "-A")
	git(t, one, "commit", "-qm", "first")
	put(t, dir+"/files/mine", "mine\n")
	put(t, dir+"/repo/mine", "mine\n")
	git(t, dir+"/repo", "init", "-q", "-b", "main")
	git(t, dir+"/repo", "add", "-A")
	git(t, dir+"/repo", "commit", "-qm", "another")
	v := &traveller{t, s, map[string]*Places{}}
	for _, to := range []string{"files", "repo"} {
		before := contents(t, dir+"/"+to)
		if err := v.move(one, dir+"/"+to); err == nil || !strings.Contains(err.Error(), "another directory") {
			t.Errorf("%s: %v", to, err)
		}
		differ(t, contents(t, dir+"/"+to), before)
	}
	// A part of it that an end of the gateway has left is completed.
	put(t, dir+"/part/sub/b", "b\n")
	put(t, dir+"/part/"+arriving+"/new/a", "on")
	ws, p := v.take(one, TakeOptions{})
	placed, err := s.PlaceWorkspace(t.Context(), dir+"/part", ws, PlaceWorkspaceOptions{}, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := placed.Keep(); err != nil {
		t.Fatal(err)
	}
	differ(t, contents(t, dir+"/part"), contents(t, one))
	if got := git(t, dir+"/part", "status", "--porcelain=v1"); got != "" {
		t.Errorf("status: %s", got)
	}
}

// A merge that is undone leaves everything as it was.
func TestWorkspace_MergeUndone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	v := &traveller{t, s, map[string]*Places{}}
	home, away := dir+"/home", dir+"/away"
	put(t, home+"/a", "one\n")
	put(t, home+"/sub/deep/b", "b\n")
	git(t, home, "init", "-q", "-b", "main")
	git(t, home, "add", "-A")
	git(t, home, "commit", "-qm", "first")
	v.must(home, away)
	remove(t, away+"/sub")
	put(t, away+"/n/m/x", "new\n")
	put(t, away+"/a", "two\n")
	git(t, away, "checkout", "-qb", "topic")
	git(t, away, "add", "-A")
	git(t, away, "commit", "-qm", "second")
	state := func() map[string]string {
		all := contents(t, home)
		for _, args := range [][]string{{"ls-files", "--stage"}, {"for-each-ref"}, {"symbolic-ref", "HEAD"}, {"status", "--porcelain=v1"}} {
			all[strings.Join(args, " ")] = git(t, home, args...)
		}
		return all
	}
	before := state()
	ws, p := v.take(away, TakeOptions{})
	placed, err := s.PlaceWorkspace(t.Context(), home, ws, PlaceWorkspaceOptions{Merge: true, Base: v.base(home)}, p)
	if err != nil {
		t.Fatal(err)
	}
	if got := git(t, home, "symbolic-ref", "HEAD"); got != "refs/heads/topic\n" {
		t.Errorf("HEAD: %s", got)
	}
	if err := placed.Undo(); err != nil {
		t.Fatal(err)
	}
	differ(t, state(), before)
}

// A large repository goes and comes back, in little time and memory for each file.
func TestWorkspace_ManyFiles(t *testing.T) {
	files := 2_000
	if os.Getenv("SANDBOX_AGENT_LONG") != "" {
		files = 50_000
	}
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	v := &traveller{t, s, map[string]*Places{}}
	home, away := dir+"/home", dir+"/away"
	for i := range files {
		put(t, fmt.Sprintf("%s/d%d/e%d/a file with a name of some length %d.txt", home, i%50, i%10, i), strconv.Itoa(i))
	}
	git(t, home, "init", "-q", "-b", "main")
	git(t, home, "add", "-A")
	git(t, home, "commit", "-qm", "first")
	v.must(home, away)
	last := fmt.Sprintf("/d%d/e%d/a file with a name of some length %d.txt", (files-1)%50, (files-1)%10, files-1)
	put(t, away+last, "changed there")
	put(t, home+"/own", "mine")
	v.must(away, home)
	if b, err := os.ReadFile(home + last); err != nil || string(b) != "changed there" {
		t.Errorf("%q, %v", b, err)
	}
	if got := git(t, home, "status", "--porcelain=v1"); strings.Count(got, "\n") != 2 {
		t.Errorf("status: %s", got)
	}
	if n := len(v.kept[home].At(home).Files); n != files {
		t.Errorf("%d files are known", n)
	}
}

func FuzzParseSnapshot(f *testing.F) {
	b, err := (&Snapshot{Git: true, Branch: "main", Files: map[string]string{"a b": "-00", "c/d": "l11"}, Index: map[string]string{"a b": "100644 00 0"}}).Text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(snapshotBegins + "{}\x00f-00\t../x\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSnapshot(b)
		if err != nil {
			return
		}
		for path := range s.Files {
			if !plainPath(path) || strings.HasPrefix(path, "/") {
				t.Fatalf("%q was taken", path)
			}
		}
		again, err := s.Text()
		if err != nil {
			t.Fatal(err)
		}
		if other, err := ParseSnapshot(again); err != nil || len(other.Files) != len(s.Files) || len(other.Index) != len(s.Index) {
			t.Fatalf("%v", err)
		}
		if third, err := s.Text(); err != nil || !bytes.Equal(third, again) {
			t.Fatalf("%q, and then %q, %v", again, third, err)
		}
	})
}

// A workspace that goes over several places changes each of them by what was changed since
// it was there, and not since it was at another one.
func TestWorkspace_ThreePlaces(t *testing.T) {
	for name, repository := range map[string]bool{"files": false, "repository": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := &traveller{t, open(t, Options{Root: dir}), map[string]*Places{}}
			one, two, three := dir+"/one", dir+"/two", dir+"/three"
			put(t, one+"/a", "one\n")
			put(t, one+"/b", "one\n")
			if repository {
				git(t, one, "init", "-q", "-b", "main")
				git(t, one, "add", "-A")
				git(t, one, "commit", "-qm", "first")
			}
			v.must(one, two)
			put(t, two+"/a", "two\n")
			v.must(two, three)
			put(t, three+"/b", "three\n")
			v.must(three, one)
			for name, want := range map[string]string{"a": "two\n", "b": "three\n"} {
				if b, err := os.ReadFile(one + "/" + name); err != nil || string(b) != want {
					t.Errorf("%s is %q, %v; want %q", name, b, err, want)
				}
			}
		})
	}
}

// A session that goes to and fro without its files still knows what both sides had.
func TestWorkspace_Stays(t *testing.T) {
	dir := t.TempDir()
	v := &traveller{t, open(t, Options{Root: dir}), map[string]*Places{}}
	home, away := dir+"/home", dir+"/away"
	put(t, home+"/a", "one\n")
	put(t, home+"/b", "one\n")
	v.must(home, away)
	put(t, away+"/b", "there\n")
	v.stay(away, home)
	put(t, home+"/a", "here\n")
	v.must(home, away)
	v.stay(away, home)
	v.stay(home, away)
	put(t, away+"/b", "there again\n")
	v.must(away, home)
	for _, at := range []string{home, away} {
		for name, want := range map[string]string{"a": "here\n", "b": "there again\n"} {
			if b, err := os.ReadFile(at + "/" + name); err != nil || string(b) != want {
				t.Errorf("%s/%s is %q, %v; want %q", at, name, b, err, want)
			}
		}
	}
}

// checksums are those of a folder, by the content.
func checksums(t *testing.T, s *Service, dir string) map[[sha256.Size]byte]string {
	t.Helper()
	taking, err := s.OpenWorkspace(t.Context(), dir, TakeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer taking.Close()
	var b bytes.Buffer
	if err := taking.Checksums(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	all := map[[sha256.Size]byte]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(b.String(), "\x00"), "\x00") {
		hash, path, _ := strings.Cut(line, "  ")
		var sum [sha256.Size]byte
		if _, err := hex.Decode(sum[:], []byte(hash)); err != nil {
			t.Fatal(err)
		}
		all[sum] = path
	}
	return all
}

// Files that the other side has are not sent, by whatever name it has them.
func TestWorkspace_Lent(t *testing.T) {
	large := strings.Repeat("a line of a large file\n", 50_000)
	both(t, func(t *testing.T, s *Service, dir string) {
		v := &traveller{t, s, map[string]*Places{}}
		home, away := dir+"/home", dir+"/away"
		put(t, home+"/same", large)
		put(t, home+"/old name", "renamed"+large)
		put(t, home+"/run", "run"+large)
		put(t, home+"/twice", "twice"+large)
		put(t, home+"/.env", "secret"+large)
		v.must(home, away)
		remove(t, away+"/old name")
		put(t, away+"/sub/new name", "renamed"+large)
		put(t, away+"/copy", "twice"+large)
		put(t, away+"/new", "new\n")
		put(t, away+"/taken", "secret"+large) // which nobody tells to be at home
		if err := os.Chmod(away+"/run", 0o700); err != nil {
			t.Fatal(err)
		}
		there := checksums(t, s, home)
		if len(there) != 4 {
			t.Fatalf("%q", there)
		}
		ws, p := v.take(away, TakeOptions{Files: there})
		n := 0
		for _, b := range p {
			n += b.Len()
		}
		if ws.Lent != 5 || n > len(large)+20_000 || n < len(large) {
			t.Errorf("%d files are lent, and %d bytes of files sent", ws.Lent, n)
		}
		if err := v.place(home, ws, p); err != nil {
			t.Fatal(err)
		}
		want := contents(t, away)
		want[".env"] = contents(t, home)[".env"]
		differ(t, contents(t, home), want)

		// What is not there any more when it comes is told, and nothing is touched.
		put(t, away+"/another", "run"+large)
		put(t, away+"/new", "newer\n")
		ws, p = v.take(away, TakeOptions{Files: checksums(t, s, home)})
		put(t, home+"/run", "changed meanwhile\n")
		before := contents(t, home)
		err := v.place(home, ws, p)
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != Changed && e.Code != Conflicting {
			t.Errorf("what is lent was changed: %v", err)
		}
		differ(t, contents(t, home), before)
		// A gateway that does not know lent files refuses them.
		if _, err := s.unpack(t.Context(), dir+"/older", bytes.NewReader(p[partFiles].Bytes()), nil, nil); err == nil {
			t.Error("links to nothing were unpacked")
		}
		for name, h := range map[string]tar.Header{
			"git's own":   {Name: "x", Linkname: ".git/config"},
			"outside":     {Name: "x", Linkname: "../x"},
			"not a sum":   {Name: "x", Linkname: "run", PAXRecords: map[string]string{partSum: "00"}},
			"not what is": {Name: "x", Linkname: "run", PAXRecords: map[string]string{partSum: strings.Repeat("00", 32)}},
		} {
			h.Typeflag, h.Format = tar.TypeLink, tar.FormatPAX
			if h.PAXRecords == nil {
				h.PAXRecords = map[string]string{partSum: strings.Repeat("00", 32)}
			}
			if err := v.place(home, &Workspace{}, parts{partFiles: archiveOf(t, h)}); err == nil {
				t.Errorf("%s was taken", name)
			}
		}
		differ(t, contents(t, home), before)
	})
}

func FuzzParsePlaces(f *testing.F) {
	p := new(Places)
	p.Meet(&Snapshot{Files: map[string]string{"a b": "-00"}}, "one", "two")
	p.Meet(&Snapshot{Files: map[string]string{"a b": "-11"}}, "three")
	b, err := p.Text()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(placesBegin + `[{"places":["a"],"bytes":-1}]` + "\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePlaces(b)
		if err != nil {
			return
		}
		again, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		other, err := ParsePlaces(again)
		if err != nil || len(other.met) != len(p.met) {
			t.Fatalf("%d places became %v, %v", len(p.met), other, err)
		}
		p.Meet(new(Snapshot), "new")
		if p.At("new") == nil || len(p.met) > maxPlaces {
			t.Fatalf("%+v", p.met)
		}
	})
}
