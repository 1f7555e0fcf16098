package version

import (
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// spoken is a session of an agent of version 2, as far as what it says in version 1
// depends on what was said before.
type spoken struct {
	token string // the JSON token of its id

	// Of a child: the id of the call that shows it in version 1, and the session that has it.
	child  string
	parent *spoken

	prompt  *taken
	alone   bool // the gateway was told that the agent works unprompted
	behind  bool // the agent says that something goes on in the background
	shown   bool // the agent has shown work since it was idle, told to cancel, or given a prompt
	options json.RawMessage
	mode    string // the current value of the option for modes

	messages  kept[message]
	calls     kept[call]
	terminals kept[terminal]
	plan      string // the id of the plan that is shown
	held      int    // bytes of the content of calls
}

// taken is a prompt that the agent has been given.
type taken struct {
	id      acp.ID
	blocks  []string // what it says, to know it when the agent repeats it
	taken   bool     // the agent has begun with it
	ran     bool     // and has shown so
	message string   // the id under which the agent repeats it
}

func newSpoken(token string) *spoken {
	s := &spoken{
		token: strings.Clone(token), messages: newKept[message](maxMessages), calls: newKept[call](maxCalls), terminals: newKept[terminal](maxTerminals),
	}
	s.calls.forget = s.drop
	return s
}

// The bounds of what is known of a session. Of more the oldest is forgotten: what the
// agent says of it then, version 1 shows as something new.
const (
	maxMessages  = 256
	maxCalls     = 4096
	maxTerminals = 32
)

// kept are things by id, the newest of them.
type kept[T any] struct {
	most   int
	byID   map[string]*T
	order  []string
	forget func(*T) // is told what goes; may be nil
}

func newKept[T any](most int) kept[T] { return kept[T]{most: most, byID: map[string]*T{}} }

// get returns the thing with the id, which is made if need be.
func (k *kept[T]) get(id string) *T {
	if t := k.byID[id]; t != nil {
		return t
	}
	if len(k.order) >= k.most {
		if k.forget != nil {
			k.forget(k.byID[k.order[0]])
		}
		delete(k.byID, k.order[0])
		k.order = slices.Delete(k.order, 0, 1)
	}
	id = strings.Clone(id)
	t := new(T)
	k.byID[id] = t
	k.order = append(k.order, id)
	return t
}

// remove forgets the thing with the id.
func (k *kept[T]) remove(id string) {
	delete(k.byID, id)
	k.order = slices.DeleteFunc(k.order, func(one string) bool { return one == id })
}

// one is an update for clients of version 1.
func one(token string, update []byte) acp.Message {
	m := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", []byte(token)).Raw("update", update).End())
	return m.For(One, nil)
}

// working tells the gateway whether the agent works though nobody has prompted it.
func (s *spoken) working(now bool, out []acp.Message) []acp.Message {
	if s.alone == now || s.child != "" {
		return out
	}
	s.alone = now
	word := []byte("false")
	if now {
		word = []byte("true")
	}
	return append(out, acp.NewNotification(acp.MethodWorking, rawjson.Object{}.Raw("sessionId", []byte(s.token)).Raw("working", word).End()))
}

// accepted takes the agent's word that it has begun with the prompt.
func (s *spoken) accepted(m *acp.Message, out []acp.Message) []acp.Message {
	if s.prompt == nil || s.prompt.id != m.ID() {
		return out
	}
	s.prompt.taken = true
	if id := rawjson.MemberString(m.Result(), "messageId"); id != "" {
		s.prompt.message = id
		s.messages.get("user_message " + id).own = true
	}
	return s.working(false, out)
}

// state takes the state that the agent tells of.
func (s *spoken) state(m *acp.Message, out []acp.Message) []acp.Message {
	update := m.Update()
	state := rawjson.MemberString(update, "state")
	p := s.prompt
	background, _ := rawjson.Member(update, "background")
	s.behind = len(rawjson.Elements(background)) > 0
	switch state {
	case "running", "requires_action":
		if p != nil && p.taken {
			p.ran = true
		} else {
			out = s.working(true, out)
		}
	case "idle":
		out = s.flush(out)
		out = s.leave(update, s.token, out)
		out = s.working(false, out)
		s.shown = false
	}
	out = append(out, m.For(Two, nil))
	if reason, _ := rawjson.Member(update, "stopReason"); state == "idle" && p != nil && p.taken && (p.ran || len(reason) > 0 && reason[0] == '"') {
		s.prompt = nil
		out = append(out, ended(p.id, update))
	}
	return out
}

// stopReasons are those that version 1 has.
var stopReasons = []string{"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"}

// ended is the answer to a prompt whose turn has ended so.
func ended(id acp.ID, update json.RawMessage) acp.Message {
	reason := rawjson.MemberString(update, "stopReason")
	if reason == "error" {
		if e, ok := rawjson.Member(update, "error"); ok && rawjson.MemberString(e, "message") != "" {
			if _, coded := rawjson.Member(e, "code"); coded {
				return acp.NewErrorRaw(id, e)
			}
		}
		return acp.NewError(id, acp.Errorf(acp.CodeInternal, "the agent says that the turn has failed, and not why"))
	}
	known := reason
	if !slices.Contains(stopReasons, reason) {
		known = "end_turn"
	}
	o := rawjson.Object{}.String("stopReason", known)
	if usage, ok := rawjson.Member(update, "usage"); ok && usage[0] == '{' {
		o = o.Raw("usage", usage)
	}
	result := json.RawMessage(withMeta(o, update).End())
	if known != reason && reason != "" {
		result = rawjson.SetMember(result, rawjson.AppendQuoted(nil, reason), "_meta", acp.MetaKey, "stopReason")
	}
	return acp.NewResult(id, result)
}

// opened takes the answer to the request that has opened the session.
func (s *spoken) opened(m *acp.Message, out []acp.Message) []acp.Message {
	result := m.Result()
	if options, ok := rawjson.Member(result, "configOptions"); ok && options[0] == '[' {
		s.noteOptions(options)
		result = rawjson.SetMember(result, lowerOptions(options), "configOptions")
		if modes := modesOf(options); modes != nil {
			result = rawjson.SetMember(result, modes, "modes")
		}
	}
	commands, given := rawjson.Member(result, "availableCommands")
	if given {
		result = rawjson.DeleteMember(result, "availableCommands")
	}
	out = append(out, acp.NewResult(ownID(m), result))
	if given && commands[0] == '[' {
		update := rawjson.Object{}.String("sessionUpdate", "available_commands_update").Raw("availableCommands", commands).End()
		out = append(out, acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.Raw("sessionId", []byte(s.token)).Raw("update", update).End()))
	}
	return out
}

