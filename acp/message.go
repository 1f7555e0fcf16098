package acp

import (
	"encoding/json"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// Message is one JSON-RPC frame: the sender's bytes, and where in them the
// members that routing needs are. The zero value is not a message. A Message
// refers to the bytes it was parsed from and is as long valid as they are.
type Message struct {
	frame  []byte
	method string

	id, params, result, err rawjson.Span
	session                 rawjson.Span // value of params.sessionId, with quotes
	update                  rawjson.Span // value of params.update
	meta                    rawjson.Span // value of params._meta
	audience
}

func (m *Message) at(s rawjson.Span) []byte { return m.frame[s.From:s.To:s.To] }

// Frame returns the whole frame, without a newline in or after it.
func (m *Message) Frame() []byte { return m.frame }

// ID returns the frame's id, "" when it has none.
func (m *Message) ID() ID { return ID(m.at(m.id)) }

// Method returns the method, "" for a response.
func (m *Message) Method() string { return m.method }

// Params returns the raw params, nil when absent.
func (m *Message) Params() json.RawMessage { return m.raw(m.params) }

// Result returns the raw result, nil when absent.
func (m *Message) Result() json.RawMessage { return m.raw(m.result) }

// ErrorRaw returns the raw error member, nil when absent.
func (m *Message) ErrorRaw() json.RawMessage { return m.raw(m.err) }

// Update returns the raw params.update, nil when absent.
func (m *Message) Update() json.RawMessage { return m.raw(m.update) }

// Meta returns the raw params._meta, nil when absent.
func (m *Message) Meta() json.RawMessage { return m.raw(m.meta) }

// UpdateKind returns params.update.sessionUpdate without decoding the rest, nil
// when there is none. It costs no allocation where that is the update's first
// member.
func (m *Message) UpdateKind() []byte {
	u := m.Update()
	const first = `{"sessionUpdate":"`
	if len(u) > len(first) && string(u[:len(first)]) == first {
		if i := indexQuote(u[len(first):]); i >= 0 {
			return u[len(first) : len(first)+i]
		}
	}
	return []byte(rawjson.MemberString(u, "sessionUpdate"))
}

func indexQuote(b []byte) int {
	for i, c := range b {
		switch c {
		case '"':
			return i
		case '\\':
			return -1
		}
	}
	return -1
}

func (m *Message) raw(s rawjson.Span) json.RawMessage {
	if !s.IsSet() {
		return nil
	}
	return m.at(s)
}

// Err decodes the error member, nil when the frame has none.
func (m *Message) Err() *Error {
	if !m.err.IsSet() {
		return nil
	}
	e := new(Error)
	if json.Unmarshal(m.at(m.err), e) != nil {
		return &Error{Code: CodeInternal, Message: string(m.at(m.err))}
	}
	return e
}

// IsRequest reports whether the frame has a method and an id.
func (m *Message) IsRequest() bool { return m.method != "" && m.id.IsSet() }

// IsNotification reports whether the frame has a method and no id.
func (m *Message) IsNotification() bool { return m.method != "" && !m.id.IsSet() }

// IsResponse reports whether the frame answers a request.
func (m *Message) IsResponse() bool { return m.method == "" }

// HasSession reports whether params.sessionId is a string.
func (m *Message) HasSession() bool { return m.session.IsSet() }

// SessionRaw returns the JSON string token of params.sessionId, nil when
// absent. Two equal tokens name the same session; use it to avoid the
// allocation of [Message.Session].
func (m *Message) SessionRaw() []byte {
	if !m.session.IsSet() {
		return nil
	}
	return m.at(m.session)
}

// Session returns params.sessionId, "" when absent.
func (m *Message) Session() string {
	if !m.session.IsSet() {
		return ""
	}
	return rawjson.Unquote(m.at(m.session))
}

// AppendRewritten appends the frame to dst with its id and its params.sessionId
// replaced; an empty argument, or a member the frame lacks, is left alone.
func (m *Message) AppendRewritten(dst []byte, id ID, session string) []byte {
	type edit struct {
		rawjson.Span
		text string
	}
	var edits [2]edit
	n := 0
	if id != "" && m.id.IsSet() {
		edits[n], n = edit{m.id, string(id)}, n+1
	}
	if session != "" && m.session.IsSet() {
		edits[n], n = edit{m.session, string(rawjson.AppendQuoted(nil, session))}, n+1
	}
	if n == 2 && edits[1].From < edits[0].From {
		edits[0], edits[1] = edits[1], edits[0]
	}
	pos := 0
	for _, e := range edits[:n] {
		dst = append(dst, m.frame[pos:e.From]...)
		dst = append(dst, e.text...)
		pos = e.To
	}
	return append(dst, m.frame[pos:]...)
}

// Rewritten returns a new message as [Message.AppendRewritten] writes it. It
// shares no memory with m.
func (m *Message) Rewritten(id ID, session string) Message {
	b := m.AppendRewritten(make([]byte, 0, len(m.frame)+len(id)+len(session)+8), id, session)
	return MustParse(b)
}

// SplitSession returns the frame's bytes before and after the value of
// params.sessionId, which must be present.
func (m *Message) SplitSession() (before, after []byte) {
	return m.frame[:m.session.From], m.frame[m.session.To:]
}

// SplitUpdate returns the frame's bytes before and after the value of params.update,
// which must be present.
func (m *Message) SplitUpdate() (before, after []byte) {
	return m.frame[:m.update.From], m.frame[m.update.To:]
}

// Clone returns a message that shares no memory with m.
func (m *Message) Clone() Message {
	c := *m
	c.frame = append([]byte(nil), m.frame...)
	c.audience = m.audience.clone()
	return c
}

// AppendSeq appends the frame to dst with n as
// params._meta["sandboxagent.dev"].seq, and everything else as it was. If root is not "", that is
// there as rootSessionId, see [Message.Root]. A frame whose params are not an object is appended
// unchanged.
func (m *Message) AppendSeq(dst []byte, n uint64, root string) []byte {
	if !m.params.IsSet() || m.frame[m.params.From] != '{' {
		return append(dst, m.frame...)
	}
	if m.meta.IsSet() {
		var num [20]byte
		dst = append(dst, m.frame[:m.params.From]...)
		params := rawjson.SetMember(m.Params(), strconv.AppendUint(num[:0], n, 10), "_meta", MetaKey, "seq")
		if root != "" {
			params = rawjson.SetMember(params, rawjson.AppendQuoted(nil, root), "_meta", MetaKey, "rootSessionId")
		}
		dst = append(dst, params...)
		return append(dst, m.frame[m.params.To:]...)
	}
	end := m.params.To - 1 // the closing brace
	dst = append(dst, m.frame[:end]...)
	if !rawjson.IsEmptyObject(m.at(m.params)) {
		dst = append(dst, ',')
	}
	dst = append(dst, `"_meta":{"`+MetaKey+`":{"seq":`...)
	dst = strconv.AppendUint(dst, n, 10)
	if root != "" {
		dst = append(dst, `,"rootSessionId":`...)
		dst = rawjson.AppendQuoted(dst, root)
	}
	dst = append(dst, `}}`...)
	return append(dst, m.frame[end:]...)
}

// Root returns the session in whose log a message of a subagent's session is, "" when the message
// does not say: a gateway says it of those that it numbers.
func (m *Message) Root() string {
	return rawjson.MemberString(m.Meta(), MetaKey, "rootSessionId")
}

// MetaKey is the member of _meta that belongs to this gateway.
const MetaKey = "sandboxagent.dev"

// NewRequest builds a request frame. params are raw JSON, nil for none.
func NewRequest(id ID, method string, params []byte) Message {
	return MustParse(appendCall(make([]byte, 0, 64+len(method)+len(params)), id, method, params))
}

// NewNotification builds a notification frame.
func NewNotification(method string, params []byte) Message {
	return MustParse(appendCall(make([]byte, 0, 64+len(method)+len(params)), "", method, params))
}

func appendCall(b []byte, id ID, method string, params []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if id != "" {
		b = append(b, `,"id":`...)
		b = append(b, id...)
	}
	b = append(b, `,"method":`...)
	b = rawjson.AppendQuoted(b, method)
	if params != nil {
		b = append(b, `,"params":`...)
		b = append(b, params...)
	}
	return append(b, '}')
}

// NewResult builds a response frame with a raw result; nil becomes {}.
func NewResult(id ID, result []byte) Message {
	if result == nil {
		result = []byte("{}")
	}
	return response(id, "result", result)
}

// NewError builds an error response frame. An absent id becomes null. Data that is an
// object, or missing, gets a type if it has none. Texts lose what is for terminals only.
func NewError(id ID, e *Error) Message {
	if id == "" {
		id = NullID
	}
	o := rawjson.Object{}.Raw("code", strconv.AppendInt(nil, e.Code, 10)).String("message", plain(e.Message))
	if data := plainJSON(e.typed()); len(data) > 0 {
		o = o.Raw("data", data)
	}
	return NewErrorRaw(id, o.End())
}

// NewErrorRaw builds an error response frame with a raw error member.
func NewErrorRaw(id ID, e []byte) Message { return response(id, "error", e) }

func response(id ID, member string, value []byte) Message {
	o := append(make(rawjson.Object, 0, 48+len(id)+len(value)), `{"jsonrpc":"2.0"`...)
	return MustParse(o.Raw("id", []byte(id)).Raw(member, value).End())
}

// MustParse is [Parse] for frames this program built itself; it panics when
// they are not well-formed, which is a bug and never an input's fault.
func MustParse(frame []byte) Message {
	m, err := Parse(frame)
	if err != nil {
		panic("acp: built an invalid frame: " + err.Error())
	}
	return m
}
