package runtime

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Agents that leave the mode which holds a session to what it may do, by an answer that comes late.

const planned = `"modes":{"currentModeId":"plan","availableModes":[{"id":"write","name":"Write"},{"id":"plan","name":"Plan","description":"Read-only mode"}]}`

// Who asks for readonly once more when a session is so already has asked for it behind what the agent has not answered by then.
func TestLoad_ReadonlyAskedAgainBehindWhatIsNotAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		info adapters.Info
		by   string // what is not answered
		asks string // of _meta, by the load that comes then
		ends bool   // the agent refuses to be set back
		late string // the mode that counts then
	}{
		"behind set_mode":                {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan"},
		"behind a load":                  {by: acp.MethodSessionLoad, asks: `"permissionMode":"readonly"`, late: "plan"},
		"it is not set back":             {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan", ends: true},
		"the adapter takes it":           {info: takesPermission, by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan"},
		"the adapter, it is not back":    {info: takesPermission, by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan", ends: true},
		"nothing is asked for":           {by: acp.MethodSessionSetMode, late: "write"},
		"by one who goes on with it":     {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly","after":0`, late: "write"},
		"what was asked for is the mode": {by: acp.MethodSessionSetMode, asks: `"mode":"plan"`, late: "plan"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), row.info)
				load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
				if row.info.Takes == nil {
					takesAll(a.nextOf(t, acp.MethodSessionSetMode))
				} else {
					takesAll(a.nextOf(t, acp.MethodSessionClose))
					a.answer(a.nextOf(t, acp.MethodSessionResume), `{`+planned+`}`)
				}
				tc.until(load)
				late := tc.givesUp(a, row.by, "write")
				asking := tc
				if strings.Contains(row.asks, "after") {
					asking = connect(t, tc.r, "")
				}
				load = asking.request("session/load", loadOf("n", "/tmp", own(row.asks)))
				if strings.Contains(row.asks, `"mode"`) {
					takesAll(a.nextOf(t, acp.MethodSessionSetMode))
				}
				if _, res := asking.until(load); res.Err() != nil || rawjson.MemberString(res.Result(), "modes", "currentModeId") != "plan" || member(string(res.Result()), "unsupported") != "" {
					t.Errorf("%s", res.Frame())
				}
				takesAll(late)
				if row.late == "write" {
					if shown := tc.shows(); !slices.Equal(shown, []string{"write"}) || len(a.shared) > 0 {
						t.Errorf("clients are shown %q, and the agent is sent %d messages", shown, len(a.shared))
					}
					return
				}
				back := a.nextOf(t, acp.MethodSessionSetMode)
				if given(back, "modeId") != `"plan"` {
					t.Errorf("the agent is sent %s", back.m.Frame())
				}
				shown := tc.shows()
				if row.ends {
					refuseAs(back.to, back.m, acp.CodeInternal, "not now")
					takesAll(a.nextOf(t, acp.MethodSessionClose))
					if shown = append(shown, tc.shows()...); len(shown) != 2 || !strings.Contains(shown[1], `"field":"permissionMode"`) || strings.Contains(shown[1], "started anew") {
						t.Errorf("clients are shown %q", shown)
					}
				} else {
					takesAll(back)
					if shown = append(shown, tc.shows()...); !slices.Equal(shown, []string{"write", "plan"}) {
						t.Errorf("clients are shown %q", shown)
					}
					tc.ends(a)
				}
				id, opened := tc.begins(t, a, "n")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
					t.Errorf("it is opened with %s", opened.m.Frame())
				}
				if row.info.Takes == nil {
					a.answer(opened, `{`+writeAndPlan+`}`)
					if set := a.nextOf(t, acp.MethodSessionSetMode); given(set, "modeId") != `"plan"` {
						t.Errorf("at the next start the agent is set to %s", set.m.Frame())
					} else {
						takesAll(set)
					}
				} else {
					a.answer(opened, `{`+planned+`}`)
				}
				a.answer(a.nextOf(t, acp.MethodSessionPrompt), `{"stopReason":"end_turn"}`)
				tc.until(id)
			})
		})
	}
}
