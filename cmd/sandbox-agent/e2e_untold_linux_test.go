package main_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// killingAgent is an agent that kills the gateway when it is asked for what the file beside it names, after as many steps as
// the file says: before it answers, or while what it has answered is written down.
const killingAgent = `dir=${0%/*}
kill_after() {
	n=$1
	while [ "$n" -gt 0 ]; do n=$((n - 1)); done
	kill -9 $PPID
}
say() { printf '%s\n' "$1"; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"'$made'","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hello"}}}}'; }
modes='"modes":{"currentModeId":"a","availableModes":[{"id":"a","name":"A"},{"id":"b","name":"B"}]}'
count=0
while read -r line; do
	method=${line#*'"method":"'}; method=${method%%'"'*}
	id=${line#*'"id":'}; id=${id%%,*}; id=${id%%'}'*}
	at= steps=
	[ -f "$dir/kill" ] && read -r at steps <"$dir/kill"
	case $method in
	initialize) say '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"fork":{}}}}}' ;;
	session/new | session/fork)
		count=$((count + 1)) made=$$-$count
		[ "$at" = asked ] && kill_after "$steps"
		say '{"jsonrpc":"2.0","id":'$id',"result":{"sessionId":"'$made'",'$modes'}}'
		[ "$at" = said ] && update
		case $at in answered | said) kill_after "$steps" ;; esac ;;
	session/set_mode)
		[ "$at" = mode ] && kill_after "$steps"
		[ -z "$at" ] && say '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
	session/prompt)
		made=${line#*'"sessionId":"'}; made=${made%%'"'*}
		update
		say '{"jsonrpc":"2.0","id":'$id',"result":{"stopReason":"end_turn"}}' ;;
	session/*) case $line in *'"id":'*) say '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;; esac ;;
	esac
done
`

// A gateway that is killed while it makes a session, with kill -9 and wherever in that it is, has told no client of it: after
// the next start there is none, its files are gone, and its id is free. What others were told of is there.
func TestKilled_WhileMakingASession(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, order := filepath.Join(dir, "agent.sh"), filepath.Join(dir, "kill")
	if err := os.WriteFile(script, []byte(killingAgent), 0o600); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "--agent-command", "own=sh "+script, "--default-agent", "own", "--log-level", "error")
	g.start()
	c := connect(t, g, wsocket, options{})
	kept := c.newSessionWith(map[string]any{"mode": "b"})
	c.prompt(kept, "hello")
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	for round := range 24 {
		method := []string{"session/new", "session/fork"}[round%2]
		at := []string{"asked", "answered", "said", "mode"}[round/2%4]
		what := fmt.Sprintf("round %d, %s, %s", round, method, at)
		steps := 0
		if at != "asked" {
			steps = dice.IntN(1 << dice.IntN(14))
		}
		if err := os.WriteFile(order, fmt.Appendf(nil, "%s %d\n", at, steps), 0o600); err != nil {
			t.Fatal(err)
		}
		wanted := fmt.Sprintf("wanted-%d", round)
		meta := map[string]any{"sandboxagent.dev": map[string]any{"requestedSessionId": wanted, "mode": "b"}}
		params := map[string]any{"cwd": dir, "mcpServers": []any{}, "_meta": meta}
		if method == "session/fork" {
			params["sessionId"] = kept
		}
		answer := c.start(method, params)
		<-g.exited
		if m := c.response(answer); m.Error == nil {
			t.Fatalf("%s: it was made: %s", what, m.Result)
		}
		c.abandon()
		c.forget()
		if err := os.Remove(order); err != nil {
			t.Fatal(err)
		}
		g.start()
		var list struct {
			Sessions []struct {
				SessionID string `json:"sessionId"`
			} `json:"sessions"`
		}
		if g.get("/v2/sessions", &list); len(list.Sessions) != 1 || list.Sessions[0].SessionID != kept {
			t.Errorf("%s: there are %+v, not only %s", what, list.Sessions, kept)
		}
		folders, err := os.ReadDir(filepath.Join(g.dir, "sessions"))
		if err != nil || len(folders) != 1 {
			t.Errorf("%s: there are %v, %v", what, folders, err)
		}
		c = connect(t, g, wsocket, options{})
		if id := c.newSessionWith(map[string]any{"requestedSessionId": wanted, "mode": "b"}); id != wanted {
			t.Errorf("%s: the id is not free, there is %s", what, id)
		}
		c.must("session/delete", map[string]any{"sessionId": wanted})
		c.attach("session/load", kept, nil)
		c.prompt(kept, "again")
		if t.Failed() {
			return
		}
	}
}
