// Package adapters is the contract between the gateway and what knows how to
// run one kind of agent. It holds no implementation.
//
// An adapter opens an [acp.Conn] to one agent process. From then on the gateway
// speaks ACP to it; what the agent itself speaks is the adapter's business.
// Closing the Conn ends the process and everything it started.
package adapters

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Kind says where an agent's implementation lives.
type Kind string

// The kinds of adapters.
const (
	Bridge Kind = "bridge" // translates the agent's own protocol
	Native Kind = "native" // the agent speaks ACP itself
	Custom Kind = "custom" // a command the user configured
)

// Info describes an adapter.
type Info struct {
	ID   string // what clients name it by
	Name string // for people
	Kind Kind
	// Program names the agent's program for an [Installer]; "" when the adapter
	// needs none, or knows it itself: see [Locator].
	Program string
	// PerSession says that a Conn serves one session only: every session gets a
	// Conn of its own, beside one that serves none and answers initialize,
	// authenticate and session/list.
	PerSession bool
	// Takes names the fields of session/new's _meta["sandboxagent.dev"] that
	// the adapter maps itself. It reports what it cannot do in the result's
	// _meta, and the gateway reports all others. "credentials" are in Credentials,
	// and come in [Options]; "env", "agentVersion" and "isolation" are the gateway's
	// own. None of these is named here.
	Takes []string
	// PermissionModes names the agent's own mode for a permissionMode, "" for one that
	// it has no mode for, where Takes does not have "permissionMode" and the modes'
	// names do not tell: see [Info.ModeFor].
	PermissionModes map[string]string
	// Credentials says which of a session's own credentials the adapter uses. A
	// session with others is refused: it would run on somebody else's key.
	Credentials CredentialUse
	// Record says that session/load replays the agent's own record of the conversation,
	// all of it before its answer, and begins nothing anew that session/resume would
	// go on with: what a terminal has added is found by it.
	Record bool
	// Features says what of ACP the agent gives; nil when nobody has looked.
	Features Features
	// Login says how it is known that the agent has credentials.
	Login Login

	// For people, where known.
	Description, Website, License, Icon string
}

// Login is what an agent's credentials are found by, without running it.
type Login struct {
	Env   []string // variables, each of which is enough
	Files []string // files, each of which is enough; ~/ is the home directory
	// Method is the id of the authentication method that every new process must
	// be told of when an API key is there, by Env or in Options; "" where the
	// key alone is enough.
	Method string
}

// Program is an agent's program on this machine.
type Program struct {
	Dir     string   // has its files; "" when they are somebody else's
	Path    string   // absolute
	Args    []string // come before all other arguments
	Env     []string // NAME=value, added to the agent's environment
	ACPArgs []string // start it as an ACP agent; nil when it is not known to be one
	Version string   // "" when nobody asked it
	Source  string   // where it came from, such as npm or path
	// Verified says how it was verified, such as signature; "" when nobody knows.
	Verified string
}

// InstallProgress is one report of an installation's progress.
type InstallProgress struct {
	Agent  string `json:"agent"`
	Source string `json:"source,omitempty"`
	Step   string `json:"step"`
	Detail string `json:"detail,omitempty"` // a URL or a package, for people
	Done   int64  `json:"done"`             // bytes
	Total  int64  `json:"total"`            // bytes; 0 when unknown
}

// Installer finds and installs agents' programs. Its methods are safe for
// concurrent use.
type Installer interface {
	// Find returns the program that would be used now; version "" is any.
	// It runs nothing and asks no network.
	Find(agent, version string) (Program, bool)
	// Install makes sure that the agent is installed. progress may be nil, is
	// called by one goroutine at a time and must not block.
	Install(ctx context.Context, agent, version string, progress func(InstallProgress)) (Program, error)
	// Keep keeps a program's files until release is called, whichever versions are installed
	// meanwhile: what runs may need more of them. ctx bounds the call only.
	Keep(ctx context.Context, p Program) (release func())
}

