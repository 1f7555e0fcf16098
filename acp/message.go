package acp

import (
	"encoding/json"
	"strconv"
)

// Message is one JSON-RPC frame: the sender's bytes, and where in them the
// members that routing needs are. The zero value is not a message. A Message
// refers to the bytes it was parsed from and is as long valid as they are.
type Message struct {
	frame  []byte
	method string

	id, params, result, err span
	session                 span // value of params.sessionId, with quotes
	update                  span // value of params.update
	meta                    span // value of params._meta
}

// span is a half-open range of a frame; the zero span is an absent member.
type span struct{ from, to int }

func (s span) set() bool { return s.to > 0 }

func (m *Message) at(s span) []byte { return m.frame[s.from:s.to:s.to] }

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

func (m *Message) raw(s span) json.RawMessage {
	if !s.set() {
		return nil
	}
	return m.at(s)
}

// Err decodes the error member, nil when the frame has none.
func (m *Message) Err() *Error {
	if !m.err.set() {
		return nil
	}
	e := new(Error)
	if json.Unmarshal(m.at(m.err), e) != nil {
		return &Error{Code: CodeInternal, Message: string(m.at(m.err))}
	}
	return e
}

// IsRequest reports whether the frame has a method and a non-null id.
func (m *Message) IsRequest() bool { return m.method != "" && m.id.set() && !m.nullID() }

// IsNotification reports whether the frame has a method and no id.
func (m *Message) IsNotification() bool { return m.method != "" && !m.id.set() }

// IsResponse reports whether the frame answers a request.
func (m *Message) IsResponse() bool { return m.method == "" }

func (m *Message) nullID() bool { return m.id.set() && m.frame[m.id.from] == 'n' }

// HasSession reports whether params.sessionId is a string.
func (m *Message) HasSession() bool { return m.session.set() }

// SessionRaw returns the JSON string token of params.sessionId, nil when
// absent. Two equal tokens name the same session; use it to avoid the
// allocation of [Message.Session].
func (m *Message) SessionRaw() []byte {
	if !m.session.set() {
		return nil
	}
	return m.at(m.session)
}

// Session returns params.sessionId, "" when absent.
func (m *Message) Session() string {
	if !m.session.set() {
		return ""
	}
	return unquote(m.at(m.session))
}

// AppendRewritten appends the frame to dst with its id and its params.sessionId
// replaced; an empty argument, or a member the frame lacks, is left alone.
func (m *Message) AppendRewritten(dst []byte, id ID, session string) []byte {
	type edit struct {
		span
		text string
	}
	var edits [2]edit
	n := 0
	if id != "" && m.id.set() {
		edits[n], n = edit{m.id, string(id)}, n+1
	}
	if session != "" && m.session.set() {
		edits[n], n = edit{m.session, string(AppendQuoted(nil, session))}, n+1
	}
	if n == 2 && edits[1].from < edits[0].from {
		edits[0], edits[1] = edits[1], edits[0]
	}
	pos := 0
	for _, e := range edits[:n] {
		dst = append(dst, m.frame[pos:e.from]...)
		dst = append(dst, e.text...)
		pos = e.to
	}
	return append(dst, m.frame[pos:]...)
}

// Rewritten returns a new message as [Message.AppendRewritten] writes it. It
// shares no memory with m.
func (m *Message) Rewritten(id ID, session string) Message {
	b := m.AppendRewritten(make([]byte, 0, len(m.frame)+len(id)+len(session)+8), id, session)
	return MustParse(b)
}

// Clone returns a message that shares no memory with m.
func (m *Message) Clone() Message {
	c := *m
	c.frame = append([]byte(nil), m.frame...)
	return c
}

// AppendSeq appends the frame to dst with n as
// params._meta["sandboxagent.dev"].seq, and everything else as it was. A frame
// whose params are not an object is appended unchanged.
func (m *Message) AppendSeq(dst []byte, n uint64) []byte {
	if !m.params.set() || m.frame[m.params.from] != '{' {
		return append(dst, m.frame...)
	}
	if m.meta.set() {
		var num [20]byte
		edited, ok := appendSet(nil, m.at(m.params), strconv.AppendUint(num[:0], n, 10), []string{"_meta", MetaKey, "seq"})
		if !ok {
			return append(dst, m.frame...)
		}
		dst = append(dst, m.frame[:m.params.from]...)
		dst = append(dst, edited...)
		return append(dst, m.frame[m.params.to:]...)
	}
	end := m.params.to - 1 // the closing brace
	dst = append(dst, m.frame[:end]...)
	if !emptyObject(m.at(m.params)) {
		dst = append(dst, ',')
	}
	dst = append(dst, `"_meta":{"`+MetaKey+`":{"seq":`...)
	dst = strconv.AppendUint(dst, n, 10)
	dst = append(dst, `}}`...)
	return append(dst, m.frame[end:]...)
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
	b = AppendQuoted(b, method)
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
	b := make([]byte, 0, 48+len(id)+len(result))
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"result":`...)
	b = append(b, result...)
	return MustParse(append(b, '}'))
}

// NewError builds an error response frame. An absent id becomes null.
func NewError(id ID, e *Error) Message {
	if id == "" {
		id = NullID
	}
	b := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
	b = append(b, id...)
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, e.Code, 10)
	b = append(b, `,"message":`...)
	b = AppendQuoted(b, e.Message)
	if len(e.Data) > 0 {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	}
	return MustParse(append(b, `}}`...))
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
