package pi

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// answering is a shell script in the place of Pi: it answers whatever it is asked.
const answering = `while read -r line; do
	id=${line#*'"id":"'}
	echo '{"type":"response","id":"'${id%%'"'*}'","success":true,"data":{"sessionId":"01a21bd5-e15d-76e5-aa12-9cd7b28b26a4","model":{"provider":"p","id":"m"}}}'
done
`

func TestUnread(t *testing.T) {
	bridgetest.DiesUnread(t, func(t *testing.T) *bridgetest.World {
		w := bridgetest.With(t, New(), adapters.Program{Path: "/bin/sh"})
		w.Program.Args = []string{w.Write("pi.sh", answering, 0o700)}
		return w
	}, `{"permissionMode":"bypass"}`, map[string]string{
		`{"method":"session/set_title","params":{"sessionId":"ID","title":"A title"}}`: "set_session_name",
	})
}
