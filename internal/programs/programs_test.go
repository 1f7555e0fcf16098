package programs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a run has built is what its tests start; with the race detector they have another one.
func TestBuild_OfARun(t *testing.T) {
	built, folder := t.TempDir(), t.TempDir()
	t.Setenv(FolderVar, built)
	if err := Build(folder, false, Gateway); err == nil {
		t.Error("there is none, and no error")
	}
	if err := os.WriteFile(filepath.Join(built, Gateway), []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Build(folder, false, Gateway); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(folder, Gateway)); err != nil || string(b) != "#!/bin/sh\n" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(folder, Gateway)); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("it cannot be started: %v, %v", info, err)
	}
}

func TestAsUsers(t *testing.T) {
	for _, variable := range CollectLate {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	AsUsers()
	for _, variable := range os.Environ() {
		if slices.Contains(CollectLate, variable) {
			t.Errorf("what is started from now on has %s", variable)
		}
	}
}
