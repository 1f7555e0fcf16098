package runtime

import (
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// want is what an agent process is started for. Those who want the same share
// one, unless they want it alone.
type want struct {
	caps        json.RawMessage // what the agent is told of client capabilities
	env         []string        // NAME=value, sorted by name
	credentials adapters.Credentials
	version     string // of the agent's program; "" for whatever is there
	alone       bool   // a process that nobody shares

	// What follows does not distinguish processes.

	dir     string                         // of a process alone: the session's
	info    json.RawMessage                // clientInfo of who asks first
	backoff *backoff                       // of a process alone; nil for a first start
	tell    func(adapters.InstallProgress) // hears of an installation; may be nil, must not block
}

// key is the same for wants that may share a process.
func (w *want) key() string {
	if w.alone {
		return rand.Text()
	}
	b, _ := json.Marshal([]any{string(w.caps), w.env, w.credentials, w.version})
	return string(b)
}

// wants returns what the connection's own process is started for.
func (c *Client) wants() want {
	return want{caps: c.r.offered(c.caps.raw), info: c.info, tell: c.installing}
}

// wantsFor adds what a session asks of its process in its _meta.
func (c *Client) wantsFor(a *agent, cwd string, meta json.RawMessage) (want, *acp.Error) {
	w := c.wants()
	if err := w.read(meta); err != nil {
		return w, err
	}
	w.alone = w.alone || a.adapter.Info().PerSession
	w.dir = cwd
	return w, nil
}

// read takes the fields of _meta["sandboxagent.dev"] that concern the process.
func (w *want) read(meta json.RawMessage) *acp.Error {
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
			w.env = append(w.env, name+"="+env[name])
		}
	}
	if raw, ok := rawjson.Member(own, "credentials"); ok {
		if json.Unmarshal(raw, &w.credentials) != nil {
			return bad("credentials", "an object with apiKey, oauthToken or baseUrl, which are strings")
		}
	}
	w.version = rawjson.MemberString(own, "agentVersion")
	if raw, ok := rawjson.Member(own, "isolation"); ok {
		switch rawjson.MemberString(own, "isolation") {
		case "session":
			w.alone = true
		case "agent":
		default:
			return bad("isolation", `"session" for a process of its own, or "agent" for one that sessions share; it is `+string(raw))
		}
	}
	return nil
}

// wants adds to w what the session was created with.
func (rec *record) wants(w want) want {
	meta, _ := rawjson.Member(rec.Setup, "_meta")
	_ = w.read(meta) // it was valid when the session was created
	w.credentials, w.dir = rec.credentials, rec.Cwd
	return w
}

// same reports whether the two may share a process.
func (w *want) same(o want) bool { return !w.alone && !o.alone && w.key() == o.key() }

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

// takesCredentials reports whether the method starts a process with them.
func takesCredentials(method string) bool {
	return method == "session/new" || method == "session/load" || method == "session/resume"
}

// shown returns the message as the agent may see it.
func shown(m *acp.Message) acp.Message {
	if _, secret := rawjson.Member(m.Meta(), acp.MetaKey, "credentials"); !secret {
		return *m
	}
	return acp.NewRequest(m.ID(), m.Method(), withoutSecrets(m.Params()))
}

// withoutSecrets returns params as the agent may see them: it was started with
// the credentials, and agents log their input.
func withoutSecrets(params json.RawMessage) json.RawMessage {
	return rawjson.DeleteMember(params, "_meta", acp.MetaKey, "credentials")
}