// Credentials are a session's own, instead of those in the environment.
type Credentials struct {
	APIKey     string `json:"apiKey,omitempty"`
	OAuthToken string `json:"oauthToken,omitempty"`
	BaseURL    string `json:"baseUrl,omitempty"` // of the model provider
}

// Fields names the fields that have a value.
func (c Credentials) Fields() []string {
	var out []string
	for _, f := range []struct{ name, value string }{{"apiKey", c.APIKey}, {"oauthToken", c.OAuthToken}, {"baseUrl", c.BaseURL}} {
		if f.value != "" {
			out = append(out, f.name)
		}
	}
	return out
}

// CredentialUse says which fields of [Credentials] an adapter uses. The zero value is
// none.
type CredentialUse struct {
	APIKey, OAuthToken, BaseURL bool
	// KeyNamesProvider says that baseUrl needs a key beside it: the key says whose
	// address it is.
	KeyNamesProvider bool
}

// Check says why an agent cannot run with the credentials and what to do, nil when it
// can.
func (u CredentialUse) Check(agent string, c Credentials) *acp.Error {
	var can []string
	for _, f := range []struct {
		name string
		used bool
	}{{"apiKey", u.APIKey}, {"oauthToken", u.OAuthToken}, {"baseUrl", u.BaseURL}} {
		if f.used {
			can = append(can, f.name)
		}
	}
	for _, name := range c.Fields() {
		switch {
		case slices.Contains(can, name):
		case len(can) == 0:
			return acp.Errorf(acp.CodeInvalidParams, "agent %s takes no credentials.%s from the gateway: put what it reads into env", agent, name)
		default:
			return acp.Errorf(acp.CodeInvalidParams, "agent %s takes no credentials.%s: it takes %s", agent, name, strings.Join(can, ", "))
		}
	}
	if u.KeyNamesProvider && c.BaseURL != "" && c.APIKey == "" && c.OAuthToken == "" {
		return acp.Errorf(acp.CodeInvalidParams, "agent %s has many providers, and credentials.baseUrl alone does not say whose address it is: give the provider's apiKey with it", agent)
	}
	return nil
}

// Options are what one Open needs.
type Options struct {
	// StateDir is a private directory for the adapter's own use. It may not exist
	// yet. It survives restarts, unless the gateway keeps nothing on disk.
	StateDir string
	Logger   *slog.Logger
	// Program is what the Installer found for Info.Program.
	Program Program
	// Dir is where a process that serves one session only should run; "" when
	// sessions share it.
	Dir string
	// Env is added to the environment of what is started, NAME=value.
	Env         []string
	Credentials Credentials
	// Tap is told of what passes between the adapter and the agent's program; may be nil.
	Tap Tap
}

// Tap is told of each line that goes to an agent's program, and of each that comes from it,
// in the agent's own language and in the order of the wire: of an agent that is asked over
// HTTP, a line is a request, an answer or an event. Its methods are safe for concurrent use,
// do not wait, and do not keep the line.
type Tap interface {
	ToAgent(line []byte)
	FromAgent(line []byte)
}

// Adapter opens connections to one kind of agent. Its methods are safe for
// concurrent use.
type Adapter interface {
	Info() Info
	// Open starts the agent. ctx bounds only the start. The Conn's Read fails
	// with an *ExitError when the process ended.
	Open(ctx context.Context, o Options) (acp.Conn, error)
}

// Locator is an adapter that knows its program itself.
type Locator interface {
	// Locate finds the program; the error says what to do.
	Locate() (Program, error)
}

// Recorder is an adapter that knows of its agent's own record of a session without
// starting anything.
type Recorder interface {
	// Recorded looks at the record of a session. The options need no Program.
	Recorded(o Options, session string) Recorded
}

