package acp

import "bytes"

// audience says who a message of an agent is for, where not all clients of its session
// are to be given it. It is no part of the frame.
type audience struct {
	version int8   // of the protocol, whose clients alone are given it; 0 is any
	under   []byte // the JSON token of the session whose log has it, nil for its own
}

// For returns the message as one that clients of a version of the protocol alone are
// given. A session that is not nil, a JSON token, is the one whose clients these are:
// the message itself is of a child of it.
func (m Message) For(version int, session []byte) Message {
	m.audience = audience{int8(version), session}
	return m
}

// Version returns the version of the protocol whose clients alone are given the message,
// 0 when all are.
func (m *Message) Version() int { return int(m.audience.version) }

// OfChild reports whether the message is of a child of the session that it belongs to.
func (m *Message) OfChild() bool { return m.audience.under != nil }

// Belongs returns the JSON token of the session that the message belongs to, nil when it
// belongs to none.
func (m *Message) Belongs() []byte {
	if m.audience.under != nil {
		return m.audience.under
	}
	return m.SessionRaw()
}

func (a audience) clone() audience {
	a.under = bytes.Clone(a.under)
	return a
}
