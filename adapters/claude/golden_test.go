package claude

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	linesMark   = "-- lines --\n"
	updatesMark = "-- updates --\n"
)

// shown renders what becomes of the program's lines, one line each, and checks
// it against the schema.
func shown(t *testing.T, lines []byte, caps bool) string {
	t.Helper()
	valid := acptest.New(t)
	tr := newTranslator(nil)
	tr.notices, tr.compaction = caps, caps
	set := settings{mode: modeDefault}
	var out strings.Builder
	write := func(kind string, v any) []byte {
		b, err := acp.Encode(v)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		out.WriteString(kind + " " + string(b) + "\n")
		return b
	}
	check := func(m acp.Message) {
		if err := valid.ValidateFrame(m.Frame(), func(string) string { return "" }); err != nil {
			t.Errorf("%v: %.300s", err, m.Frame())
		}
	}
	updates := func(list []acp.SessionUpdate) {
		for _, u := range list {
			params := append([]byte(`{"sessionId":"S","update":`), write("update", u)...)
			check(acp.NewNotification(acp.MethodSessionUpdate, append(params, '}')))
		}
	}
	prompt := &turn{done: make(chan verdict, 1)}
	in := bridge.NewLines(bytes.NewReader(lines), 0)
	for {
		line, err := in.Next()
		if err != nil {
			break
		}
		e, err := parse(line)
		if err != nil {
			out.WriteString("unparsed " + err.Error() + "\n")
			continue
		}
		prompt.note(e)
		if e.Type == "control_request" {
			r := new(controlRequest)
			if err := lenient(e.Request, r); err != nil {
				t.Fatal(err)
			}
			if r.Subtype != "can_use_tool" {
				out.WriteString("asks " + r.Subtype + "\n")
				continue
			}
			updates(tr.asked(r))
			if q, ok := questionsOf("S", r); ok {
				write("question", q)
				continue
			}
			list := choicesOf(r, set.modeIDs())
			check(acp.NewRequest("1", acp.MethodSessionRequestPermission, write("permission", permissionRequest("S", r, list))))
			for _, c := range list {
				write("  "+string(c.option.OptionID)+":", c.answer)
			}
			continue
		}
		updates(tr.translate(e))
		if e.Type != "result" {
			continue
		}
		if !prompt.answers(e) {
			out.WriteString("end of a turn that nobody prompted\n")
			continue
		}
		if v := prompt.judge(e); v.err != nil {
			write("error", v.err)
		} else {
			out.WriteString("end " + string(v.reason) + "\n")
		}
		prompt = &turn{done: make(chan verdict, 1)}
	}
	return out.String()
}

// TestTranslate_Fixtures replays what the program wrote in captured runs. Of the
// model, which was scripted, the texts and numbers mean nothing.
func TestTranslate_Fixtures(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) < 139 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txtar"), func(t *testing.T) {
			golden(t, f, func(lines []byte) string { return shown(t, lines, true) })
		})
	}
}

// golden compares what f makes of a file's lines with its updates.
func golden(t *testing.T, file string, f func(lines []byte) string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines, want, ok := strings.Cut(strings.TrimPrefix(string(b), linesMark), updatesMark)
	if !ok {
		t.Fatalf("%s has no %q", file, updatesMark)
	}
	got := f([]byte(lines))
	if *update {
		if err := os.WriteFile(file, []byte(linesMark+lines+updatesMark+got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("-want +got; go test -run TestTranslate -update writes it anew\n%s", diff)
	}
}