// Recorded is what can be seen of an agent's own record of a session from outside.
type Recorded struct {
	Written  time.Time // last; the zero time if that is not known
	Prompted time.Time // last, as far as its end tells; else the zero time
	// Shared says that other sessions are in it, too: it may have been written for them.
	Shared bool
}

// Process is implemented by a Conn with an operating system process behind it.
type Process interface {
	PID() int
	StartedAt() time.Time
	RSS() int64 // resident memory in bytes, 0 when unknown
	Stderr() Stderr
}

// Commander is a Process that knows which programs its agent has left running.
type Commander interface {
	// Now returns the moment in the machine's time, which goes on while it is
	// suspended; 0 where that is not known.
	Now() int64
	// Commands returns the moments at which the programs were started that its agent
	// has given a process group of their own, as agents do with commands, and that
	// still run, wherever they are now.
	Commands() []int64
}

// Untaker is a Conn that knows what it could not pass on to the agent's process.
type Untaker interface {
	// Untaken reports whether the last prompt of a session has certainly not reached the
	// process, because that had ended. The Conn then ends as well.
	Untaken(session string) bool
}

// Roomy is a Conn that knows whether a Write would wait for the agent.
type Roomy interface {
	// Room reports whether a message of n bytes is certainly written without waiting. Calls do
	// not overlap with those of Write.
	Room(n int) bool
}

// NotInstalledError says that an agent's program is missing, or too old, and what
// to do.
type NotInstalledError struct {
	Agent  string
	Found  string // the version that is too old, "" when there is none
	Remedy string
}

func (e *NotInstalledError) Error() string {
	if e.Found != "" {
		return fmt.Sprintf("agent %s is installed in version %s, which is too old: %s", e.Agent, e.Found, e.Remedy)
	}
	return fmt.Sprintf("agent %s is not installed: %s", e.Agent, e.Remedy)
}

// ExitError says how an agent process ended.
type ExitError struct {
	Code   int    // -1 when a signal ended it
	Signal string // "" when it exited
	Stderr Stderr
}

// ErrorType is the type of an error's data, by its name in the table of problems.
func ErrorType(name string) string { return "urn:sandbox-agent:error:" + name }

// Stderr is what a process wrote to stderr, shortened in the middle.
type Stderr struct {
	Head       string
	Tail       string
	Truncated  bool
	TotalLines int
}

// LastWords are the lines at the end that may say why the process ended. Warnings do
// not: programs write them when they start.
func (s Stderr) LastWords() string {
	var words []string
	for line := range strings.Lines(s.Tail) {
		if line = strings.TrimSpace(line); line != "" && !warning.MatchString(line) {
			words = append(words, line)
		}
	}
	return strings.Join(words[max(0, len(words)-maxWords):], "\n")
}

// maxWords bounds the lines of stderr in an error's message; its data has more.
const maxWords = 10

// Some programs write the time before each line, and Codex calls it an error that it has to use a bubblewrap of its own.
var warning = pattern.New(`(?i)^(\d{4}-\d\d-\d\dT\S+)?\W*(\(node:\d+\)|\(use .?node --trace|warn(ing)?\b|[\w.]*warning:|(error \w+: )?codex could not find bubblewrap\b)`)

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exited with code %d", e.Code)
	if e.Signal != "" {
		how = "was ended by " + e.Signal
	}
	if last := e.Stderr.LastWords(); last != "" {
		return fmt.Sprintf("the agent process %s; its stderr ends with: %s", how, last)
	}
	return "the agent process " + how
}

// Data is the error's form in the data member of a JSON-RPC error.
func (e *ExitError) Data() json.RawMessage {
	b, _ := json.Marshal(map[string]any{
		"type": ErrorType("agent_process_exited"), "exitCode": e.Code, "signal": e.Signal,
		"stderr": map[string]any{"head": e.Stderr.Head, "tail": e.Stderr.Tail, "truncated": e.Stderr.Truncated, "totalLines": e.Stderr.TotalLines},
	})
	return b
}
