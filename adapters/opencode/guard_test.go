package opencode

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// install does to a folder what OpenCode does when it has a network.
func install(t *testing.T, folder, deps string) {
	t.Helper()
	for name, content := range map[string]string{
		".gitignore": ignored, "package.json": deps, "package-lock.json": `{"packages":{}}`, "node_modules/@opencode-ai/plugin/index.js": "x",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestGuard_PutsFoldersBack(t *testing.T) {
	const plain = `{"dependencies":{"@opencode-ai/plugin":"1.2.3"}}`
	const own = `{"name":"mine","dependencies":{"left-pad":"1.0.0"}}`
	for name, c := range map[string]struct {
		was, now string // package.json; "" for none
		left     []string
		text     string // of package.json at the end
	}{
		"nothing was there":         {"", plain, []string{"command"}, ""},
		"the user's package.json":   {own, `{"name":"mine","dependencies":{"left-pad":"1.0.0","@opencode-ai/plugin":"1"}}`, []string{"command", "package.json"}, own},
		"the user has added to it":  {"", `{"dependencies":{"@opencode-ai/plugin":"1","zod":"3"}}`, []string{"command", "node_modules", "package-lock.json", "package.json"}, `{"dependencies":{"@opencode-ai/plugin":"1","zod":"3"}}`},
		"it was installed before":   {plain, plain, []string{"command", "node_modules", "package-lock.json", "package.json"}, plain},
		"package.json is no object": {"", `[1]`, []string{"command", "node_modules", "package-lock.json", "package.json"}, `[1]`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			cwd, folder, notes := filepath.Join(root, "a/b"), filepath.Join(root, "a/.opencode"), filepath.Join(root, "notes")
			for _, d := range []string{cwd, filepath.Join(folder, "command")} {
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if c.was != "" {
				if err := os.WriteFile(filepath.Join(folder, "package.json"), []byte(c.was), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			g := newGuard(notes, slog.New(slog.DiscardHandler))
			g.watch(cwd)
			install(t, folder, c.now)
			// The gateway is killed, and the next one does not take what was installed
			// for the user's.
			g = newGuard(notes, slog.New(slog.DiscardHandler))
			g.watch(cwd)
			g.restore(cwd)
			if got := names(t, folder); !slices.Equal(got, c.left) {
				t.Errorf("left are %q, want %q", got, c.left)
			}
			if b, _ := os.ReadFile(filepath.Join(folder, "package.json")); string(b) != c.text {
				t.Errorf("package.json is %s", b)
			}
			install(t, folder, c.now)
			g.restoreAll()
			if got := names(t, folder); !slices.Equal(got, c.left) {
				t.Errorf("at the end left are %q, want %q", got, c.left)
			}
			if got := names(t, notes); len(got) > 0 {
				t.Errorf("notes are left: %q", got)
			}
		})
	}
}
