package acp

import "sandboxagent.dev/sandbox-agent/acp/rawjson"

// internMethod returns the method named by a JSON string token; one of the
// protocol costs no allocation.
func internMethod(tok []byte) string {
	name := tok[1 : len(tok)-1]
	if string(name) == MethodSessionUpdate { // most frames are one
		return MethodSessionUpdate
	}
	if m, ok := methods[string(name)]; ok {
		return m.Name
	}
	return rawjson.Unquote(tok)
}
