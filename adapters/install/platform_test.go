package install

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestDetect(t *testing.T) {
	tests := []struct {
		name  string
		shell string // the loader of /bin/sh; "-" for a static one, "" for none
		files []string
		musl  bool
	}{
		{"glibc", "/lib64/ld-linux-x86-64.so.2", []string{"lib64/ld-linux-x86-64.so.2"}, false},
		{"musl", "/lib/ld-musl-x86_64.so.1", []string{"lib/ld-musl-x86_64.so.1"}, true},
		{"glibc with musl for guests", "/lib64/ld-linux-x86-64.so.2", []string{"lib/ld-musl-x86_64.so.1"}, false},
		{"musl with glibc for guests", "/lib/ld-musl-x86_64.so.1", []string{"lib64/ld-linux-x86-64.so.2"}, true},
		{"static shell with musl", "-", []string{"lib/ld-musl-aarch64.so.1"}, true},
		{"static shell with both", "-", []string{"lib/ld-musl-aarch64.so.1", "lib/ld-linux-aarch64.so.1"}, false},
		{"no shell, musl", "", []string{"lib/ld-musl-x86_64.so.1"}, true},
		{"nothing", "", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			put := func(name string, b []byte) {
				t.Helper()
				name = filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, b, 0o755)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.shell != "" {
				put("bin/sh", elfFile(t, tt.shell))
			}
			for _, f := range tt.files {
				put(f, nil)
			}
			want := Platform{OS: "linux", Arch: "x64", Musl: tt.musl}
			if got := detect(root, "linux", "amd64"); got != want {
				t.Errorf("detected %v, want %v", got, want)
			}
			if got := detect(root, "darwin", "arm64"); got.String() != "darwin-arm64" {
				t.Errorf("detected %v", got)
			}
		})
	}
	if p := Detect(); p.registryTarget() == "" || fmt.Sprint(p) == "" {
		t.Errorf("this machine is %v", p)
	}
}

// elfFile returns the smallest ELF file that names a loader.
func elfFile(t *testing.T, loader string) []byte {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(h.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1})
	name := []byte(loader + "\x00")
	p := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(name)), Memsz: uint64(len(name))}
	if loader == "-" {
		p.Type = uint32(elf.PT_LOAD)
	}
	h.Phnum = 1
	var b bytes.Buffer
	for _, v := range []any{h, p, name} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}
