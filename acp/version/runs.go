package version

import (
	"encoding/json"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// runs are the calls of a log of version 1 that are open, and those of them that run though
// the turn that began them is over: they go on in the background.
type runs struct {
	open    []run    // at most maxRuns; of more nobody is told that they go on
	left    []string // ids of those in the background
	told    bool     // there was something in the background: each state says what since
	changed bool     // one of left has ended
}

type run struct {
	id string
	on bool // it is in progress
}

const maxRuns = 1024

// note takes what version 1 says of a call. An agent of version 2 never says that a call
// begins, and tells of its background itself.
func (r *runs) note(update json.RawMessage, begins bool) {
	id, status := rawjson.MemberString(update, "toolCallId"), rawjson.MemberString(update, "status")
	i := slices.IndexFunc(r.open, func(one run) bool { return one.id == id })
	if i < 0 {
		if !begins || id == "" || len(r.open) >= maxRuns {
			return
		}
		i = len(r.open)
		r.open = append(r.open, run{id: id})
	}
	switch status {
	case "in_progress":
		r.open[i].on = true
	case "completed", "failed":
		r.open = slices.Delete(r.open, i, i+1)
		if j := slices.Index(r.left, id); j >= 0 {
			r.left, r.changed = slices.Delete(r.left, j, j+1), true
		}
	}
}

// leave notes that the agent has ended its turn: what runs still is in the background.
func (r *runs) leave() {
	r.left = r.left[:0]
	for _, one := range r.open {
		if one.on {
			r.left = append(r.left, one.id)
		}
	}
	r.told = r.told || len(r.left) > 0
}

// leftRunning returns what goes on in the background, as version 2 has it; nil when there
// never was anything.
func (v *View) leftRunning() json.RawMessage {
	if !v.runs.told {
		return nil
	}
	list := []json.RawMessage{}
	for _, id := range v.runs.left {
		if c := v.kids.byCall[id]; c != nil && c.announced {
			list = append(list, rawjson.Object{}.String("type", "subagent").Raw("sessionId", c.token).End())
			continue
		}
		list = append(list, rawjson.Object{}.String("type", "tool_call").String("toolCallId", id).End())
	}
	return array(list)
}

// callsEnd tells of what is in the background, if something has ended there.
func (v *View) callsEnd(history bool, out *Frames) {
	if !v.runs.changed {
		return
	}
	if v.runs.changed = false; !history {
		v.state(out)
	}
}
