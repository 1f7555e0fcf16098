// Package sandboxagent_test holds the rules of this repository that a compiler
// does not check: who may import whom, what every package and file must have,
// and what no file may contain.
package sandboxagent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "sandboxagent.dev/sandbox-agent"

// roots are the folders with Go packages.
var roots = []string{"acp", "adapters", "runtime", "control", "cmd", "fleet", "fs", "inspector", "internal", "docs"}

// edge is an import that must not exist. Patterns that begin with ./ name this
// module's packages, others are full import paths; a trailing /... includes what
// lies below, "std" is the standard library, "..." is everything.
type edge struct {
	from   string
	except string // patterns, separated by blanks, of packages in from that may
	to     string
	unless string // patterns, separated by blanks, of packages in to that are allowed
	deep   bool   // indirect dependencies count as well
}

// forbidden is the table of edges that must not exist, each with its reason.
var forbidden = map[edge]string{
	{from: "./acp/...", to: "./adapters/...", deep: true}:  "acp is the bottom layer",
	{from: "./acp/...", to: "./runtime/...", deep: true}:   "acp is the bottom layer; acphttp declares the interfaces that runtime satisfies",
	{from: "./acp/...", to: "./control/...", deep: true}:   "acp is the bottom layer",
	{from: "./acp/...", to: "./cmd/...", deep: true}:       "acp is the bottom layer",
	{from: "./acp/...", to: "./fs/...", deep: true}:        "acp is the bottom layer",
	{from: "./acp/...", to: "./inspector/...", deep: true}: "acp is the bottom layer",
	{from: "./acp/schema", to: "./acp", deep: true}:        "types know nothing of messages and connections",

	{from: "./adapters/...", to: "./runtime/...", deep: true}:                           "an adapter opens a connection; it does not know sessions",
	{from: "./adapters/...", to: "./control/...", deep: true}:                           "adapters lie below the HTTP API",
	{from: "./adapters/...", to: "./cmd/...", deep: true}:                               "adapters lie below the command",
	{from: "./adapters/...", to: "./fs/...", deep: true}:                                "an adapter works with the agent's own files only",
	{from: "./adapters/...", to: "./inspector/...", deep: true}:                         "adapters have no user interface",
	{from: "./adapters/...", to: "./acp/acphttp/...", deep: true}:                       "adapters do not know how clients connect",
	{from: "./runtime/...", to: "./control/...", deep: true}:                            "the runtime lies below the HTTP API",
	{from: "./runtime/...", to: "./cmd/...", deep: true}:                                "the runtime lies below the command",
	{from: "./runtime/...", to: "./fs/...", deep: true}:                                 "the runtime moves messages, not files",
	{from: "./runtime/...", to: "./inspector/...", deep: true}:                          "the runtime has no user interface",
	{from: "./runtime/...", to: "./acp/acphttp/...", deep: true}:                        "transport and runtime meet only in cmd",
	{from: "./runtime/...", to: "./adapters/all/...", deep: true}:                       "the runtime is given its adapters",
	{from: "./control/...", to: "./cmd/...", deep: true}:                                "the API lies below the command",
	{from: "./control/process/...", to: "net/http"}:                                     "processes and terminals know no HTTP",
	{from: "./fs/...", to: "net/http"}:                                                  "the file service knows no HTTP",
	{from: "./cmd/...", to: "./acp/acptest/...", deep: true}:                            "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./adapters/internal/bridgetest", deep: true}:               "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./adapters/adaptertest", deep: true}:                       "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/scriptedmodel/...", deep: true}:                 "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./fleet/store/storetest", deep: true}:                      "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/freeport", deep: true}:                          "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/pipes", deep: true}:                             "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/load/...", deep: true}:                          "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/reliability/...", deep: true}:                   "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/agentcache/...", deep: true}:                    "test helpers stay out of the binary",
	{from: "./cmd/...", to: "./internal/programs", deep: true}:                          "test helpers stay out of the binary",
	{from: "./cmd/...", to: "go.uber.org/goleak/...", deep: true}:                       "test helpers stay out of the binary",
	{from: "./cmd/...", to: "github.com/getkin/kin-openapi/...", deep: true}:            "its initialisation costs more than the whole start",
	{from: "./cmd/...", to: "github.com/santhosh-tekuri/jsonschema/v6/...", deep: true}: "schemas are checked in tests only",

	{from: "...", except: "./control/...", to: "github.com/labstack/echo/v4/..."}:                                                  "the web framework is control's own business",
	{from: "...", except: "./control ./control/parcel ./runtime/journal", to: "github.com/klauspost/compress/..."}:                 "archives are decompressed where they come in, blocks of logs where they are made",
	{from: "...", except: "./control/...", to: "github.com/getkin/kin-openapi/..."}:                                                "the OpenAPI document is made in control",
	{from: "...", except: "./cmd/...", to: "github.com/urfave/cli/v2/..."}:                                                         "only the command knows flags",
	{from: "...", except: "./acp/acphttp/... ./control/... ./fleet/... ./internal/load/...", to: "github.com/coder/websocket/..."}: "WebSockets are the transport's, the terminal route's and the tunnel's business",
	{from: "...", except: "./adapters/... ./control/process/...", to: "./internal/process/..."}:                                    "who starts processes answers for their end",
	{from: "...", except: "./control/process", to: "github.com/creack/pty/..."}:                                                    "terminals are made where processes are",
	{from: "...", except: "./control/telemetry ./fleet", to: "github.com/prometheus/..."}:                                          telemetryReason,
	{from: "...", except: "./control/telemetry", to: "go.opentelemetry.io/..."}:                                                    telemetryReason,
	{from: "./cmd/...", to: "google.golang.org/grpc/...", deep: true}:                                                              "it is a fifth of the binary, and HTTP carries traces as well",
	{from: "...", except: "./cmd/...", to: "github.com/charmbracelet/..."}:                                                         "only the command draws a terminal",
	{from: "...", except: "./cmd/...", to: "golang.org/x/term/..."}:                                                                "only the command has a terminal of its own",
	{from: "...", except: "./adapters/all", to: "./adapters/claude/..."}:                                                           nameReason,
	{from: "...", except: "./adapters/all", to: "./adapters/codex/..."}:                                                            nameReason,
	{from: "...", except: "./adapters/all", to: "./adapters/opencode/..."}:                                                         nameReason,
	{from: "...", except: "./adapters/all", to: "./adapters/amp/..."}:                                                              nameReason,
	{from: "...", except: "./adapters/all", to: "./adapters/pi/..."}:                                                               nameReason,
	{from: "...", except: "./adapters/adaptertest ./acp/acptest/...", to: "github.com/santhosh-tekuri/jsonschema/v6/..."}:          "schemas are checked in tests only",

	{from: "./cmd/sandbox-agent", to: "github.com/nats-io/...", deep: true}:                                                                  "the program in the sandbox stays small: the store is the hub's",
	{from: "./cmd/sandbox-agent", to: "./fleet"}:                                                                                             "a gateway joins; it is no hub",
	{from: "...", except: "./fleet/store ./fleet/store/storetest", to: "github.com/nats-io/..."}:                                             "hubs know a store, and not what it is made of",
	{from: "...", except: "./fleet/tunnel", to: "github.com/libp2p/go-yamux/..."}:                                                            "the tunnel's tests have it as the other end, which is how earlier versions spoke; nothing else needs it",
	{from: "./fleet/tunnel", to: "./fleet/store", deep: true}:                                                                                "both ends use the tunnel, one has a store",
	{from: "./fleet/join", to: "./fleet/store", deep: true}:                                                                                  "a gateway that joins has no store",
	{from: "./fleet/...", to: "./cmd/...", deep: true}:                                                                                       "the hub lies below its command",
	{from: "./control/...", to: "./fleet/...", deep: true}:                                                                                   "a gateway serves without a hub",
	{from: "./runtime/...", to: "./fleet/...", deep: true}:                                                                                   "sessions know nothing of hubs",
	{from: "./acp/...", to: "./fleet/...", deep: true}:                                                                                       "acp is the bottom layer",
	{from: "./cmd/sandbox-hub", to: "./adapters/all/...", deep: true}:                                                                        "the hub runs no agents",
	{from: "./cmd/...", to: "./adapters/install/signature/signaturetest", deep: true}:                                                        "test helpers stay out of the binary",
	{from: "./adapters/install/signature", to: "...", unless: "std"}:                                                                         stdReason,
	{from: "./acp/sse/...", to: "...", unless: "std"}:                                                                                        stdReason,
	{from: "./acp/rawjson/...", to: "...", unless: "std"}:                                                                                    stdReason,
	{from: "./acp/problem/...", to: "...", unless: "std"}:                                                                                    stdReason,
	{from: "./runtime/journal/...", to: "...", unless: "std github.com/klauspost/compress/s2"}:                                               stdReason,
	{from: "./fs/...", to: "...", unless: "std"}:                                                                                             stdReason,
	{from: "./inspector/...", to: "...", unless: "std"}:                                                                                      stdReason,
	{from: "./internal/process/...", to: "...", unless: "std ./internal/socket golang.org/x/sys/..."}:                                        stdReason,
	{from: "./control/process/...", to: "...", unless: "std ./internal/awake ./internal/process github.com/creack/pty golang.org/x/sys/..."}: "processes of clients know neither agents nor sessions",
}

