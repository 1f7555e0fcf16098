package acp_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
)

func TestLookupMethod(t *testing.T) {
	for _, want := range []acp.MethodInfo{
		{Name: "session/update", Side: acp.SideClient, Kind: acp.KindNotification, Scoped: true},
		{Name: "session/new", Side: acp.SideAgent, Kind: acp.KindRequest},
		{Name: "$/cancel_request", Side: acp.SideBoth, Kind: acp.KindNotification},
		{Name: "session/fork", Side: acp.SideAgent, Kind: acp.KindRequest, Scoped: true, Unstable: true},
		{Name: "mcp/message", Side: acp.SideBoth, Kind: acp.KindRequest | acp.KindNotification, Unstable: true},
	} {
		got, ok := acp.LookupMethod(want.Name)
		if diff := cmp.Diff(want, got); !ok || diff != "" {
			t.Errorf("%s: found %t (-want +got):\n%s", want.Name, ok, diff)
		}
	}
	if _, ok := acp.LookupMethod("_x"); ok {
		t.Error("_x is found")
	}
}
