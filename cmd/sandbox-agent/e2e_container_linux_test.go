package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	dockerfile = "examples/docker/Dockerfile" // in the repository
	fifoName   = "/tmp/end"                   // in the container
	tokenName  = "/run/secrets/sandbox-agent-token"
)

// TestContainer runs what the Dockerfile's stage "gateway" makes, as Docker would,
// without Docker: in a root file system of its own, as process 1 of a process
// namespace, as the image's user, with the image's environment.
func TestContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	img := buildImage(t)
	img.install(t, "cmd/sandbox-agent/testdata/doublefork", "/usr/local/bin/doublefork")
	img.install(t, "cmd/sandbox-agent/testdata/doublefork", "/usr/local/bin/sleep") // what the mock agent leaves
	// The image knows no agent besides the mock agent: this one is the user's.
	img.write(t, "/var/lib/sandbox-agent/data/agents.toml", "[agents.inside]\ncommand = \"/usr/local/bin/sandbox-agent\"\nargs = [\"mock-agent\"]\n")
	img.write(t, tokenName, token+"\n")
	if err := syscall.Mkfifo(filepath.Join(img.root, fifoName), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(img.root, fifoName), 0o666); err != nil { // less the umask
		t.Fatal(err)
	}
	g := img.run(t, "SANDBOX_AGENT_TOKEN_FILE="+tokenName, "SANDBOX_AGENT_PORT=0")
	namespace := namespaceOf(t, g.cmd.Process.Pid)

	if out, err := img.command(append(img.health, "--endpoint", g.url), nil).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("the health check says %q: %v", out, err)
	}
	if code, text := (&gateway{t: t, url: g.url}).post("GET", "/v2/sessions", ""); code != 401 {
		t.Errorf("without the token: %d %s", code, text)
	}

	for _, kind := range dialects {
		c := connect(t, g, kind, options{agent: "inside", cwd: "/"})
		s := c.newSession()
		from := c.mark()
		c.prompt(s, "echo from the container")
		c.find(from, "the echo", func(m *message) bool {
			text, ok := m.chunk(s)
			return ok && strings.Contains(text, "from the container")
		})
	}

	c := connect(t, g, inline, options{agent: "inside", cwd: "/"})
	occupy(c, c.newSession(), "fork-child")
	occupy(c, c.newSession(), "ignore-eof")
	body, err := json.Marshal(map[string]any{"command": "/usr/local/bin/doublefork", "args": []string{fifoName}})
	if err != nil {
		t.Fatal(err)
	}
	if code, text := g.post("POST", "/v2/processes/run", string(body)); code != 200 || !strings.Contains(text, `"exitCode":0`) {
		t.Fatalf("%d %s", code, text)
	}

	// Whoever is in the container runs as its user, and has process 1 as its last parent.
	for _, p := range inNamespace(t, namespace) {
		if uid := fieldOf(t, p.pid, "Uid"); img.isRoot() && uid != strconv.Itoa(img.uid) {
			t.Errorf("%+v runs as user %s, want %d", p, uid, img.uid)
		}
		if caps := fieldOf(t, p.pid, "CapEff"); strings.Trim(caps, "0") != "" {
			t.Errorf("%+v has the capabilities %s", p, caps)
		}
	}
	left := func(role string) []process {
		return slices.DeleteFunc(inNamespace(t, namespace), func(p process) bool {
			return !strings.Contains(p.args, role) || !strings.Contains(p.args, "/proc/self/exe")
		})
	}
	pipe, err := os.OpenFile(filepath.Join(img.root, fifoName), os.O_WRONLY, 0) // once it is being read
	if err != nil {
		t.Fatal(err)
	}
	stays, ends := left(" stay"), left(" read ")
	if len(stays) != 1 || len(ends) != 1 {
		t.Fatalf("orphans %+v and %+v, want one each", stays, ends)
	}
	for _, p := range slices.Concat(stays, ends) {
		if parent := fieldOf(t, p.pid, "PPid"); parent != strconv.Itoa(g.cmd.Process.Pid) {
			t.Errorf("the parent of the orphan %+v is %s, want the gateway", p, parent)
		}
	}
	if err := pipe.Close(); err != nil {
		t.Fatal(err)
	}
	// A zombie's command line is empty: it is looked for by its parent.
	if left := g.await(func() []process { return left(" read ") }); len(left) > 0 {
		t.Errorf("still running: %+v", left)
	}
	if left := g.await(func() []process { return zombies(t, g.cmd.Process.Pid) }); len(left) > 0 {
		t.Errorf("nobody waits for %+v", left)
	}
	if len(left(" stay")) != 1 {
		t.Error("the other orphan has not stayed: its end proves nothing")
	}

	// docker stop.
	if n := len(inNamespace(t, namespace)); n < 5 {
		t.Errorf("only %d processes run in the container", n)
	}
	took := g.kill(syscall.SIGTERM)
	t.Logf("ended after %v", took)
	if took > ladder {
		t.Errorf("the container took %v to end", took)
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the container ended with code %d:\n%s", code, g.stderr.tail(8<<10))
	}
	if left := g.await(func() []process { return inNamespace(t, namespace) }); len(left) > 0 {
		t.Errorf("processes are left: %+v", left)
	}
}

