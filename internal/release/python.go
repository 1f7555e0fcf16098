package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// pyProject is what the packages for Python say of themselves: sdk-py/pyproject.toml, as
// far as it is used there. What it does not know is refused, so that nothing is left out.
type pyProject struct {
	Project struct {
		Name           string
		Version        string
		Description    string
		Readme         string
		RequiresPython string `toml:"requires-python"`
		License        struct{ Text string }
		Dependencies   []string
		URLs           map[string]string
	}
}

// packPython makes the packages for Python, a wheel and an archive of the sources, out of
// sdk-py. Both are plain archives with a few files of their own: no tool of Python's is
// needed, and the same sources give the same bytes.
func packPython(o options, staged string) error {
	version, err := pythonVersion(o.version)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.root, "sdk-py")
	manifest, err := os.ReadFile(filepath.Join(dir, "pyproject.toml"))
	if err != nil {
		return fmt.Errorf("read what the package for Python is: %w", err)
	}
	var p pyProject
	known, err := toml.Decode(string(manifest), &p)
	if err != nil {
		return fmt.Errorf("read sdk-py/pyproject.toml: %w", err)
	}
	for _, key := range known.Undecoded() {
		if key[0] == "project" {
			return fmt.Errorf("sdk-py/pyproject.toml has %s, which packages would not have: teach internal/release/python.go", key)
		}
	}
	stamped := projectVersion.ReplaceAllString(string(manifest), "${1}"+version+"${2}")
	if n := len(projectVersion.FindAllString(string(manifest), -1)); n != 1 {
		return fmt.Errorf("sdk-py/pyproject.toml has %d lines with a version, not one", n)
	}
	readme, err := os.ReadFile(filepath.Join(dir, p.Project.Readme))
	if err != nil {
		return fmt.Errorf("read the package's README: %w", err)
	}
	license, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("read the license: %w", err)
	}
	sources, err := pythonSources(filepath.Join(dir, "src"))
	if err != nil {
		return err
	}
	about := p.metadata(version, readme)
	base := strings.ReplaceAll(p.Project.Name, "-", "_") + "-" + version

	info := base + ".dist-info/"
	wheel := append(slices.Clone(sources),
		member{name: info + "METADATA", data: about},
		member{name: info + "WHEEL", data: []byte("Wheel-Version: 1.0\nGenerator: sandbox-agent-release\nRoot-Is-Purelib: true\nTag: py3-none-any\n")},
		member{name: info + "licenses/LICENSE", data: license})
	wheel = append(wheel, record(info+"RECORD", wheel))
	if err := writeZip(filepath.Join(staged, base+"-py3-none-any.whl"), wheel); err != nil {
		return err
	}

	source := []member{{name: "LICENSE", data: license}, {name: "PKG-INFO", data: about}, {name: p.Project.Readme, data: readme}, {name: "pyproject.toml", data: []byte(stamped)}}
	for _, m := range sources {
		source = append(source, member{name: "src/" + m.name, data: m.data})
	}
	for i := range source {
		source[i].name = base + "/" + source[i].name
	}
	return writeTarGz(filepath.Join(staged, base+".tar.gz"), source)
}

var (
	projectVersion = regexp.MustCompile(`(?m)^(version = ")[^"]*(")$`)
	early          = regexp.MustCompile(`^(\d+\.\d+\.\d+)-(alpha|beta|rc)\.?(\d+)$`)
)

// pythonVersion is a version as Python writes it: 1.2.3-rc.1 is 1.2.3rc1.
func pythonVersion(version string) (string, error) {
	if !strings.Contains(version, "-") {
		return version, nil
	}
	m := early.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("version %s: Python knows no such version; use -alpha.N, -beta.N or -rc.N", version)
	}
	return m[1] + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3], nil
}

func (p *pyProject) metadata(version string, readme []byte) []byte {
	var b bytes.Buffer
	line := func(name, value string) { fmt.Fprintf(&b, "%s: %s\n", name, value) }
	line("Metadata-Version", "2.1")
	line("Name", p.Project.Name)
	line("Version", version)
	line("Summary", p.Project.Description)
	line("License", p.Project.License.Text)
	for _, name := range slices.Sorted(maps.Keys(p.Project.URLs)) {
		line("Project-URL", name+", "+p.Project.URLs[name])
	}
	line("Requires-Python", p.Project.RequiresPython)
	for _, d := range p.Project.Dependencies {
		line("Requires-Dist", d)
	}
	line("Description-Content-Type", "text/markdown")
	b.WriteString("\n")
	b.Write(readme)
	return b.Bytes()
}

// pythonSources are the package's own files, in their order.
func pythonSources(dir string) (out []member, err error) {
	err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "__pycache__" || strings.HasSuffix(e.Name(), ".egg-info")):
			return filepath.SkipDir
		case e.IsDir() || filepath.Ext(name) != ".py" && e.Name() != "py.typed":
			return nil
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		out = append(out, member{name: filepath.ToSlash(rel), data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the package for Python: %w", err)
	}
	return out, nil
}

// record lists the files of a wheel with their checksums.
func record(name string, all []member) member {
	var b bytes.Buffer
	for _, m := range all {
		sum := sha256.Sum256(m.data)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", m.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(m.data))
	}
	fmt.Fprintf(&b, "%s,,\n", name)
	return member{name: name, data: b.Bytes()}
}
