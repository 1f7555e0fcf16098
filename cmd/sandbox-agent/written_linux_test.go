package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// What could not be written is a failure, and not success with nothing in the file.
func TestOutput_FullDisk(t *testing.T) {
	for _, line := range []string{"version", "version --json", "help", "prompt --help", "daemon unit", "completion bash"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		var errOut bytes.Buffer
		code := run(t.Context(), strings.Fields(line), stdio{in: strings.NewReader(""), out: full, err: &errOut})
		if err := full.Close(); err != nil {
			t.Fatal(err)
		}
		if code != 1 || !strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("%s: exit %d, %s", line, code, errOut.String())
		}
	}
}