// What a container keeps in its volume is there when another one is started with it.
// The state is on a volume, which is empty at first: Kubernetes hides by it what the image has there.
func TestContainer_SessionsSurviveARestart(t *testing.T) {
	img := buildImage(t)
	home := filepath.Join(img.root, "/var/lib/sandbox-agent/home")
	for _, dir := range []string{home, filepath.Join(img.root, "/var/lib/sandbox-agent/data")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"SANDBOX_AGENT_TOKEN=" + token, "SANDBOX_AGENT_PORT=0", "SANDBOX_AGENT_DEFAULT_AGENT=mock"}
	g := img.run(t, env...)
	c := connect(t, g, inline, options{cwd: "/"})
	s := c.newSession()
	c.prompt(s, "echo remember")
	// A command begins in the home directory.
	if code, text := g.post("POST", "/v2/processes/run", `{"command":"/usr/local/bin/sandbox-agent","args":["--version"]}`); code != 200 || !strings.Contains(text, `"exitCode":0`) {
		t.Errorf("a command in the home directory: %d %s", code, text)
	}
	if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the home directory: %v, %v", info, err)
	}
	g.kill(syscall.SIGTERM)

	g = img.run(t, env...)
	c = connect(t, g, inline, options{cwd: "/"})
	from := c.mark()
	c.attach("session/load", s, nil)
	c.find(from, "the replay", func(m *message) bool {
		text, ok := m.chunk(s)
		return ok && strings.Contains(text, "remember")
	})
	if r := c.prompt(s, "hello"); r != "end_turn" {
		t.Errorf("the turn after the restart ended with %s", r)
	}
	g.kill(syscall.SIGTERM)
}

// image is a root file system and what the Dockerfile says about running it.
type image struct {
	root     string
	build    string // where the stage build has its output
	env      []string
	uid, gid int
	workdir  string
	line     []string // entrypoint and command
	health   []string
}

func (i *image) isRoot() bool { return os.Geteuid() == 0 }

// instruction is one line of a Dockerfile.
type instruction struct{ verb, rest string }

