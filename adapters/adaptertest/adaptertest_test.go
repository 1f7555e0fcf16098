package adaptertest

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func subject(f *fake) Subject {
	return Subject{
		Adapter: f,
		Prompts: Prompts{
			Say: Prompt{Text: "say", Says: "hello there"}, Stream: Prompt{Text: "stream", Says: "19 "},
			Tool: Prompt{Text: "tool"}, Ask: Prompt{Text: "ask", Says: "allowed"}, Run: Prompt{Text: "run"},
			Echo:    func(text string) string { return "echo " + text },
			Garbage: Prompt{Text: "garbage", Says: "still here"}, Crash: Prompt{Text: "crash"},
			Spawn: Prompt{Text: "spawn", Says: "spawned"}, Behind: Prompt{Text: "behind"},
		},
		Servers: true, Forget: f.forget,
		Crash: Crash{Code: 3, Stderr: "it is over"}, Chunks: 20, EchoesMeta: true, Patience: time.Minute,
		Shows: map[adapters.Feature]func(*Scene){adapters.Plan: func(s *Scene) {
			act := s.Say(s.NewSession(nil).SessionID, "plan")
			if len(act.Updates) != 1 || act.Updates[0].Plan == nil {
				s.Fail("the agent sent %s, want a plan", act.Raw)
			}
		}},
	}
}

// try runs every contract against an adapter and returns what failed. Time is the
// bubble's, so waiting in vain takes none.
func try(t *testing.T, change func(f *fake), s Subject) map[string][]string {
	t.Helper()
	failed := map[string][]string{}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		change(f)
		defer f.reap()
		defer close(f.release)
		s.Adapter, s.Forget = f, f.forget
		all := newSuite(t, s)
		all.large = 64 << 10
		for _, c := range contracts {
			if r := observe(t, c.name, func(t testing.TB) { all.run(t, c) }); r.Failed() {
				failed[c.name] = r.failures
			}
		}
		if r := observe(t, "the end", func(t testing.TB) { all.drop(t) }); r.Failed() {
			failed["the end"] = r.failures
		}
	})
	return failed
}

func needSleep(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("sleep"); err != nil || !proc.known() {
		t.Skip("processes cannot be made and listed on this system")
	}
}

func TestRun_CorrectAdapter(t *testing.T) {
	needSleep(t)
	Run(t, subject(newFake()))
}

func TestRun_BrokenAdapters(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	needSleep(t)
	for _, b := range broken {
		t.Run(b.contract+"/"+b.how, func(t *testing.T) {
			failed := try(t, b.do, subject(nil))
			if diff := cmp.Diff([]string{b.contract}, slices.Sorted(maps.Keys(failed))); diff != "" {
				t.Errorf("other contracts failed (-want +got):\n%s\n%q", diff, failed)
			}
			for _, text := range failed[b.contract] {
				t.Log(strings.SplitN(text, "\n", 2)[0])
			}
		})
	}
}

func TestRun_EveryContractIsBrokenOnce(t *testing.T) {
	for _, c := range contracts {
		seen := false
		for _, b := range broken {
			seen = seen || b.contract == c.name
		}
		if !seen {
			t.Errorf("no adapter breaks %s", c.name)
		}
	}
}

func TestRun_AgentThatCannotLoad(t *testing.T) {
	needSleep(t)
	s := subject(nil)
	s.NoLoad, s.NoResume = true, true
	without := func(f *fake) {
		claims(f, "")
		delete(f.methods, acp.MethodSessionLoad)
		delete(f.methods, acp.MethodSessionResume)
	}
	if failed := try(t, without, s); len(failed) > 0 {
		t.Errorf("failed %q, want none", failed)
	}
	failed := try(t, func(*fake) {}, s)
	if diff := cmp.Diff([]string{"load", "resume"}, slices.Sorted(maps.Keys(failed))); diff != "" {
		t.Errorf("an agent that claims to load after all (-want +got):\n%s", diff)
	}
}

func TestRun_MissingPromptNeedsAReason(t *testing.T) {
	s := subject(newFake())
	s.Prompts.Tool = Prompt{}
	at := slices.IndexFunc(contracts, func(c contract) bool { return c.name == "tool-call-lifecycle" })
	run := func() *recorder {
		return observe(t, "tool-call-lifecycle", func(t testing.TB) { newSuite(t, s).run(t, contracts[at]) })
	}
	if got := run(); len(got.failures) != 1 || !strings.Contains(got.failures[0], "Prompts.Tool") {
		t.Errorf("without a prompt: failures %q, want one about Prompts.Tool", got.failures)
	}
	s.Skip = map[string]string{"tool-call-lifecycle": "it has no tools"}
	if got := run(); got.Failed() || got.skipped != "it has no tools" {
		t.Errorf("with a reason: failures %q, skipped %q", got.failures, got.skipped)
	}
}

// What fails says what was seen.
func TestFailures_QuoteTheFrames(t *testing.T) {
	failed := try(t, func(f *fake) { f.cancel = func(*fakeConn, *fakeTurn) {} }, subject(nil))
	got := strings.Join(failed["cancel-ends-the-turn"], "\n")
	for _, want := range []string{"to session/prompt did not come in time", `<- {"jsonrpc":"2.0","method":"session/update"`, `-> {"jsonrpc":"2.0","method":"session/cancel"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the failure lacks %q:\n%s", want, got)
		}
	}
}
