package adaptertest

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

const (
	// defaultPatience is long: the real agents start slowly on a busy machine.
	defaultPatience = 2 * time.Minute
	largeText       = 10 << 20
	defaultChunks   = 10
)

// Subject is an adapter to test and what to know about its agent.
type Subject struct {
	Adapter adapters.Adapter
	Prompts Prompts
	// Crash is what is left when Prompts.Crash ended the process.
	Crash Crash
	// Chunks is how many updates Prompts.Stream causes at least, 10 for 0.
	Chunks int
	// EchoesMeta says that the agent returns a prompt's _meta in the result.
	EchoesMeta bool
	// NoLoad and NoResume say that the agent has no session/load and no
	// session/resume. The contracts then require that it does not claim to and
	// answers them with an error.
	NoLoad, NoResume bool
	// Servers says that the agent starts the MCP servers that a session is loaded with.
	Servers bool
	// Forget removes the agent's own record of all sessions, while no agent runs; nil
	// where that is not on this machine.
	Forget func() error
	// Options are given to the adapter; StateDir and Logger are the suite's.
	Options adapters.Options
	// Cwd is the working directory of all sessions; "" for a new one.
	Cwd string
	// Shows make the agent show what the adapter claims in Info().Features and
	// no contract shows by itself.
	Shows map[adapters.Feature]func(s *Scene)
	// Unshown names claimed features that cannot be shown, with the reason.
	Unshown map[adapters.Feature]string
	// Skip names contracts that are not run, with the reason.
	Skip map[string]string
	// Elsewhere names contracts that another test of the normal tier shows with the
	// same program, and that test. They are run in the long tier.
	Elsewhere map[string]string
	// Patience bounds every single wait, two minutes for 0.
	Patience time.Duration
}

// Crash is how a crashed process shows in an [adapters.ExitError].
type Crash struct {
	Code   int
	Stderr string // part of the tail of stderr
}

// Prompt is a text that makes the agent do something.
type Prompt struct {
	Text string
	Says string // what the answer contains; "" for anything
}

// Prompts are the texts that make an agent do what the contracts look at. A
// contract that needs one that is missing must be in [Subject.Skip].
type Prompts struct {
	Say     Prompt                   // a short answer
	Stream  Prompt                   // an answer in many chunks
	Tool    Prompt                   // use of a tool that needs no permission
	Reread  Prompt                   // two uses of a tool, for which the model has one id; optional
	Ask     Prompt                   // use of a tool that needs a permission; Says holds if it is allowed
	Run     Prompt                   // updates without end, until cancelled
	Echo    func(text string) string // text as the answer, and nothing else
	Garbage Prompt                   // output that is no message, among an answer
	Crash   Prompt                   // the end of the process, without an answer
	Spawn   Prompt                   // another process, which outlives the agent's own; optional
	Behind  Prompt                   // use of a tool in the background, which needs a permission; optional
}

// missing returns the first of the named prompts that is not there.
func (p *Prompts) missing(names []string) string {
	there := map[string]bool{
		"Say": p.Say.Text != "", "Stream": p.Stream.Text != "", "Tool": p.Tool.Text != "",
		"Ask": p.Ask.Text != "", "Run": p.Run.Text != "", "Echo": p.Echo != nil,
		"Garbage": p.Garbage.Text != "", "Crash": p.Crash.Text != "",
	}
	for _, name := range names {
		if !there[name] {
			return name
		}
	}
	return ""
}

// contract is one promise of an adapter.
type contract struct {
	name  string
	needs []string // fields of Prompts
	check func(s *suite, t testing.TB)
}