// stage returns the instructions of a stage of the Dockerfile.
func stage(t *testing.T, name string) []instruction {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository(t), dockerfile))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(b), "")
	text = strings.ReplaceAll(text, "\\\n", " ")
	var found []instruction
	in := false
	for line := range strings.Lines(text) {
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case verb == "":
		case verb == "FROM":
			in = strings.HasSuffix(rest, " AS "+name)
		case in:
			found = append(found, instruction{verb, strings.TrimSpace(rest)})
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no stage %s", dockerfile, name)
	}
	return found
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// buildImage runs the stage "build" and does what the stage "gateway" says.
func buildImage(t *testing.T) *image {
	t.Helper()
	namespaces(t)
	i := &image{root: filepath.Join(t.TempDir(), "root"), build: filepath.Join(t.TempDir(), "out")}
	mount := regexp.MustCompile(`--mount=\S+\s+`)
	for _, in := range stage(t, "build") {
		if in.verb != "RUN" {
			continue // the sources are those of this tree
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", mount.ReplaceAllString(in.rest, ""))
		cmd.Dir, cmd.Env = repository(t), append(os.Environ(), "OUT="+i.build)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", in.rest, err, out)
		}
	}
	for _, in := range stage(t, "gateway") {
		i.apply(t, in)
	}
	if i.uid == 0 || i.gid == 0 || len(i.line) == 0 || len(i.health) == 0 {
		t.Fatalf("the image has no user, no command or no health check: %+v", i)
	}
	// Docker makes these in every container.
	for _, dir := range []string{"proc", "dev", "run/secrets"} {
		if err := os.MkdirAll(filepath.Join(i.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range devices {
		if err := os.WriteFile(filepath.Join(i.root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The test's own folders above the root are private; the container's user is another one.
	for dir := filepath.Dir(i.root); dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			break
		}
	}
	return i
}

func (i *image) apply(t *testing.T, in instruction) {
	t.Helper()
	list := func() (words []string) {
		if err := json.Unmarshal([]byte(in.rest), &words); err != nil {
			t.Fatalf("%s %s: %v: write it as a JSON array, there is no shell in the image", in.verb, in.rest, err)
		}
		return words
	}
	switch in.verb {
	case "COPY":
		m := regexp.MustCompile(`^--from=build (?:--chown=(\d+):(\d+) )?/out(/\S+) (/\S*)$`).FindStringSubmatch(in.rest)
		if m == nil {
			t.Fatalf("COPY %s is not understood", in.rest)
		}
		to := filepath.Join(i.root, m[4])
		// A folder that is there already keeps its owner, what is copied into it does not.
		copying := `new=; [ -e "$2" ] || new=$2; mkdir -p "$2"; cp -a "$1"/. "$2"; [ -z "$3" ] || (cd "$1"; find . -mindepth 1 -print) |
			while read -r f; do chown -h "$3" "$2/$f"; done; [ -z "$new" ] || [ -z "$3" ] || chown "$3" "$new"`
		owner := ""
		if m[1] != "" && i.isRoot() {
			owner = m[1] + ":" + m[2]
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-euc", copying, "sh", i.build+m[3], to, owner).CombinedOutput(); err != nil {
			t.Fatalf("COPY %s: %v\n%s", in.rest, err, out)
		}
	case "ENV":
		i.env = append(i.env, strings.Fields(in.rest)...)
	case "USER":
		if _, err := fmt.Sscanf(in.rest, "%d:%d", &i.uid, &i.gid); err != nil {
			t.Fatalf("USER %s: %v: name it by numbers", in.rest, err)
		}
	case "WORKDIR":
		i.workdir = in.rest
	case "ENTRYPOINT", "CMD":
		i.line = append(i.line, list()...)
	case "HEALTHCHECK":
		_, rest, ok := strings.Cut(in.rest, "CMD ")
		if !ok {
			t.Fatalf("HEALTHCHECK %s has no command", in.rest)
		}
		in.rest = rest
		i.health = list()
	case "VOLUME":
		if _, err := os.Stat(filepath.Join(i.root, in.rest)); err != nil {
			t.Errorf("VOLUME %s: %v: a new volume would belong to root", in.rest, err)
		}
	case "STOPSIGNAL":
		if in.rest != "SIGTERM" {
			t.Errorf("STOPSIGNAL %s, want SIGTERM", in.rest)
		}
	case "EXPOSE":
	default:
		t.Fatalf("%s %s is not understood", in.verb, in.rest)
	}
}

// install builds a program of this repository into the image.
func (i *image) install(t *testing.T, pkg, to string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(i.root, to), "./"+pkg)
	cmd.Dir, cmd.Env = repository(t), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
}

// write writes a file that belongs to the image's user.
func (i *image) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(i.root, name)
	if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	if i.isRoot() {
		if err := os.Chown(file, i.uid, i.gid); err != nil {
			t.Fatal(err)
		}
	}
}

// container is what the helper needs to know, in its environment.
type container struct {
	Root, Workdir string
	UID, GID      int
	Args, Env     []string
}

const containerVar = "SANDBOX_E2E_CONTAINER"

// devices are those of a container without a terminal.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}

// dockerPath is what Docker sets in every container.
const dockerPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// command returns a command that runs in the image as its user, as process 1 of
// a process namespace. This program starts as a helper that becomes the command.
func (i *image) command(args, env []string) *exec.Cmd {
	b, err := json.Marshal(container{i.root, i.workdir, i.uid, i.gid, args, slices.Concat([]string{dockerPath}, i.env, env)})
	if err != nil {
		panic(err) // strings and numbers
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{containerVar + "=" + string(b)}
	cmd.SysProcAttr = newNamespaces(i.uid, i.gid)
	return cmd
}

// newNamespaces are those of a container. Without root they need a namespace of
// users, in which the user of this process has the container's number.
func newNamespaces(uid, gid int) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Setpgid: true}
	if os.Geteuid() != 0 {
		const sysChroot, sysAdmin = 18, 21
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getegid(), Size: 1}}
		a.AmbientCaps = []uintptr{sysChroot, sysAdmin}
	}
	return a
}