const (
	nameReason      = "no agent is a special case outside its own folder"
	telemetryReason = "others tell what happens; how it is shown is telemetry's business"
	stdReason       = "this package stands alone, with the standard library only"
)

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	Doc        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
}

// match reports whether path is one of the patterns.
func match(patterns, path string) bool {
	for p := range strings.FieldsSeq(patterns) {
		switch {
		case p == "...":
			return true
		case p == "std":
			first, _, _ := strings.Cut(path, "/")
			if !strings.Contains(first, ".") {
				return true
			}
			continue
		}
		tree, below := strings.CutSuffix(p, "/...")
		if own, ok := strings.CutPrefix(tree, "./"); ok {
			tree = module + "/" + own
		}
		if path == tree || below && strings.HasPrefix(path, tree+"/") {
			return true
		}
	}
	return false
}

// violations returns one line for each forbidden edge that exists, sorted.
func violations(pkgs []pkg, table map[edge]string) []string {
	var out []string
	for _, p := range pkgs {
		for e, reason := range table {
			// A tree may always import itself.
			if !match(e.from, p.ImportPath) || match(e.except, p.ImportPath) || e.to != "..." && match(e.to, p.ImportPath) {
				continue
			}
			uses := p.Imports
			if e.deep {
				uses = p.Deps
			}
			for _, to := range uses {
				own := match(e.from, to) && e.from != "..." // acp/sse may import acp/sse/internal
				if match(e.to, to) && !match(e.unless, to) && !own {
					out = append(out, fmt.Sprintf("%s imports %s: %s", short(p.ImportPath), short(to), reason))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func short(path string) string { return strings.TrimPrefix(path, module+"/") }

func TestImports(t *testing.T) {
	pkgs := list(t)
	for _, v := range violations(pkgs, forbidden) {
		t.Error(v)
	}
}

func TestImports_EveryPatternNamesSomething(t *testing.T) {
	// A rule about a package that was renamed would pass for ever. Packages
	// that are planned but not written yet are found by their parent.
	for e := range forbidden {
		for p := range strings.FieldsSeq(e.from + " " + e.except) {
			own, ok := strings.CutPrefix(p, "./")
			first, _, _ := strings.Cut(own, "/")
			if p != "..." && (!ok || !slices.Contains(roots, first)) {
				t.Errorf("pattern %q names no part of this repository", p)
			}
		}
	}
}

func TestViolations_BrokenGraph(t *testing.T) {
	in := func(path string, imports ...string) pkg {
		for i, s := range imports {
			if first, _, _ := strings.Cut(s, "/"); slices.Contains(roots, first) {
				imports[i] = module + "/" + s
			}
		}
		return pkg{ImportPath: module + "/" + path, Imports: imports, Deps: imports}
	}
	tests := []struct {
		name string
		pkg  pkg
		want string // in the only violation; empty for none
	}{
		{"upwards", in("acp", "runtime"), "acp imports runtime: acp is the bottom layer"},
		{"transport to runtime", in("acp/acphttp", "runtime"), "acp/acphttp imports runtime"},
		{"runtime to transport", in("runtime", "acp/acphttp"), "runtime imports acp/acphttp: transport and runtime meet only in cmd"},
		{"adapter to runtime", in("adapters/mock", "runtime"), "adapters/mock imports runtime"},
		{"control to cmd", in("control", "cmd/sandbox-agent"), "control imports cmd/sandbox-agent"},
		{"echo outside control", in("runtime", "github.com/labstack/echo/v4/middleware"), "the web framework"},
		{"cli outside cmd", in("control", "github.com/urfave/cli/v2"), "only the command knows flags"},
		{"websocket in runtime", in("runtime", "github.com/coder/websocket"), "WebSockets are"},
		{"agent's name in runtime", in("runtime", "adapters/claude"), nameReason},
		{"agent's name in another agent", in("adapters/amp", "adapters/pi"), nameReason},
		{"journal with a dependency", in("runtime/journal", "golang.org/x/sys/unix"), stdReason},
		{"journal with a module package", in("runtime/journal", "acp"), stdReason},
		{"a process in the API", in("control", "internal/process"), "answers for their end"},
		{"a process in an adapter", in("adapters/native", "internal/process"), ""},
		{"HTTP in the file service", in("fs", "net/http"), "knows no HTTP"},
		{"metrics in runtime", in("runtime", "github.com/prometheus/client_golang/prometheus"), telemetryReason},
		{"traces in control", in("control", "go.opentelemetry.io/otel/trace"), telemetryReason},
		{"metrics in telemetry", in("control/telemetry", "github.com/prometheus/client_golang/prometheus"), ""},
		{"schemas in the product", in("runtime", "github.com/santhosh-tekuri/jsonschema/v6"), "tests only"},

		{"messages in the types", in("acp/schema", "acp"), "types know nothing"},

		{"downwards", in("runtime", "acp", "adapters", "runtime/journal", "context"), ""},
		{"a standard package of the same name", pkg{ImportPath: module + "/acp", Deps: []string{"runtime", "io/fs"}}, ""},
		{"echo in control", in("control", "github.com/labstack/echo/v4"), ""},
		{"all agents in the list", in("adapters/all", "adapters/claude", "adapters/pi"), ""},
		{"an agent's own folder", in("adapters/claude", "adapters/claude/internal/wire"), ""},
		{"system calls in process", in("internal/process", "os", "golang.org/x/sys/unix"), ""},
		{"similar names", in("acp/sse", "encoding/json", "net/http"), ""},
		{"a name that only begins alike", in("runtime", "adapters/claudette"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations([]pkg{tt.pkg}, forbidden)
			if tt.want == "" {
				if len(got) > 0 {
					t.Errorf("violations %q, want none", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("violations %q, want one with %q", got, tt.want)
			}
		})
	}
	deep := in("acp/acphttp", "context")
	deep.Deps = append(deep.Deps, module+"/runtime")
	if got := violations([]pkg{deep}, forbidden); len(got) != 1 {
		t.Errorf("violations %q, want one for an indirect dependency", got)
	}
}

func TestPackages_HaveDoc(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles)+len(p.CgoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", short(p.ImportPath))
		}
	}
}

// CLAUDE.md is read with every change. Files of Go have no such bound: a cut follows a
// concept, and the linters only name those that are long.
func TestFiles_Length(t *testing.T) {
	if n := bytes.Count(files(t)["CLAUDE.md"], []byte("\n")); n == 0 || n > 150 {
		t.Errorf("CLAUDE.md has %d lines, at most 150", n)
	}
}

// words that no file may contain, each with its reason. They are written in
// two parts so that this file does not contain them either.
var words = map[string]string{
	`\bTO` + `DO\b`:             "unfinished work is not committed",
	`\bFIX` + `ME\b`:            "unfinished work is not committed",
	`(^|[^.\w])/wo` + `rk/`:     "a path of one machine",
	`\.\./sha` + `red\b`:        "a path of one machine",
	`registry\.npm` + `js\.org`: "package clients know their registry from their own configuration",
	`proxy\.gol` + `ang\.org`:   "package clients know their registry from their own configuration",
}

func findWords(b []byte) map[string]string {
	found := map[string]string{}
	for pattern, reason := range words {
		if m := regexp.MustCompile(`(?m)` + pattern).Find(b); m != nil {
			found[string(m)] = reason
		}
	}
	return found
}

func TestFiles_Words(t *testing.T) {
	for name, b := range files(t) {
		if bytes.IndexByte(b, 0) >= 0 {
			continue // not text
		}
		for word, reason := range findWords(b) {
			t.Errorf("%s contains %q: %s", name, word, reason)
		}
	}
}

// A program that was built in the wrong place is not part of the repository.
func TestFiles_NoneIsLarge(t *testing.T) {
	for name, b := range files(t) {
		if len(b) > largeFile {
			t.Errorf("%s has %d bytes: what is built is not kept in git; see .gitignore", name, len(b))
		}
	}
}

const largeFile = 2 << 20

func TestFindWords(t *testing.T) {
	bad := []string{"// TO" + "DO: later", "FIX" + "ME", `cd "/wo` + `rk/x"`, "../sha" + "red/style.md", `"resolved": "https://registry.npm` + `js.org/x"`}
	for _, s := range bad {
		if len(findWords([]byte(s))) != 1 {
			t.Errorf("%q was not found", s)
		}
	}
	for _, s := range []string{"mastodons", "todo", "home/work/x", "shared"} {
		if got := slices.Collect(maps.Keys(findWords([]byte(s)))); len(got) > 0 {
			t.Errorf("%q was taken for %q", s, got)
		}
	}
}

// list returns the packages of this module.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,Doc,GoFiles,CgoFiles,Imports,Deps", "./...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// files returns the content of every file that is, or would be, in git.
func files(t *testing.T) map[string][]byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "ls-files", "-coz", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	all := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) || err != nil && isDir(name) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = b
	}
	return all
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// What a verb needs is made once: two installations into one folder, at the same time, undo each other.
func TestTasks_DoNothingTwice(t *testing.T) {
	if _, err := os.ReadFile("Taskfile.yml"); err != nil { // a result of these tests is kept until a file that they read changes
		t.Fatal(err)
	}
	for _, verb := range []string{"serve", "hub", "build", "release"} {
		out, err := exec.CommandContext(t.Context(), "sh", "./task", "--dry", "--force", verb).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", verb, err, out)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "task: [") && seen[line] {
				t.Errorf("%s does twice: %s", verb, line)
			}
			seen[line] = true
		}
	}
}

// What two verbs of ./task must not do at the same time, they do one after the other, also when one of them was killed.
func TestAlone(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile(".ci/alone")
	alone := filepath.Join(dir, ".ci", "alone")
	killed := exec.CommandContext(t.Context(), "true")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(alone), 0o700), os.WriteFile(alone, script, 0o700), os.Mkdir(filepath.Join(dir, ".task"), 0o700), killed.Run()); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(strconv.Itoa(killed.Process.Pid), filepath.Join(dir, ".task", "alone-it")); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), alone, "it", "sh", "-c", "mkdir busy && printf x >>times && rmdir busy")
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
	if times, err := os.ReadFile(filepath.Join(dir, "times")); err != nil || string(times) != "xxxxxx" {
		t.Errorf("they ran %q, %v", times, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, ".task")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
