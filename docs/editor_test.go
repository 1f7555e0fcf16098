package docs_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// settingsVariable makes this program an editor: it names the file of settings that says which
// command an agent is. The editor starts the command, as the settings say it, and has a
// conversation with it. It shares no code with the gateway.
const settingsVariable = "DOCS_TEST_EDITOR_SETTINGS"

// agentCommand is what the settings of an editor say of an agent.
type agentCommand struct {
	Command string
	Args    []string
	Env     map[string]string
}

var (
	luaCommand = regexp.MustCompile(`\bcommand = ("[^"]*")`)
	luaArgs    = regexp.MustCompile(`\bargs = \{([^}]*)\}`)
	lispName   = regexp.MustCompile(`:command ("[^"]*")`)
	lispArgs   = regexp.MustCompile(`:command-params '\(([^)]*)\)`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
)

// agentOf reads settings. Those in JSON are read as such. Those that are programs of Lua or
// Emacs Lisp are not run: their strings are taken.
func agentOf(file string) (agentCommand, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return agentCommand{}, fmt.Errorf("read the settings: %w", err)
	}
	name, args := luaCommand, luaArgs
	switch filepath.Ext(file) {
	case ".json":
		var settings struct {
			Zed    map[string]agentCommand `json:"agent_servers"`
			VSCode map[string]agentCommand `json:"acp.agents"`
		}
		if err := json.Unmarshal(text, &settings); err != nil {
			return agentCommand{}, fmt.Errorf("read the settings: %w", err)
		}
		for _, agents := range []map[string]agentCommand{settings.Zed, settings.VSCode} {
			for _, agent := range agents {
				return agent, nil
			}
		}
		return agentCommand{}, errors.New("the settings name no agent")
	case ".el":
		name, args = lispName, lispArgs
	}
	found, list := name.FindSubmatch(text), args.FindSubmatch(text)
	if found == nil || list == nil {
		return agentCommand{}, errors.New("the settings name no command, or no arguments")
	}
	agent := agentCommand{Command: strings.Trim(string(found[1]), `"`)}
	for _, arg := range quoted.FindAllString(string(list[1]), -1) {
		agent.Args = append(agent.Args, strings.Trim(arg, `"`))
	}
	return agent, nil
}

// beEditor has a conversation with the agent of some settings.
func beEditor(file string) error {
	agent, err := agentOf(file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, agent.Command, agent.Args...)
	cmd.Env = os.Environ()
	for name, value := range agent.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	e := &editor{in: stdin, out: bufio.NewReader(stdout)}
	err = errors.Join(e.converse(), stdin.Close())
	if rest, _ := io.ReadAll(e.out); err == nil && len(rest) > 0 {
		err = fmt.Errorf("the agent says more after the end: %s", rest)
	}
	if wait := cmd.Wait(); wait != nil {
		err = errors.Join(err, fmt.Errorf("the agent ended: %w", wait))
	}
	return err
}

// editor is one side of a conversation, a line for each message.
type editor struct {
	in   io.Writer
	out  *bufio.Reader
	last int
	said strings.Builder // by the agent, in the turn
	asks int             // permissions
}

func (e *editor) converse() error {
	folder, err := os.Getwd()
	if err != nil {
		return err
	}
	var hello struct{ ProtocolVersion int }
	if err := e.call("initialize", map[string]any{
		"protocolVersion": 1, "clientInfo": map[string]any{"name": "editor", "version": "1"},
		"clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": true, "writeTextFile": true}, "terminal": true},
	}, &hello); err != nil || hello.ProtocolVersion != 1 {
		return fmt.Errorf("initialize: version %d, %v", hello.ProtocolVersion, err)
	}
	var session struct{ SessionID string }
	if err := e.call("session/new", map[string]any{"cwd": folder, "mcpServers": []any{}}, &session); err != nil || session.SessionID == "" {
		return fmt.Errorf("session/new: session %q, %v", session.SessionID, err)
	}
	for _, words := range []string{"echo hello, editor", "permission"} {
		e.said.Reset()
		var turn struct{ StopReason string }
		err := e.call("session/prompt", map[string]any{"sessionId": session.SessionID, "prompt": []any{map[string]any{"type": "text", "text": words}}}, &turn)
		if err != nil || turn.StopReason != "end_turn" {
			return fmt.Errorf("prompt %q: ended with %q, %v", words, turn.StopReason, err)
		}
		if said, ok := strings.CutPrefix(words, "echo "); ok && e.said.String() != said {
			return fmt.Errorf("the agent says %q, want %q", e.said.String(), said)
		}
	}
	if e.asks != 1 {
		return fmt.Errorf("the agent asked %d times, want once", e.asks)
	}
	return nil
}

// call sends a request and reads until its answer; what comes before is updates, and questions.
func (e *editor) call(method string, params, result any) error {
	e.last++
	id := e.last
	if err := e.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params}); err != nil {
		return err
	}
	for {
		line, err := e.out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Update struct {
					SessionUpdate string
					Content       json.RawMessage
				}
				Options []struct{ OptionID, Kind string }
			}
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("read %q: %w", line, err)
		}
		switch {
		case m.Method == "session/update":
			if m.Params.Update.SessionUpdate == "agent_message_chunk" {
				var content struct{ Text string }
				if err := json.Unmarshal(m.Params.Update.Content, &content); err != nil {
					return fmt.Errorf("read %q: %w", line, err)
				}
				e.said.WriteString(content.Text)
			}
		case m.Method == "session/request_permission":
			e.asks++
			chosen := map[string]any{"outcome": "selected", "optionId": m.Params.Options[0].OptionID}
			if err := e.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": map[string]any{"outcome": chosen}}); err != nil {
				return err
			}
		case m.Method == "" && string(m.ID) == fmt.Sprint(id):
			if m.Error != nil {
				return fmt.Errorf("it answers %s", m.Error)
			}
			return json.Unmarshal(m.Result, result)
		}
	}
}

func (e *editor) send(message any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = e.in.Write(append(b, '\n'))
	return err
}
