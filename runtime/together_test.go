package runtime

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// held is an agent whose record is looked at as long as a test wants.
type held struct {
	*fakeAgent
	looks, goesOn chan struct{}
}

// Recorded implements [adapters.Recorder].
func (a *held) Recorded(adapters.Options, string) adapters.Recorded {
	a.looks <- struct{}{}
	<-a.goesOn
	return adapters.Recorded{}
}

// Of two clients that load a session at one moment none takes the settings of the other away, also where one of them finds the
// session working for the other.
func TestLoad_OfTwoAtOnce(t *testing.T) {
	for name, serves := range map[string]bool{"without a process": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &held{&fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}, make(chan struct{}, 8), make(chan struct{})}
			a.info = adapters.Info{Record: true, Takes: []string{"instructions"}}
			r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})
			one, two := connect(t, r, ""), connect(t, r, "")
			s := one.session()
			if !serves {
				one.ends(a.fakeAgent)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				one.request("session/load", loadOf(s, "/tmp", `,"mcpServers":[`+serverA+`]`))
			}()
			<-a.looks
			resumed := two.request("session/resume", loadOf(s, "/tmp", own(`"instructions":"be brief"`)))
			close(a.goesOn)
			<-sent
			check := func(opened string, wants ...string) {
				t.Helper()
				for _, want := range wants {
					if !strings.Contains(opened, want) {
						t.Errorf("opened without %s: %s", want, opened)
					}
				}
			}
			if serves {
				for _, wants := range [][]string{{serverA}, {serverA, "be brief"}} {
					a.answer(a.nextOf(t, "session/close"), `{}`)
					opened := a.nextOf(t, "session/resume")
					check(string(opened.m.Frame()), wants...)
					a.answer(opened, `{}`)
				}
			}
			for tc, id := range map[*testClient]acp.ID{one: acp.IntID(int64(one.lastID)), two: resumed} {
				if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
					t.Errorf("%s", res.Frame())
				}
			}
			if !serves {
				_, opened := two.begins(t, a.fakeAgent, s)
				check(string(opened.m.Frame()), serverA, "be brief")
				a.answer(opened, `{}`)
				a.nextOf(t, "session/prompt")
			}
		})
	}
}
