package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// languages are those of blocks, each with whether somebody checks them.
var languages = map[string]string{
	"sh": "run or checked here", "bash": "run or checked here",
	"ts":         "compiled and run by sdk-ts/sandbox-agent/test/examples.test.ts",
	"python":     "run by sdk-py/tests/test_package.py, or a part of a program",
	"typescript": "a part of a program, compared with it here",
	"json":       "parsed here, frames by the protocol's schema",
	"jsonl":      "the same, line by line",
	"go":         "a bridge, held to the contract here",
	"html":       "copied into a file by the tests of guides, and visited with a browser",
	"mermaid":    "drawn by inspector/test/rendering.test.ts",
	"toml":       "settings", "lua": "settings of an editor", "elisp": "settings of an editor",
	"dockerfile": "lines of an image", "http": "headers", "yaml": "settings", "nginx": "settings", "caddy": "settings", "xml": "settings", "promql": "a query", "ini": "settings", "text": "output",
	"": "output",
}

func TestBlocks_Languages(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if languages[b.lang] == "" {
				t.Errorf("%s: nothing checks blocks of %q", b.where(p), b.lang)
			}
		}
	}
}

// What a page shows of a program is in that program, whose tests run it.
func TestBlocks_From(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			name, ok := strings.CutPrefix(b.mark, "from: ")
			if !ok {
				if b.lang == "typescript" {
					t.Errorf("%s: {/* from: FILE */} is missing before it; a whole program is ts", b.where(p))
				}
				continue
			}
			found++
			program, err := os.ReadFile(filepath.Join("..", name))
			if err != nil {
				t.Errorf("%s: %v", b.where(p), err)
			} else if !strings.Contains(string(program), b.text) {
				t.Errorf("%s: %s does not have these lines", b.where(p), name)
			}
		}
	}
	if found == 0 {
		t.Error("no page shows a part of a program")
	}
}

func TestBlocks_JSON(t *testing.T) {
	v := acptest.New(t)
	frames := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			var docs []string
			switch b.lang {
			case "json":
				docs = []string{b.text}
			case "jsonl":
				docs = strings.Split(strings.TrimSpace(b.text), "\n")
			}
			for _, doc := range docs {
				var members map[string]json.RawMessage
				if !json.Valid([]byte(doc)) {
					t.Errorf("%s: not JSON: %s", b.where(p), doc)
					continue
				}
				if json.Unmarshal([]byte(doc), &members) != nil || members["method"] == nil {
					continue
				}
				frames++
				frame := completed(t, doc, members)
				// Some methods go one way, some the other.
				err := v.ValidateFrame(frame, nil)
				if err != nil && v.ValidateClientFrame(frame, nil) != nil {
					t.Errorf("%s: %v\n%s", b.where(p), err, frame)
				}
			}
		}
	}
	if frames < 10 {
		t.Errorf("%d frames were found", frames)
	}
}

// completed is a frame with the members that pages leave out.
func completed(t *testing.T, doc string, members map[string]json.RawMessage) []byte {
	t.Helper()
	if members["jsonrpc"] != nil {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(doc)); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	members["jsonrpc"] = json.RawMessage(`"2.0"`)
	method := strings.Trim(string(members["method"]), `"`)
	if members["id"] == nil && method != "session/update" && method != "session/cancel" && !strings.HasSuffix(method, "ended") {
		members["id"] = json.RawMessage("1")
	}
	b, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The Go code of a page that is no program is a package of an adapter, tested in this module by an
// overlay of the build.
func TestBlocks_GoBridge(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node is missing")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	dir := t.TempDir()
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang != "go" || strings.HasPrefix(b.text, "package main\n") {
				continue
			}
			if len(overlay["Replace"]) > 0 {
				t.Fatalf("%s: there is one bridge in the pages already", b.where(p))
			}
			file := filepath.Join(dir, "acme.go")
			if err := os.WriteFile(file, []byte(b.text), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay["Replace"][filepath.Join(root, "adapters", "acme", "acme.go")] = file
			overlay["Replace"][filepath.Join(root, "adapters", "acme", "contract_test.go")] = filepath.Join(root, "docs", "testdata", "acme", "contract_test.go")
		}
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file, bin := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "contract")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", file, "-o", bin, "./adapters/acme")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := exec.CommandContext(t.Context(), bin)
	run.Env = append(os.Environ(), "ACME="+filepath.Join(root, "docs", "testdata", "acme", "acme.mjs"))
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A Go program of a page is run against a gateway, and prints what the block
// behind it shows.
func TestBlocks_GoProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	dir := t.TempDir()
	for _, p := range pages(t) {
		for i, b := range p.blocks {
			if b.lang != "go" || !strings.HasPrefix(b.text, "package main\n") {
				continue
			}
			main, file, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "program")
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "example", "main.go"): main}})
			if err != nil {
				t.Fatal(err)
			}
			program := strings.ReplaceAll(b.text, "http://127.0.0.1:"+standardPort, g.url)
			if err := errors.Join(os.WriteFile(main, []byte(program), 0o644), os.WriteFile(file, overlay, 0o644)); err != nil {
				t.Fatal(err)
			}
			build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-overlay", file, "-o", bin, "./cmd/example")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", b.where(p), err, out)
			}
			out, err := exec.CommandContext(t.Context(), bin).CombinedOutput()
			if err != nil || i+1 >= len(p.blocks) || string(out) != p.blocks[i+1].text {
				t.Errorf("%s: %v; it printed, and the page does not show:\n%s", b.where(p), err, out)
			}
		}
	}
}

// The parser of MDX reads every page.
func TestBlocks_MDX(t *testing.T) {
	dir := filepath.Join("..", "cmd", "sandbox-agent", "testdata", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "@mdx-js")); err != nil {
		t.Skip("the Node packages are missing: run ./task node:deps")
	}
	names, err := filepath.Glob("*.md*")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join(dir, "mdx.mjs")}, names...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
