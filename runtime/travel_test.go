package runtime

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

// Keys go from all that can be read, paths from all that is not signed, and what is no
// JSON is edited as a text.
func TestEdited(t *testing.T) {
	move := paths.NewMap(paths.Pair{From: "/old", To: "/new/home"})
	clean := func(s string) string { return strings.ReplaceAll(s, "KEY", "[removed]") }
	const in = `{"p":"/old/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`
	read := func(name string, json func([]byte) []byte, text func(string) string) string {
		t.Helper()
		b, err := io.ReadAll(edited(name, strings.NewReader(in), json, text))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct{ name, moved, cleaned string }{
		{
			"a.jsonl", `{"p":"/new/home/x KEY","thinking":"/old KEY","signature":"/old KEY"}` + "\n" + `{"p":"/new/home` + "\n" + `["/new/home"]`,
			`{"p":"/old/x [removed]","thinking":"/old [removed]","signature":"/old KEY"}` + "\n" + `{"p":"/old` + "\n" + `["/old"]`,
		},
		{"a.json", strings.ReplaceAll(in, "/old", "/new/home"), strings.ReplaceAll(in, "KEY", "[removed]")},
		{"a.txt", in, in},
	} {
		if got := read(c.name, move.JSON, move.Text); got != c.moved {
			t.Errorf("%s moved: %s", c.name, got)
		}
		if got := read(c.name, func(b []byte) []byte { return cleanJSON(b, clean) }, clean); got != c.cleaned {
			t.Errorf("%s cleaned: %s", c.name, got)
		}
	}
	if _, err := io.ReadAll(edited("a.json", io.LimitReader(endless{}, maxText+2), move.JSON, nil)); err == nil || !strings.Contains(err.Error(), "has more than") {
		t.Errorf("a text without an end: %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A client may leave while its export waits for the agent to let the session go. The
// session is closed by then, and opens again.
func TestExport_ClientLeavesWhileTheSessionCloses(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	id := tc.session()
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.ExportSession(ctx, id, Departure{}) }()
	closing := a.conn().next(t, "session/close")
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the export ended with %v", err)
	}
	a.conn().result(closing, `{}`)
	tc.call("session/resume", `{"sessionId":"`+id+`","cwd":"/tmp"}`) // waits until it is closed
	pid := tc.request("session/prompt", prompt(id, "x"))
	a.conn().result(a.conn().next(t, "session/resume"), `{}`)
	a.conn().result(a.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	if _, res := tc.until(pid); res.Err() != nil {
		t.Errorf("the next prompt: %s", res.Frame())
	}
}
