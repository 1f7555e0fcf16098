package docs_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// registry stands in for npm's, as far as its client needs one to install. It has this
// repository's packages, which are not published yet, as npm packs them, and what was
// installed for their tests.
type registry struct {
	modules string            // node_modules
	packed  map[string]string // packages of this repository, by name, with their archives
	url     string
}

func startRegistry(t *testing.T) *registry {
	t.Helper()
	sdk, err := filepath.Abs(filepath.Join("..", "sdk-ts"))
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{modules: filepath.Join(sdk, "node_modules"), packed: map[string]string{}}
	// The sources without what was built of them: packing builds.
	dir := t.TempDir()
	sources := filepath.Join(dir, "sdk-ts")
	err = filepath.WalkDir(sdk, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(sdk, path)
		if err != nil {
			return err
		}
		to := filepath.Join(sources, name)
		switch d.Name() {
		case "node_modules", "dist", "release", ".runtimes":
			return fs.SkipDir
		}
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(r.modules)
	if err != nil {
		t.Skip("the Node packages are missing: run ./task node:deps")
	}
	if err := os.Mkdir(filepath.Join(sources, "node_modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		from := filepath.Join(r.modules, entry.Name())
		if entry.Name() == "acp-http-client" || entry.Name() == "sandbox-agent" {
			from = filepath.Join("..", entry.Name())
		}
		symlink(t, from, filepath.Join(sources, "node_modules", entry.Name()))
	}
	cmd := exec.CommandContext(t.Context(), "npm", "pack", "--silent", "--workspaces", "--pack-destination", dir)
	cmd.Dir = sources
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm pack: %v\n%s", err, out)
	}
	for _, name := range []string{"acp-http-client", "sandbox-agent"} {
		archives, err := filepath.Glob(filepath.Join(dir, name+"-*.tgz"))
		if err != nil || len(archives) != 1 {
			t.Fatalf("npm pack made %q of %s: %v", archives, name, err)
		}
		r.packed[name] = archives[0]
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	name := strings.TrimPrefix(req.URL.Path, "/")
	archived, isArchive := strings.CutPrefix(name, "-/archive/")
	var answer []byte
	var err error
	if isArchive {
		answer, err = r.archive(archived)
	} else {
		answer, err = r.about(name)
	}
	if err != nil {
		http.NotFound(w, req)
		return
	}
	_, _ = w.Write(answer)
}

// about is what a registry says of a package: it has the one version.
func (r *registry) about(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(r.modules, filepath.FromSlash(name), "package.json"))
	if err != nil {
		return nil, err
	}
	var manifest map[string]any
	if err := json.Unmarshal(b, &manifest); err != nil {
		return nil, err
	}
	if optional, ok := manifest["optionalDependencies"].(map[string]any); ok {
		for name := range optional { // those for other machines
			if _, err := os.Stat(filepath.Join(r.modules, filepath.FromSlash(name))); err != nil {
				delete(optional, name)
			}
		}
	}
	manifest["dist"] = map[string]string{"tarball": r.url + "/-/archive/" + name}
	version := fmt.Sprint(manifest["version"])
	return json.Marshal(map[string]any{"name": name, "dist-tags": map[string]string{"latest": version}, "versions": map[string]any{version: manifest}})
}

// archive is a package as npm fetches it.
func (r *registry) archive(name string) ([]byte, error) {
	if file, ok := r.packed[name]; ok {
		return os.ReadFile(file)
	}
	root := filepath.Join(r.modules, filepath.FromSlash(name))
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		in, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: "package/" + filepath.ToSlash(in), Mode: int64(info.Mode().Perm()), Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