// contracts are run in this order. The first ones share a connection, load and resume
// end it and go on in others. From crash-fails-pending on each connection serves as many
// as it can, since each costs a start of the agent.
var contracts = []contract{
	{"initialize", nil, (*suite).initialize},
	{"new", nil, (*suite).new},
	{"updates-precede-response", []string{"Stream"}, (*suite).updatesPrecedeResponse},
	{"tool-call-lifecycle", []string{"Tool"}, (*suite).toolCallLifecycle},
	{"reused-call-id", []string{"Tool"}, (*suite).reusedCallID},
	{"permission-allow", []string{"Ask"}, (*suite).permissionAllow},
	{"permission-reject", []string{"Ask"}, (*suite).permissionReject},
	{"permission-cancelled", []string{"Ask"}, (*suite).permissionCancelled},
	{"cancel-ends-the-turn", []string{"Run", "Say"}, (*suite).cancelEndsTheTurn},
	{"cancel-without-a-prompt", []string{"Say"}, (*suite).cancelWithoutAPrompt},
	{"unknown-method", []string{"Say"}, (*suite).unknownMethod},
	{"unknown-session-is-an-error", []string{"Say"}, (*suite).unknownSession},
	{"request-outlives-its-turn", []string{"Say"}, (*suite).requestOutlivesItsTurn},
	{"garbage-line-survived", []string{"Garbage", "Say"}, (*suite).garbageLineSurvived},
	{"10-MiB-message", []string{"Echo", "Say"}, (*suite).largeMessage},
	{"meta-preserved", []string{"Say"}, (*suite).metaPreserved},
	{"tap-hears-both", []string{"Say"}, (*suite).tapHearsBoth},
	{"concurrent-writes", nil, (*suite).concurrentWrites},
	{"two-sessions-interleave", []string{"Run", "Say"}, (*suite).twoSessionsInterleave},
	{"load", []string{"Say"}, (*suite).load},
	{"resume", []string{"Say"}, (*suite).resume},
	{"features", nil, (*suite).features},
	{"open-ctx-bounds-only-open", []string{"Say"}, (*suite).openContext},
	{"crash-fails-pending", []string{"Crash"}, (*suite).crashFailsPending},
	{"calls-of-a-dead-process", []string{"Say"}, (*suite).callsOfADeadProcess},
	{"load-with-other-settings", []string{"Say"}, (*suite).loadWithOtherSettings},
	{"lost-record", []string{"Say"}, (*suite).lostRecord},
	{"close-idempotent", []string{"Run"}, (*suite).closeIdempotent},
	{"close-leaves-no-process", []string{"Say"}, (*suite).closeLeavesNoProcess},
	{"no-goroutine-left", []string{"Say"}, (*suite).noGoroutineLeft},
	// The last one: it judges the frames of all others.
	{"every-frame-valid", []string{"Say"}, (*suite).everyFrameValid},
}

// Run checks that the subject's adapter keeps the contract, one subtest each.
func Run(t *testing.T, subject Subject) {
	t.Helper()
	s := newSuite(t, subject)
	t.Cleanup(func() { s.drop(t) })
	for field, named := range map[string]map[string]string{"Skip": subject.Skip, "Elsewhere": subject.Elsewhere} {
		for name, reason := range named {
			if !slices.ContainsFunc(contracts, func(c contract) bool { return c.name == name }) {
				t.Errorf("%s names %q, which is no contract", field, name)
			}
			if reason == "" {
				t.Errorf("%s gives no reason for %s", field, name)
			}
		}
	}
	for _, c := range contracts {
		t.Run(c.name, func(t *testing.T) {
			if where := subject.Elsewhere[c.name]; where != "" && subject.Skip[c.name] == "" {
				s.ran[c.name] = true
				agentcache.Long(t, where)
			}
			s.run(t, c)
		})
	}
}

// suite is one run over all contracts.
type suite struct {
	Subject
	large int             // bytes of a large text
	ran   map[string]bool // by contract: it is shown, here or elsewhere
	owner testing.TB      // the test of all contracts; shared lasts as long
	state string          // where the agents of all shared connections keep their files
	cwd   string          // of the sessions of all shared connections

	shared *client // what contracts use one after another; nil when there is none
	shares int     // how many connections have been shared
	past   *past   // what load and resume come back to; nil until it was made

	crashed schema.SessionID // in which the process died; "" until it has
	spawned *spawned         // what the last connection had started; nil until close-idempotent
	server  schema.MCPServer // makes marker when it is started
	marker  string           // "" until there is the server

	// goroutines is what was left after a connection was closed; valid when
	// looked is true.
	goroutines error
	looked     bool

	mu         sync.Mutex
	frames     int // from the agent
	violations []string
}

func newSuite(owner testing.TB, subject Subject) *suite {
	owner.Helper()
	if subject.Patience <= 0 {
		subject.Patience = defaultPatience
	}
	if subject.Chunks <= 0 {
		subject.Chunks = defaultChunks
	}
	return &suite{Subject: subject, large: largeText, ran: map[string]bool{}, owner: owner, state: filepath.Join(owner.TempDir(), "state"), cwd: owner.TempDir()}
}

// run checks one contract, or skips it for a reason.
func (s *suite) run(t testing.TB, c contract) {
	t.Helper()
	if reason := s.Skip[c.name]; reason != "" {
		t.Skip(reason)
	}
	if name := s.Prompts.missing(c.needs); name != "" {
		t.Fatalf("the contract needs Prompts.%s, or a reason in Skip", name)
	}
	s.ran[c.name] = true
	defer func() {
		if t.Failed() {
			s.drop(t)
		}
	}()
	c.check(s, t)
}
