package agents

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"maps"
	"os"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// Needs are what an agent process is started for. Those who need the same share
// one, unless they need it alone.
type Needs struct {
	Capabilities json.RawMessage // what the agent is told of client capabilities
	Env          []string        // NAME=value, sorted by name
	Credentials  adapters.Credentials
	Version      string // of the agent's program; "" for whatever is there
	Alone        bool   // a process that nobody shares
	Raw          bool   // what passes between it and the gateway is recorded; it is alone then

	// What follows does not distinguish processes.

	Dir        string                         // of a process alone: the session's
	ClientInfo json.RawMessage                // of who asks first
	Secrets    []string                       // of its MCP servers; they are kept out of what is recorded
	Backoff    *Backoff                       // of a process alone; nil for a first start
	Progress   func(adapters.InstallProgress) // is told of an installation; may be nil, must not block
}

// key is the same for needs that may share a process.
func (n *Needs) key() string {
	if n.Alone {
		return rand.Text()
	}
	b, _ := json.Marshal([]any{string(n.Capabilities), n.Env, n.Credentials, n.Version})
	return string(b)
}

// Read adds the fields of _meta["sandboxagent.dev"] that concern the process. The error names a field that cannot
// be what it is, also of those that do not.
func (n *Needs) Read(meta json.RawMessage) *acp.Error {
	own, ok := rawjson.Member(meta, acp.MetaKey)
	if !ok {
		return nil
	}
	bad := func(field, need string) *acp.Error {
		return acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].%s must be %s`, acp.MetaKey, field, need)
	}
	if raw, ok := rawjson.Member(own, "env"); ok {
		var env map[string]string
		if json.Unmarshal(raw, &env) != nil {
			return bad("env", "an object whose values are strings")
		}
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if !plainVariable(name, env[name]) {
				return bad("env", "names without = and values without zero bytes; "+string(rawjson.AppendQuoted(nil, name))+" is not")
			}
			n.Env = append(n.Env, name+"="+env[name])
		}
	}
	if raw, ok := rawjson.Member(own, "credentials"); ok {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields() // a key under another name would leave the session to the gateway's
		if d.Decode(&n.Credentials) != nil {
			return bad("credentials", "an object with apiKey, oauthToken or baseUrl, which are strings, and nothing else")
		}
	}
	n.Version = rawjson.MemberString(own, "agentVersion")
	if raw, ok := rawjson.Member(own, "isolation"); ok {
		switch rawjson.MemberString(own, "isolation") {
		case "session":
			n.Alone = true
		case "agent":
		default:
			return bad("isolation", `"session" for a process of its own, or "agent" for one that sessions share; it is `+string(raw))
		}
	}
	if raw, ok := rawjson.Member(own, "includeRaw"); ok && string(raw) != "null" {
		switch string(raw) {
		case "true":
			n.Raw, n.Alone = true, true // of nobody else's session
		case "false":
		default:
			return bad("includeRaw", "true, which records what the agent and the gateway say to each other, or false; it is "+string(raw))
		}
	}
	// Last: what was kept of a session before this was looked at is still read.
	return acp.NeedOwnTexts(meta, texts...)
}

// texts are the fields that are taken for left out when they are no texts.
var texts = []string{"agent", "requestedSessionId", "title", "model", "variant", "mode", "permissionMode", "agentVersion"}

// Cleaner returns what takes out of texts of a session, or of its agent's traffic, what looks like a key, the session's
// own credentials, the values of variables that are called keys, and what its MCP servers have of the kind.
func (n *Needs) Cleaner() func(text string) string {
	values := secret.Values(slices.Concat(os.Environ(), n.Env))
	return secret.Cleaner(secret.Forms(), slices.Concat(values, n.Secrets, []string{n.Credentials.APIKey, n.Credentials.OAuthToken})...)
}

// Same reports whether the two may share a process.
func (n *Needs) Same(o *Needs) bool { return !n.Alone && !o.Alone && n.key() == o.key() }

func plainVariable(name, value string) bool {
	for _, c := range []byte(name) {
		if c == '=' || c == 0 {
			return false
		}
	}
	for _, c := range []byte(value) {
		if c == 0 {
			return false
		}
	}
	return name != ""
}
