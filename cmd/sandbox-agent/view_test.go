package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// Who waits for a turn whose session cannot be written is told why nothing comes.
func TestView_SessionCannotBeWritten(t *testing.T) {
	screen := newScreen()
	v := newView(stdio{out: screen, err: screen}, false, false)
	for _, storage := range []string{`{"writable":false,"reason":"no space left"}`, `{"writable":true}`} {
		v.update(json.RawMessage(`{"sessionUpdate":"session_info_update","_meta":{"sandboxagent.dev":{"storage":` + storage + `}}}`))
	}
	v.update(json.RawMessage(`{"sessionUpdate":"session_info_update","title":"another matter"}`))
	const want = "the gateway cannot write the session, and shows nothing of it until it can: no space left\nthe gateway can write the session again\n"
	if got := screen.String(); got != want {
		t.Errorf("%q, want %q", strings.TrimSpace(got), want)
	}
}