// modeOption returns the id of the option for modes.
func (s *spoken) modeOption() string {
	for _, o := range rawjson.Elements(s.options) {
		if o[0] == '{' && modal(o) {
			return rawjson.MemberString(o, "configId")
		}
	}
	return ModeOption
}

func (s *spoken) noteOptions(options json.RawMessage) {
	s.options = append(json.RawMessage(nil), options...)
	s.mode = rawjson.MemberString(modesOf(options), "currentModeId")
}

// modal reports whether an option of version 2 is the one for modes.
func modal(o json.RawMessage) bool {
	return rawjson.MemberString(o, "type") == "select" && (rawjson.MemberString(o, "category") == "mode" || rawjson.MemberString(o, "configId") == ModeOption)
}

// modesOf returns the modes that the options of version 2 have, nil for none.
func modesOf(options json.RawMessage) json.RawMessage {
	for _, o := range rawjson.Elements(options) {
		if o[0] != '{' || !modal(o) {
			continue
		}
		current, ok := rawjson.Member(o, "currentValue")
		if !ok || current[0] != '"' {
			continue
		}
		var modes []json.RawMessage
		add := func(choice json.RawMessage) {
			if choice[0] == '{' && isString(choice, "value") {
				modes = append(modes, rename(choice, "value", "id"))
			}
		}
		choices, _ := rawjson.Member(o, "options")
		for _, c := range rawjson.Elements(choices) {
			inner, grouped := rawjson.Member(c, "options")
			if !grouped {
				add(c)
			}
			for _, i := range rawjson.Elements(inner) {
				add(i)
			}
		}
		return rawjson.Object{}.Raw("currentModeId", current).Raw("availableModes", array(modes)).End()
	}
	return nil
}

// lowerOptions returns options as version 1 has them. Those of a type that it does not
// have are left out.
func lowerOptions(options json.RawMessage) json.RawMessage {
	out := []json.RawMessage{}
	for _, o := range rawjson.Elements(options) {
		if o[0] != '{' {
			continue
		}
		if kind := rawjson.MemberString(o, "type"); kind != "select" && kind != "boolean" {
			continue
		}
		o = rename(o, "configId", "id")
		if choices, ok := rawjson.Member(o, "options"); ok {
			o = rawjson.SetMember(o, list(choices, func(c json.RawMessage) json.RawMessage { return rename(c, "groupId", "group") }), "options")
		}
		out = append(out, o)
	}
	return array(out)
}
