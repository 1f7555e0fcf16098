package version

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// The versions of the protocol.
const (
	One = 1
	Two = 2
)

// All are the versions that can be offered, in order.
func All() []int { return []int{One, Two} }

// Parse reads a list of versions with commas between them.
func Parse(list string) ([]int, error) {
	var out []int
	for word := range strings.SplitSeq(list, ",") {
		v, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || !slices.Contains(All(), v) {
			return nil, fmt.Errorf("%q: use 1, 2, or 1,2", list)
		}
		out = append(out, v)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// CodeUnsupported is the error code for a protocol version that nobody here speaks.
const CodeUnsupported int64 = -32022

// Choice is what an initialize request came to.
type Choice struct {
	Version int
	// Params are those of the request as version 1 has them.
	Params json.RawMessage
}

// Choose returns the version of the connection that the request opens: the highest
// offered one at or below the one asked for. Offered versions are in order.
func Choose(initialize *acp.Message, offered []int) (Choice, *acp.Error) {
	params := initialize.Params()
	raw, _ := rawjson.Member(params, "protocolVersion")
	asked, err := strconv.ParseUint(string(raw), 10, 16)
	if err != nil {
		return Choice{}, acp.Errorf(acp.CodeInvalidParams, "initialize needs params.protocolVersion, a number from 0 to 65535: send %d", offered[len(offered)-1])
	}
	chosen := 0
	for _, v := range offered {
		if v <= int(asked) {
			chosen = v
		}
	}
	if len(offered) == 1 && offered[0] == One {
		chosen = One // as before there was another
	}
	switch {
	case chosen == 0:
		return Choice{}, unsupported(asked, offered)
	case chosen == One && asked <= One:
		return Choice{Version: One, Params: params}, nil
	}
	if chosen == Two && !validID(initialize.ID()) {
		return Choice{}, errID
	}
	strict := chosen == int(asked)
	lowered, bad := lowerInitialize(params, strict)
	if bad != nil {
		return Choice{}, bad
	}
	return Choice{Version: chosen, Params: lowered}, nil
}

// Again returns why an initialize request on a connection of version 2 cannot be carried
// out, nil when it can. begun says that another request came in between.
func Again(initialize *acp.Message, begun bool) *acp.Error {
	if begun {
		return acp.Errorf(acp.CodeInvalidRequest, "the connection is initialized already: initialize can be repeated only before any other request")
	}
	choice, err := Choose(initialize, []int{One, Two})
	if err == nil && choice.Version != Two {
		return acp.Errorf(acp.CodeInvalidRequest, "a repeated initialize must ask for protocol version 2 or later, which the connection has")
	}
	return err
}

func unsupported(asked uint64, offered []int) *acp.Error {
	list := make([]string, len(offered))
	for i, v := range offered {
		list[i] = strconv.Itoa(v)
	}
	e := acp.Errorf(CodeUnsupported, "protocol version %d is not supported: ask for %s", asked, strings.Join(list, " or "))
	return e.WithData(map[string]any{"requested": asked, "supported": slices.Clone(offered)})
}

// errID refuses a request whose id version 2 does not know.
var errID = acp.Errorf(acp.CodeInvalidRequest, "the id of a request must be a string or an integer")

// Refusal is the answer to a request that was refused here. One about the id of the
// request has none itself.
func Refusal(m *acp.Message, e *acp.Error) acp.Message {
	if e == errID {
		return acp.NewError(acp.NullID, e)
	}
	return acp.NewError(m.ID(), e)
}

func validID(id acp.ID) bool {
	if id.IsNull() {
		return false
	}
	_, isInt := id.Int()
	return isInt || id[0] == '"'
}

// lowerInitialize returns params of version 2 as version 1 has them. Params that were
// written for a later version are taken as far as they are understood.
func lowerInitialize(params json.RawMessage, strict bool) (json.RawMessage, *acp.Error) {
	info, ok := rawjson.Member(params, "info")
	ok = ok && isString(info, "name") && isString(info, "version")
	caps, _ := rawjson.Member(params, "capabilities")
	// A client of version 1 that announces the next version all the same has its own form.
	if old, given := rawjson.Member(params, "clientCapabilities"); !strict && !ok && given {
		out := rawjson.Object{}.Raw("protocolVersion", []byte("1")).Raw("clientCapabilities", old)
		if info, given := rawjson.Member(params, "clientInfo"); given {
			out = out.Raw("clientInfo", info)
		}
		return withMeta(out, params).End(), nil
	}
	if strict && !ok {
		return nil, acp.Errorf(acp.CodeInvalidParams, "initialize of version 2 needs params.info with name and version")
	}
	out := rawjson.Object{}.Raw("protocolVersion", []byte("1")).Raw("clientCapabilities", lowerClientCapabilities(caps))
	if ok {
		out = out.Raw("clientInfo", info)
	}
	return withMeta(out, params).End(), nil
}

func withMeta(o rawjson.Object, from json.RawMessage) rawjson.Object {
	if meta, ok := rawjson.Member(from, "_meta"); ok && meta[0] == '{' {
		return o.Raw("_meta", meta)
	}
	return o
}

func isString(object json.RawMessage, name string) bool {
	v, ok := rawjson.Member(object, name)
	return ok && v[0] == '"'
}

// lowerClientCapabilities returns what a client of version 2 can, in version 1: what
// every such client takes, and what it says.
func lowerClientCapabilities(caps json.RawMessage) json.RawMessage {
	marker := func(path ...string) bool {
		v, ok := rawjson.Member(caps, path...)
		return ok && v[0] == '{'
	}
	session := rawjson.Object{}.Raw("configOptions", []byte(`{"boolean":{}}`)).Raw("notices", []byte("{}")).Raw("compaction", []byte("{}"))
	out := rawjson.Object{}.
		Raw("fs", []byte(`{"readTextFile":false,"writeTextFile":false}`)).Raw("terminal", []byte("false")).
		Raw("session", session.End()).Raw("plan", []byte("{}"))
	auth := rawjson.Object{}.Raw("terminal", strconv.AppendBool(nil, marker("auth", "terminal")))
	out = out.Raw("auth", auth.End())
	if v, ok := rawjson.Member(caps, "elicitation"); ok && v[0] == '{' {
		out = out.Raw("elicitation", v)
	}
	return withMeta(out, caps).End()
}

// Initialized returns the result of initialize as version 2 has it.
func Initialized(result json.RawMessage) json.RawMessage {
	caps, _ := rawjson.Member(result, "agentCapabilities")
	said, second := rawjson.Member(result, append(original, "capabilities")...)
	if second {
		result = rawjson.DeleteMember(result, original...)
	}
	marker := func(o rawjson.Object, name string, path ...string) rawjson.Object {
		switch v, ok := rawjson.Member(caps, path...); {
		case !ok || string(v) == "null" || string(v) == "false":
			return o
		case v[0] == '{':
			return o.Raw(name, v)
		}
		return o.Raw(name, []byte("{}"))
	}
	prompt := marker(nil, "image", "promptCapabilities", "image")
	prompt = marker(prompt, "audio", "promptCapabilities", "audio")
	prompt = marker(prompt, "embeddedContext", "promptCapabilities", "embeddedContext")
	mcp := rawjson.Object{}.Raw("stdio", []byte("{}")) // every agent of version 1 starts servers
	mcp = marker(mcp, "http", "mcpCapabilities", "http")
	mcp = marker(mcp, "acp", "mcpCapabilities", "acp")
	session := rawjson.Object{}.Raw("prompt", prompt.End()).Raw("mcp", mcp.End())
	for _, name := range []string{"delete", "additionalDirectories", "systemPrompt", "fork", "archive", "status", "title"} {
		session = marker(session, name, "sessionCapabilities", name)
	}
	out := rawjson.Object{}.Raw("session", session.End())
	if v, ok := rawjson.Member(caps, "auth", "status"); ok && v[0] == '{' {
		out = out.Raw("auth", rawjson.Object{}.Raw("status", v).End())
	}
	info, ok := rawjson.Member(result, "agentInfo")
	if !ok || !isString(info, "name") || !isString(info, "version") {
		info, _ = schema.Encode(map[string]string{"name": "unknown", "version": "unknown"})
	}
	all := json.RawMessage(withMeta(out, caps).End())
	if second { // what the agent can is as it says, and what the gateway can is added
		members(said, func(name, value json.RawMessage) {
			if key := rawjson.Unquote(name); key != "_meta" {
				all = rawjson.SetMember(all, value, key)
			}
		})
		if _, ok := rawjson.Member(all, "session"); !ok {
			all = rawjson.SetMember(all, session.End(), "session")
		}
	}
	o := rawjson.Object{}.Raw("protocolVersion", []byte("2")).Raw("info", info).Raw("capabilities", all)
	methods, _ := rawjson.Member(result, "authMethods")
	o = o.Raw("authMethods", list(methods, raiseAuthMethod))
	return withMeta(o, result).End()
}

func raiseAuthMethod(m json.RawMessage) json.RawMessage {
	m = rename(m, "id", "methodId")
	switch rawjson.MemberString(m, "type") {
	case "":
		m = rawjson.SetMember(m, []byte(`"agent"`), "type")
	case "terminal":
		if env, ok := rawjson.Member(m, "env"); ok && env[0] == '{' {
			var vars []json.RawMessage
			members(env, func(name, value json.RawMessage) {
				vars = append(vars, rawjson.Object{}.Raw("name", name).Raw("value", value).End())
			})
			m = rawjson.SetMember(m, array(vars), "env")
		}
	}
	return m
}
