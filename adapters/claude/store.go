package claude

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// store remembers which sessions were made here, and what the program calls them
// now. Only those are ever deleted. Its methods are safe for concurrent use.
type store struct{ bridge.Store[record] }

func newStore(dir string) *store { return &store{bridge.Store[record]{Dir: dir}} }

// record is what is remembered of a session.
type record struct {
	Cwd    string   `json:"cwd"`
	Made   bool     `json:"made"`             // here, and not in a terminal
	Native []string `json:"native,omitempty"` // further native ids, newest last
	Fork   string   `json:"fork,omitempty"`   // of a fork by an earlier version: the transcript it is to have a copy of

	// What was chosen last. The program forgets it when it ends.
	bridge.Mode
	Model  string  `json:"model,omitempty"`
	Effort string  `json:"effort,omitempty"`
	Cost   float64 `json:"cost,omitempty"` // so far, in USD
	// What the client has allowed for the session: rules in the form of the program's
	// settings, and folders. The program forgets these, too.
	Granted bridge.Grants `json:"granted,omitempty"`
	// Earlier versions had them here.
	Rules   []string `json:"rules,omitempty"`
	Folders []string `json:"folders,omitempty"`
}

// What begins the keys of grants.
const (
	ruleKey   = "rule "
	folderKey = "folder "
)

// Upgrade takes over what an earlier version has written.
func (r *record) Upgrade() {
	for _, rule := range r.Rules {
		r.Granted.Add(bridge.Grant{Key: ruleKey + rule, Title: bridge.OneLine(rule)})
	}
	for _, d := range r.Folders {
		r.Granted.Add(bridge.Grant{Key: folderKey + d, Title: folderTitle(d)})
	}
	r.Rules, r.Folders = nil, nil
}

func folderTitle(dir string) string { return "access to " + bridge.OneLine(dir) }

// allow notes what a client has allowed for the session, with a call of a tool.
func (r *record) allow(list []suggestion, tool string, kind schema.ToolKind) {
	for _, s := range list {
		if s.Type == "addRules" && s.Behavior == "allow" {
			for _, rule := range s.Rules {
				of := kind
				if rule.ToolName != tool {
					of = ""
				}
				name := ruleName(rule)
				r.Granted.Add(bridge.Given(ruleKey+name, bridge.OneLine(name), of))
			}
		}
		for _, d := range s.Directories {
			r.Granted.Add(bridge.Given(folderKey+d, folderTitle(d), ""))
		}
	}
}

// rules are the rules that a client has allowed, and folders the folders.
func (r *record) rules() []string   { return r.granted(ruleKey) }
func (r *record) folders() []string { return r.granted(folderKey) }

func (r *record) granted(prefix string) (out []string) {
	for _, one := range r.Granted {
		if name, ok := strings.CutPrefix(one.Key, prefix); ok {
			out = append(out, name)
		}
	}
	return out
}

var _ adapters.Granter = Adapter{}

// Grants implements [adapters.Granter].
func (Adapter) Grants(o adapters.Options, session string) []adapters.Grant {
	r, _ := newStore(o.StateDir).Load(session)
	return r.Granted.List()
}

// Forget implements [adapters.Granter]. The program has what was allowed in its memory, and is told of the rest as it starts.
func (Adapter) Forget(o adapters.Options, session string, ids []string) error {
	return newStore(o.StateDir).Change(session, func(r *record) { r.Granted.Forget(ids) })
}

// newest is the native id that continues the session.
func (r record) newest(id string) string {
	if n := len(r.Native); n > 0 {
		return r.Native[n-1]
	}
	return id
}

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	r, _ := newStore(o.StateDir).Load(session)
	file, err := transcriptsOf((&agent{o: o}).environ()).find(r.newest(session), "")
	if err != nil {
		return adapters.Recorded{}
	}
	return bridge.Recorded(file)
}

// made remembers a new session.
func (s *store) made(id string, as record) error {
	return s.Change(id, func(r *record) { *r = as })
}

// change edits a session's record, and saves it when it is another one then.
func (s *store) change(id, cwd string, edit func(r *record)) error {
	return s.Change(id, func(r *record) {
		r.Cwd = bridge.FirstOf(r.Cwd, cwd)
		edit(r)
	})
}

// renamed says that the conversation goes on under another native id.
func (r *record) renamed(id, native string) {
	if r.newest(id) != native {
		r.Native = append(r.Native, native)
	}
}

// aliases returns the sessions that were made here, by the native id that
// continues them, and their earlier native ids with "".
func (s *store) aliases() map[string]string {
	out := map[string]string{}
	for id, r := range s.All() {
		if !r.Made {
			continue
		}
		for _, native := range append([]string{id}, r.Native...) {
			out[native] = ""
		}
		out[r.newest(id)] = id
	}
	return out
}
