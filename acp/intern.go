package acp

import "sandboxagent.dev/sandbox-agent/acp/rawjson"

// methods that travel often; looking one up costs no allocation.
var interned = func() map[string]string {
	m := map[string]string{}
	for _, s := range []string{
		"initialize", "authenticate", "logout",
		"session/new", "session/load", "session/resume", "session/list", "session/close", "session/delete", "session/fork",
		"session/prompt", "session/cancel", "session/set_mode", "session/set_model", "session/set_config_option",
		"session/update", "session/request_permission", "elicitation/create", "elicitation/complete",
		"fs/read_text_file", "fs/write_text_file",
		"terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release",
		"$/cancel_request",
	} {
		m[s] = s
	}
	return m
}()

const methodUpdate = "session/update"

// internMethod returns the method named by a JSON string token.
func internMethod(tok []byte) string {
	name := tok[1 : len(tok)-1]
	if string(name) == methodUpdate {
		return methodUpdate
	}
	if s, ok := interned[string(name)]; ok {
		return s
	}
	return rawjson.Unquote(tok)
}
