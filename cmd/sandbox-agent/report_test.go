package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// unpackedReport returns the parts of a report without the name of its folder.
func unpackedReport(t *testing.T, from io.Reader, folder string) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(from)
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return parts
		}
		b, rerr := io.ReadAll(r)
		name, ok := strings.CutPrefix(h.Name, folder+"/")
		if err := errors.Join(err, rerr); err != nil || !ok {
			t.Fatalf("%s: %v", h.Name, err)
		}
		parts[name] = b
	}
}

// A report has what a developer asks for first, also of a session whose agent has died, and
// no key.
func TestReport(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--env", "LAKE_TOKEN=grebe-on-the-lake", "echo the key is sk-ant-0123456789abcdef0123, the word is heron, the other is grebe-on-the-lake")
	id := sessionIn(errOut)
	if code, _, _ := tool(t, "", "prompt", "--session", id, "crash"); code == cmdline.ExitOK {
		t.Fatal("the mock agent did not crash")
	}
	file := filepath.Join(t.TempDir(), "r.tar.gz")
	if code, out, errOut := tool(t, "", "sessions", "report", id, "-o", file, "--redact", "her.n"); code != cmdline.ExitOK || out != "" || !strings.Contains(errOut, "wrote "+file) {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts := unpackedReport(t, f, id+"-report")
	var all []byte
	for _, b := range parts {
		all = append(all, b...)
	}
	for _, secret := range []string{"sk-ant-0123456789abcdef0123", "heron", "grebe-on-the-lake"} {
		if bytes.Contains(all, []byte(secret)) {
			t.Errorf("%q is in the report", secret)
		}
	}
	var info runtime.SessionInfo
	if err := json.Unmarshal(parts["session.json"], &info); err != nil || info.ID != id {
		t.Errorf("the session: %s, %v", parts["session.json"], err)
	}
	var found install.Report
	if err := json.Unmarshal(parts["doctor.json"], &found); err != nil || len(found.Checks) == 0 {
		t.Errorf("the doctor: %s, %v", parts["doctor.json"], err)
	}
	var agent runtime.AgentInfo
	if err := json.Unmarshal(parts["agent.json"], &agent); err != nil || agent.ID != "mock" {
		t.Errorf("the agent: %s, %v", parts["agent.json"], err)
	}
	var versions struct {
		Gateway, Program struct{ Version string }
	}
	if err := json.Unmarshal(parts["versions.json"], &versions); err != nil || versions.Gateway.Version == "" || versions.Program.Version != version {
		t.Errorf("the versions: %s, %v", parts["versions.json"], err)
	}
	lines := strings.Split(strings.TrimSpace(string(parts["events.ndjson"])), "\n")
	var last runtime.Event
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Seq != info.EventCount {
		t.Errorf("the newest event is %d of %d, %v", last.Seq, info.EventCount, err)
	}
	if !strings.Contains(string(parts["events.ndjson"]), "the key is [removed], the word is [removed], the other is [removed]") || !bytes.Contains(parts["events.ndjson"], []byte("something terrible happened")) || !bytes.Contains(parts["README.txt"], []byte(id)) {
		t.Errorf("the events: %s", parts["events.ndjson"])
	}

	_, out, _ := tool(t, "", "sessions", "report", id, "-o", "-", "--events", "3")
	few := unpackedReport(t, strings.NewReader(out), id+"-report")
	if n := strings.Count(string(few["events.ndjson"]), "\n"); n == 0 || n > 3 {
		t.Errorf("--events 3: %d events", n)
	}
	_, out, _ = tool(t, "", "sessions", "report", id, "-o", "-", "--events", "0")
	if none := unpackedReport(t, strings.NewReader(out), id+"-report"); none["events.ndjson"] != nil || none["session.json"] == nil {
		t.Errorf("--events 0: %v", none)
	}
	for args, want := range map[string]int{
		"no-such-session -o -": cmdline.ExitNotFound, id + " --events -1": cmdline.ExitUsage, id + " --events 99999": cmdline.ExitUsage, id + " --redact (": cmdline.ExitUsage,
	} {
		if code, out, errOut := tool(t, "", append([]string{"sessions", "report"}, strings.Fields(args)...)...); code != want || out != "" {
			t.Errorf("%s: exit %d, %s%s", args, code, out, errOut)
		}
	}
}

// What an agent and the gateway said to each other is printed, is in the report, and travels.
func TestSessionsRaw(t *testing.T) {
	url, _ := start(t, "--data-dir", t.TempDir())
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--include-raw", "--env", "GREETING=a word of the environment", "echo the word is heron")
	id := sessionIn(errOut)
	raw := func() string {
		t.Helper()
		code, out, errOut := tool(t, "", "sessions", "raw", id)
		if code != cmdline.ExitOK || !strings.Contains(out, `\"session/prompt\"`) || !strings.Contains(out, `"from":"agent"`) {
			t.Errorf("exit %d, %s%s", code, out, errOut)
		}
		return out
	}
	if out := raw(); !strings.Contains(out, "the word is heron") || !strings.Contains(out, "a word of the environment") {
		t.Error(out)
	}
	_, out, _ := tool(t, "", "sessions", "report", id, "-o", "-", "--redact", "her.n")
	parts := unpackedReport(t, strings.NewReader(out), id+"-report")
	if part := string(parts["raw.ndjson"]); !strings.Contains(part, "the word is [removed]") || strings.Contains(part, "heron") || strings.Contains(part, `"error"`) {
		t.Errorf("the report: %s", part)
	}
	_, out, _ = tool(t, "", "sessions", "report", id, "-o", "-", "--events", "0")
	if none := unpackedReport(t, strings.NewReader(out), id+"-report"); none["raw.ndjson"] != nil || strings.Contains(string(none["session.json"]), "heron") {
		t.Errorf("--events 0: %s%s", none["session.json"], none["raw.ndjson"])
	}

	file := filepath.Join(t.TempDir(), "session")
	for _, args := range [][]string{
		{"export", id, "-o", file, "--redact", "her.n"}, {"delete", id}, {"import", file},
	} {
		if code, out, errOut := tool(t, "", append([]string{"sessions"}, args...)...); code != cmdline.ExitOK {
			t.Fatalf("%v: exit %d, %s%s", args, code, out, errOut)
		}
	}
	if out := raw(); !strings.Contains(out, "the word is [removed]") || strings.Contains(out, "heron") || strings.Contains(out, "a word of the environment") {
		t.Error(out) // all values of variables are left out of what travels
	}

	_, _, errOut = tool(t, "", "prompt", "--agent", "mock", "echo nothing is recorded")
	if code, out, errOut := tool(t, "", "sessions", "raw", sessionIn(errOut)); code != cmdline.ExitNotFound || out != "" || !strings.Contains(errOut, "includeRaw") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
}
