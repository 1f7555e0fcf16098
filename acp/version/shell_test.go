package version_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// ofCommand is an update of a call that runs a command, with what its mark says.
func ofCommand(kind, call, rest, mark string) string {
	return "u " + update(`{"sessionUpdate":"`+kind+`","toolCallId":"`+call+`"`+rest+`,"_meta":{"sandboxagent.dev":{`+mark+`}}}`)
}

func console(lines string) string {
	return `,"content":[{"type":"content","content":{"type":"text","text":"` + "```console\\n" + lines + "\\n```" + `"}}]`
}

// plain returns updates with the output of terminals as text.
func plain(updates []string) []string {
	for i, u := range updates {
		if before, rest, ok := strings.Cut(u, `"data":"`); ok {
			data, after, _ := strings.Cut(rest, `"`)
			text, _ := base64.StdEncoding.DecodeString(data)
			updates[i] = before + `"data":"` + string(text) + `"` + after
		}
	}
	return updates
}

// A command is a terminal, whose output comes in pieces while it goes on with what was told
// and as a whole when it does not.
func TestView_Terminal(t *testing.T) {
	log := logOf(
		ofCommand("tool_call", "c", `,"title":"make","status":"pending","content":[{"type":"content","content":{"type":"text","text":"Builds"}}]`, `"terminal":{"command":"make all","cwd":"/w"}`),
		ofCommand("tool_call_update", "c", `,"status":"in_progress"`, `"cancel":true`),
		ofCommand("tool_call_update", "c", `,"status":"in_progress"`+console("one"), `"terminal":{"output":true}`),
		ofCommand("tool_call_update", "c", `,"status":"in_progress"`+console(`one\ntwo`), `"cancel":true,"terminal":{"output":true}`),
		ofCommand("tool_call_update", "c", `,"status":"in_progress"`+console(`one\ntwo\nthree`), `"terminal":{"output":true}`),
		ofCommand("tool_call_update", "c", `,"status":"in_progress"`+console(`one\n[... 3 bytes left out ...]\nthree`), `"terminal":{"output":true}`),
		ofCommand("tool_call_update", "c", `,"status":"failed"`+console(`one\n[... 3 bytes left out ...]\nthree\n4`), `"terminal":{"output":true,"exitCode":3}`),
	)
	told := plain(updatesOf(read(log, 0)))
	want := []string{
		`{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","command":"make all","cwd":"/w","exitStatus":null}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"make","status":"pending","content":[{"type":"content","content":{"type":"text","text":"Builds"}}]}`,
		`{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","capabilities":{"cancel":{}}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress","_meta":{"sandboxagent.dev":{"cancel":true}},"capabilities":{"cancel":{}}}`,
		`{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","output":{"data":"one"}}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress","content":[{"type":"terminal","terminalId":"sa.terminal.c"}]}`,
		`{"sessionUpdate":"terminal_output_chunk","terminalId":"sa.terminal.c","data":"` + "\ntwo" + `"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress","_meta":{"sandboxagent.dev":{"cancel":true}},"capabilities":{"cancel":{}}}`,
		`{"sessionUpdate":"terminal_output_chunk","terminalId":"sa.terminal.c","data":"` + "\nthree" + `"}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"in_progress"}`,
		`{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","output":{"data":"` + "one\n[... 3 bytes left out ...]\nthree" + `"}}`,
		`{"sessionUpdate":"terminal_output_chunk","terminalId":"sa.terminal.c","data":"` + "\n4" + `"}`,
		`{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","exitStatus":{"exitCode":3},"capabilities":null}`,
		`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(told, plain(updatesOf(read(log, len(log))))); diff != "" {
		t.Errorf("a replay is otherwise (-live +replay):\n%s", diff)
	}
	check := acptest.NewFor(t, 2)
	for _, f := range read(log, 0) {
		if err := check.ValidateFrame([]byte(f), func(string) string { return "" }); err != nil {
			t.Errorf("%v in %s", err, f)
		}
	}
}

// A command of a subagent has its terminal in the subagent's session, and one of a call that
// just ends has ended, though nobody knows how.
func TestView_TerminalOfSubagent(t *testing.T) {
	log := logOf(
		ofCommand("tool_call", "a", `,"title":"Look","status":"in_progress"`, `"subagent":{}`),
		ofCommand("tool_call", "c", `,"title":"ls","status":"pending"`, `"parentToolCallId":"a","terminal":{"command":"ls"}`),
		"u "+update(`{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"failed"}`),
	)
	var got []string
	for _, f := range read(log, 0) {
		if strings.Contains(f, `"terminal_update"`) {
			got = append(got, f)
		}
	}
	of := func(rest string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s.a","update":{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c"` + rest + `}}}`
	}
	if diff := cmp.Diff([]string{of(`,"command":"ls","exitStatus":null`), of(`,"exitStatus":{}`)}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A client of version 1 that knows subagents is given commands as they are.
func TestViewOne_Terminal(t *testing.T) {
	log := logOf(ofCommand("tool_call", "c", `,"title":"ls"`+console("x"), `"terminal":{"command":"ls","output":true}`))
	one := framesOf(version.NewView(version.About{Session: "s", One: true}), log, 0, nil)
	if diff := cmp.Diff([]string{string(log[0].Frame)}, one); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A terminal of a call is cancelled as the call, and any other as a terminal.
func TestCancelOfCall(t *testing.T) {
	for says, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"terminal/cancel","params":{"sessionId":"s","terminalId":"sa.terminal.c"}}`: `{"jsonrpc":"2.0","id":1,"method":"tool_call/cancel","params":{"sessionId":"s","toolCallId":"c"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"terminal/cancel","params":{"sessionId":"s","terminalId":"t"}}`:             "",
		`{"jsonrpc":"2.0","id":1,"method":"other","params":{"sessionId":"s","terminalId":"sa.terminal.c"}}`:           "",
		`{"jsonrpc":"2.0","method":"terminal/cancel","params":{"sessionId":"s","terminalId":"sa.terminal.c"}}`:        "",
	} {
		m := acp.MustParse([]byte(says))
		got := version.CancelOfCall(&m)
		if want == "" {
			want = says
		}
		if diff := cmp.Diff(want, string(got.Frame())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// Of more terminals than are known the oldest is told anew, as a whole.
func TestView_ManyTerminals(t *testing.T) {
	lines := []string{ofCommand("tool_call", "c", `,"title":"x"`+console("one"), `"terminal":{"output":true}`)}
	for i := range 1024 {
		lines = append(lines, ofCommand("tool_call", fmt.Sprint(i), `,"title":"x"`, `"terminal":{"command":"x"}`))
	}
	lines = append(lines, ofCommand("tool_call_update", "c", console(`one\ntwo`), `"terminal":{"output":true}`))
	told := plain(updatesOf(read(logOf(lines...), 0)))
	want := `{"sessionUpdate":"terminal_update","terminalId":"sa.terminal.c","output":{"data":"` + "one\ntwo" + `"}}`
	if got := told[len(told)-2]; got != want {
		t.Errorf("it is told as %s, want %s", got, want)
	}
}
