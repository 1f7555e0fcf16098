package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const acpDir = "../.."

func TestGenerate_NoDrift(t *testing.T) {
	files, err := fromDir(acpDir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(acpDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(got) {
			t.Errorf("%s is not what the generator writes: run go generate ./acp/schema", name)
		}
	}
	present := 0
	for _, pattern := range []string{"*_gen.go", "*/*_gen.go"} {
		found, err := filepath.Glob(filepath.Join(acpDir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		present += len(found)
	}
	if present != len(files) {
		t.Errorf("%d generated files exist, %d are generated", present, len(files))
	}
}

func TestSchema_IsTheOnePinned(t *testing.T) {
	files := make(map[string][]byte)
	for _, name := range schemaFiles {
		b, err := os.ReadFile(filepath.Join(acpDir, "schema", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = b
	}
	got, err := os.ReadFile(filepath.Join(acpDir, "schema", "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(versionFile(files), string(got)); diff != "" {
		t.Errorf("VERSION (-want +got):\n%s", diff)
	}
}

func TestGoName(t *testing.T) {
	for in, want := range map[string]string{
		"SessionId": "SessionID", "McpServerHttp": "MCPServerHTTP", "user_message_chunk": "UserMessageChunk",
		"date-time": "DateTime", "$/cancel_request": "CancelRequest", "fs/read_text_file": "FSReadTextFile",
		"value_id": "ValueID", "_meta": "Meta",
	} {
		if got := goName(in); got != want {
			t.Errorf("goName(%q) = %q, want %q", in, got, want)
		}
	}
}