// namespaces skips the test where the machine lets nobody make them.
func namespaces(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{containerVar + "=null"}
	cmd.SysProcAttr = newNamespaces(10001, 10001)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no namespaces of processes and mounts here: %v %s", err, out)
	}
}

func init() {
	if text := os.Getenv(containerVar); text != "" {
		err := becomeContainer(text)
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(125)
	}
}

// becomeContainer makes this process the first one of a container. It returns
// with an error only.
func becomeContainer(text string) error {
	const prCapAmbient, capAmbientClearAll = 47, 4
	runtime.LockOSThread() // capabilities belong to threads
	var c *container
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	proc := "/proc"
	if c != nil {
		proc = filepath.Join(c.Root, "proc")
	}
	if err := syscall.Mount("proc", proc, "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", proc, err)
	}
	if c == nil { // that was the question
		os.Exit(0)
	}
	for _, name := range devices {
		if err := syscall.Mount(name, filepath.Join(c.Root, name), "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", name, err)
		}
	}
	if err := syscall.Chroot(c.Root); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	if err := os.Chdir(c.Workdir); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(c.GID), syscall.Setuid(c.UID)); err != nil {
			return fmt.Errorf("become the image's user: %w", err)
		}
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, capAmbientClearAll, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("give up capabilities: %w", errno)
	}
	return fmt.Errorf("start %s: %w", c.Args[0], syscall.Exec(c.Args[0], c.Args, c.Env))
}

// run starts a container as docker run would, and waits for its address.
func (i *image) run(t *testing.T, env ...string) *gateway {
	t.Helper()
	g := &gateway{t: t, dir: i.root, args: []string{token}, stderr: &output{}, exited: make(chan struct{})}
	g.cmd = i.command(i.line, env)
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g.cmd.Stdout, g.cmd.Stderr = pw, pw
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = pw.Close()
	t.Cleanup(func() {
		if g.alive() {
			g.kill(syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("output of the container:\n%s", g.stderr.tail(16<<10))
		}
	})
	go func() {
		_ = g.cmd.Wait()
		close(g.exited)
	}()
	announced := make(chan string, 1)
	go func() {
		defer pr.Close()
		for lines := bufio.NewReader(pr); ; {
			line, err := lines.ReadString('\n')
			_, _ = io.WriteString(g.stderr, line)
			if url := urlPattern.FindString(line); url != "" {
				select {
				case announced <- url:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	select {
	case g.url = <-announced:
	case <-g.exited:
		t.Fatalf("the container ended at its start: %v\n%s", g.cmd.ProcessState, g.stderr)
	case <-time.After(patience):
		t.Fatalf("the container printed no URL:\n%s", g.stderr)
	}
	g.get("/v2/health", nil)
	return g
}

// namespaceOf names the process namespace of a process.
func namespaceOf(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// inNamespace returns the processes of a process namespace.
func inNamespace(t *testing.T, namespace string) []process {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, link := range links {
		dir := filepath.Dir(filepath.Dir(link))
		if name, err := os.Readlink(link); err != nil || name != namespace {
			continue
		}
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		found = append(found, process{pid, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))})
	}
	return found
}

// fieldOf returns the first value of a line of a process's status, "" when it is gone.
func fieldOf(t *testing.T, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(rest)[0]
		}
	}
	return ""
}
