package adaptertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// requestOutlivesItsTurn: what the agent asks for something that it does in the background
// stays open when the turn that has begun that ends, and its answer still counts.
func (s *suite) requestOutlivesItsTurn(t testing.TB) {
	if s.Prompts.Behind.Text == "" {
		return // it does nothing in the background
	}
	c, id := s.ready(t)
	p := c.begin(id, s.Prompts.Behind.Text)
	a := s.asked(p)
	if p.end(); p.stop != schema.StopReasonEndTurn {
		c.fatalf("the turn ended with %s, want %s", p.stop, schema.StopReasonEndTurn)
	}
	for _, m := range c.between(p.from, c.barrier()) {
		if m.Method() == acp.MethodCancelRequest {
			c.fatalf("the request was withdrawn with its turn")
		}
	}
	a.choose("allow")
	call := string(a.params.ToolCall.ToolCallID)
	c.await(p.from, "the end of call "+call, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "toolCallId") == call && rawjson.MemberString(m.Update(), "status") == string(schema.ToolCallStatusCompleted)
	})
	c.prompt(id, s.Prompts.Say)
}

// reload opens a session again, by load if there is that, and returns the result.
func (s *suite) reload(c *client, id schema.SessionID, servers ...schema.MCPServer) (result json.RawMessage, shown []schema.SessionUpdate, failure *acp.Error) {
	c.t.Helper()
	method := acp.MethodSessionLoad
	if s.NoLoad {
		method = acp.MethodSessionResume
	}
	if servers == nil {
		servers = []schema.MCPServer{}
	}
	asked, from := c.request(method, c.encode(&schema.LoadSessionRequest{SessionID: id, Cwd: c.cwd, MCPServers: servers}))
	at, m := c.response(asked, method, from)
	return m.Result(), c.updates(id, from, at), m.Err()
}

// callsOfADeadProcess: what a process has left open when it died is closed when another
// one loads the session.
func (s *suite) callsOfADeadProcess(t testing.TB) {
	if s.crashed == "" || s.NoLoad || s.Skip["load"] != "" {
		return // nobody died, or what was left is not shown
	}
	c := s.connected(t)
	_, shown, failure := s.reload(c, s.crashed, s.marking(t)...)
	if failure != nil {
		c.fatalf("the session of a process that died is not loaded: %v", failure)
	}
	open := map[schema.ToolCallID]bool{}
	note := func(id schema.ToolCallID, status schema.ToolCallStatus) {
		open[id] = status != schema.ToolCallStatusCompleted && status != schema.ToolCallStatusFailed
	}
	for _, u := range shown {
		switch {
		case u.ToolCall != nil:
			note(u.ToolCall.ToolCallID, u.ToolCall.Status)
		case u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != "":
			note(u.ToolCallUpdate.ToolCallID, u.ToolCallUpdate.Status)
		}
	}
	for id, is := range open {
		if is {
			c.fatalf("call %s of a process that died is left open", id)
		}
	}
	c.first = s.crashed
}

// marking is an MCP server that makes a file when it is started, and ends.
func (s *suite) marking(t testing.TB) []schema.MCPServer {
	t.Helper()
	if !s.Servers {
		return nil
	}
	if s.marker == "" {
		dir := s.owner.TempDir()
		script := filepath.Join(dir, "server")
		s.marker = filepath.Join(dir, "started")
		if err := os.WriteFile(script, []byte("#!/bin/sh\n: > '"+s.marker+"'\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		s.server = schema.MCPServer{Stdio: &schema.MCPServerStdio{Name: "marking", Command: script, Args: []string{}, Env: []schema.EnvVariable{}}}
	}
	return []schema.MCPServer{s.server}
}

// loadWithOtherSettings: a load brings MCP servers that the session did not have.
func (s *suite) loadWithOtherSettings(t testing.TB) {
	if !s.Servers || !s.loads() {
		return // it starts none, or nothing is opened again
	}
	id := s.crashed
	if id == "" {
		var c *client
		c, id = s.ready(t)
		c.prompt(id, s.Prompts.Say)
		s.drop(t)
	}
	c := s.connected(t)
	if c.first != id { // calls-of-a-dead-process has not loaded it
		if _, _, failure := s.reload(c, id, s.marking(t)...); failure != nil {
			c.fatalf("the session is not loaded: %v", failure)
		}
		c.first = id
	}
	c.prompt(id, s.Prompts.Say) // some start theirs with the first prompt
	limit, look := time.NewTimer(s.Patience), time.NewTicker(10*time.Millisecond)
	defer limit.Stop()
	defer look.Stop()
	for {
		if _, err := os.Stat(s.marker); err == nil {
			return
		}
		select {
		case <-look.C: // nobody tells
		case <-limit.C:
			c.fatalf("the MCP server of the load was not started")
		}
	}
}

func (s *suite) loads() bool { return !s.NoLoad || !s.NoResume }

// lostRecord: an agent whose own record of a session is gone does not act as if it were
// there. It refuses to open the session or to go on with it, or says that it begins anew.
func (s *suite) lostRecord(t testing.TB) {
	if s.Forget == nil || !s.loads() {
		return // it is not on this machine, or nothing is opened again
	}
	id := s.crashed
	if id == "" {
		c := s.connected(t)
		id = c.newSession()
		c.prompt(id, s.Prompts.Say)
	}
	s.drop(t)
	if err := s.Forget(); err != nil {
		t.Fatal(err)
	}
	c := s.connected(t)
	result, shown, failure := s.reload(c, id)
	switch {
	case failure != nil, rawjson.MemberString(result, "_meta", acp.MetaKey, "continuity") == "fresh":
		return
	case strings.Contains(asked(shown), s.Prompts.Say.Text):
		c.fatalf("the record was to be gone, and is shown")
	}
	if p := c.begin(id, s.Prompts.Say.Text).over(); p.err == nil {
		c.fatalf("the agent answers in a session that it remembers nothing of, as if nothing had happened")
	}
	s.drop(t)
}
