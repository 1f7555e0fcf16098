package install

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	goruntime "runtime"
	"strings"
)

// Platform is what a program must be built for.
type Platform struct {
	OS   string // linux or darwin
	Arch string // x64 or arm64
	Musl bool   // the C library is musl; always false outside Linux
}

// String returns the name that the table of recipes uses, such as linux-x64-musl.
func (p Platform) String() string {
	s := p.OS + "-" + p.Arch
	if p.Musl {
		s += "-musl"
	}
	return s
}

// registryTarget returns the name that the ACP registry uses.
func (p Platform) registryTarget() string {
	arch := map[string]string{"x64": "x86_64", "arm64": "aarch64"}[p.Arch]
	if arch == "" {
		arch = p.Arch
	}
	return p.OS + "-" + arch
}

// Detect returns the platform of this machine.
func Detect() Platform { return detect("/", goruntime.GOOS, goruntime.GOARCH) }

// detect looks for the C library below root.
func detect(root, goos, goarch string) Platform {
	p := Platform{OS: goos, Arch: goarch}
	if goarch == "amd64" {
		p.Arch = "x64"
	}
	p.Musl = goos == "linux" && musl(root)
	return p
}

// musl reports whether programs below root use musl. The shell's own loader
// decides: a machine may have the other library's loader for guests only.
func musl(root string) bool {
	switch loader := interpreter(filepath.Join(root, "bin", "sh")); {
	case strings.Contains(loader, "ld-musl"):
		return true
	case loader != "":
		return false
	}
	// A static shell, or none.
	return has(root, "lib/ld-musl-*") && !has(root, "lib64/ld-linux-*") && !has(root, "lib/ld-linux-*")
}

func has(root, pattern string) bool {
	found, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	return len(found) > 0
}

// interpreter returns the dynamic loader that an ELF file names, "" if none.
func interpreter(file string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for _, prog := range f.Progs {
		if prog.Type != elf.PT_INTERP || prog.Filesz > 4096 {
			continue
		}
		b := make([]byte, prog.Filesz)
		if _, err := prog.ReadAt(b, 0); err != nil {
			return ""
		}
		return string(bytes.TrimRight(b, "\x00"))
	}
	return ""
}
