package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The test binary is also an agent that says what its turns take and that keeps
// what it was sent, byte by byte.
func init() {
	if path := os.Getenv("METERED_LOG"); path != "" && len(os.Args) > 1 && os.Args[1] == "metered-agent" {
		if err := meteredAgent(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// meteredFlags make the agent metered known to a gateway, which must have
// METERED_LOG in its environment.
func meteredFlags(t *testing.T) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--agent-command", "metered=" + quoteArg(exe) + " metered-agent"}
}

func meteredAgent(path string) error {
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	var inherited []byte
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "OTEL_") {
			inherited = append(append(inherited, kv...), '\n')
		}
	}
	if err := os.WriteFile(path+".env", inherited, 0o600); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	cost := 0.0
	for in := bufio.NewReaderSize(os.Stdin, 1<<20); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		if _, err := log.WriteString(line); err != nil {
			return err
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			return err
		}
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":1,"agentCapabilities":{"sessionCapabilities":{"resume":{}}}}`
		case "session/new":
			result = `{"sessionId":"metered-1"}`
		case "session/prompt":
			if strings.Contains(line, `"text":"die"`) {
				os.Exit(7)
			}
			cost += 0.25
			fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"metered-1","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"spent"}}}}`)
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"metered-1","update":{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":%v,"currency":"EUR"}}}}`+"\n", cost)
			result = `{"stopReason":"end_turn","usage":{"totalTokens":186,"inputTokens":100,"outputTokens":20,"thoughtTokens":1,"cachedReadTokens":60,"cachedWriteTokens":5}}`
		}
		if m.ID != nil {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

// meteredFrames returns what the agent was sent with the method.
func meteredFrames(t *testing.T, path, method string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, `"method":"`+method+`"`) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}
