package opencode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// event is what the server reports: the members of all kinds of events that
// matter here.
type event struct {
	ID        string `json:"-"` // "" in early versions
	Type      string `json:"-"`
	Directory string `json:"-"`

	Session string          `json:"sessionID"`
	Info    json.RawMessage `json:"info"` // of a session or of a message

	Part    *part  `json:"part"`
	At      int64  `json:"time"` // Unix time in ms
	Message string `json:"messageID"`
	PartID  string `json:"partID"`
	Field   string `json:"field"`
	Delta   string `json:"delta"`

	Status *status  `json:"status"`
	Error  *failure `json:"error"`
	Todos  []todo   `json:"todos"`

	ask              // of permission.asked and question.asked
	RequestID string `json:"requestID"` // of what was replied to

	session *info    // decoded Info of session.*
	message *message // decoded Info of message.updated
}

// ask is what OpenCode wants to know of the user.
type ask struct {
	ID string `json:"id"`
	// Of a permission.
	Permission string          `json:"permission"`
	Patterns   []string        `json:"patterns"`
	Always     []string        `json:"always"`
	Metadata   json.RawMessage `json:"metadata"`
	// Of a question.
	Questions []question `json:"questions"`
	Tool      *toolRef   `json:"tool"`
}

// toolRef names the call that asks.
type toolRef struct {
	Message string `json:"messageID"`
	Call    string `json:"callID"`
}

type question struct {
	Question string `json:"question"`
	Header   string `json:"header"`
	Multiple bool   `json:"multiple"`
	Custom   *bool  `json:"custom,omitempty"` // own words are an answer, too; they are unless it is false
	Options  []struct {
		Label       string `json:"label"`
		Description string `json:"description"`
	} `json:"options"`
}

type status struct {
	Type    string `json:"type"` // idle, busy, retry
	Attempt int    `json:"attempt"`
	Message string `json:"message"`
}

type todo struct {
	Content  string `json:"content"`
	Status   string `json:"status"`
	Priority string `json:"priority"`
}

// info describes a session.
type info struct {
	ID        string  `json:"id"`
	Directory string  `json:"directory"`
	Parent    string  `json:"parentID"`
	Title     string  `json:"title"`
	Agent     string  `json:"agent"`
	Cost      float64 `json:"cost"`
	Model     *struct {
		ID       string `json:"id"`
		Provider string `json:"providerID"`
		Variant  string `json:"variant"`
	} `json:"model"`
	Permission []rule `json:"permission"`
	Revert     *struct {
		Message string `json:"messageID"`
	} `json:"revert"`
	Time struct {
		Updated  int64 `json:"updated"` // Unix time in ms
		Archived int64 `json:"archived"`
	} `json:"time"`
}

// undone is the first message of what was taken back and can be brought back, "" for
// nothing.
func (i *info) undone() string {
	if i.Revert == nil {
		return ""
	}
	return i.Revert.Message
}

// rule is one of OpenCode's rules about permissions; the last that matches
// counts.
type rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     string `json:"action"`
}

// message is a message without its parts.
type message struct {
	ID       string          `json:"id"`
	Role     string          `json:"role"`
	Session  string          `json:"sessionID"`
	Parent   string          `json:"parentID"`
	Agent    string          `json:"agent"`
	Model    string          `json:"modelID"`
	Provider string          `json:"providerID"`
	Finish   string          `json:"finish"`
	Tokens   *tokens         `json:"tokens"`
	Cost     float64         `json:"cost"`
	Error    *failure        `json:"error"`
	Summary  json.RawMessage `json:"summary"` // true in what a compaction says; else an object
	Time     struct {
		Completed int64 `json:"completed"`
	} `json:"time"`
}

func (m *message) summary() bool { return string(m.Summary) == "true" }

type tokens struct {
	Input     uint64 `json:"input"`
	Output    uint64 `json:"output"`
	Reasoning uint64 `json:"reasoning"`
	Cache     struct {
		Read  uint64 `json:"read"`
		Write uint64 `json:"write"`
	} `json:"cache"`
}

func (t *tokens) sum() uint64 {
	return t.Input + t.Output + t.Reasoning + t.Cache.Read + t.Cache.Write
}

// stored is a message with its parts.
type stored struct {
	Info  message `json:"info"`
	Parts []part  `json:"parts"`
}

// part is a piece of a message, always as a whole.
type part struct {
	ID        string     `json:"id"`
	Session   string     `json:"sessionID"`
	Message   string     `json:"messageID"`
	Type      string     `json:"type"`
	Text      string     `json:"text"`
	Synthetic bool       `json:"synthetic"`
	Ignored   bool       `json:"ignored"`
	Tool      string     `json:"tool"`
	Call      string     `json:"callID"`
	State     *toolState `json:"state"`
	Mime      string     `json:"mime"`
	Filename  string     `json:"filename"`
	URL       string     `json:"url"`
	Time      *struct {
		End int64 `json:"end"`
	} `json:"time"`
}

// over reports whether nothing more will be said in a text.
func (p *part) over() bool { return p.Time != nil && p.Time.End != 0 }

type toolState struct {
	Status      string          `json:"status"`
	Input       json.RawMessage `json:"input"`
	Output      string          `json:"output"`
	Error       string          `json:"error"`
	Title       string          `json:"title"`
	Metadata    json.RawMessage `json:"metadata"`
	Attachments []part          `json:"attachments"`
	Time        struct {
		Start int64 `json:"start"` // Unix time in ms
	} `json:"time"`
}

// failure is an error of a turn.
type failure struct {
	Name string `json:"name"`
	Data struct {
		Message  string `json:"message"`
		Status   int    `json:"statusCode"`
		Retry    bool   `json:"isRetryable"`
		Provider string `json:"providerID"`
		Body     string `json:"responseBody"`
	} `json:"data"`
}

// parse decodes an event of the global stream. It returns nil for one that only
// repeats another.
func parse(frame []byte) (*event, error) {
	var f struct {
		Directory string `json:"directory"`
		Payload   struct {
			ID         string          `json:"id"`
			Type       string          `json:"type"`
			Properties json.RawMessage `json:"properties"`
		} `json:"payload"`
	}
	if err := bridge.Lenient(frame, &f); err != nil {
		return nil, err
	}
	if f.Payload.Type == "sync" {
		return nil, nil
	}
	e, err := newEvent(f.Directory, f.Payload.Type, f.Payload.Properties)
	if err == nil {
		e.ID = f.Payload.ID
	}
	return e, err
}

// idTime is the part of an id that says when it was made: the time in ms, and a number of 12 bits within it, of which the lower 48 bits.
const idTime = 12 // hexadecimal digits, behind the prefix

// before reports whether the event was made earlier than that; false when it is not known.
func (e *event) before(then time.Time) bool {
	_, own, ok := strings.Cut(e.ID, "_")
	if !ok || len(own) <= idTime {
		return false
	}
	made, err := strconv.ParseInt(own[:idTime], 16, 64)
	return err == nil && made < then.UnixMilli()<<12&(1<<48-1)
}

func newEvent(directory, kind string, properties []byte) (*event, error) {
	e := &event{}
	if len(properties) > 0 {
		if err := bridge.Lenient(properties, e); err != nil {
			return nil, err
		}
	}
	e.Type, e.Directory = kind, directory
	switch kind {
	case "session.created", "session.updated", "session.deleted":
		e.session = new(info)
		if err := bridge.Lenient(e.Info, e.session); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if e.Session == "" {
			e.Session = e.session.ID
		}
	case "message.updated":
		e.message = new(message)
		if err := bridge.Lenient(e.Info, e.message); err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		if e.Session == "" {
			e.Session = e.message.Session
		}
	case "message.part.updated":
		if e.Part == nil {
			return nil, errors.New("message.part.updated without a part")
		}
		if e.Session == "" {
			e.Session = e.Part.Session
		}
	}
	return e, nil
}

// metadata is a call's metadata, nil while there is none.
func (s *toolState) metadata() json.RawMessage {
	if s == nil {
		return nil
	}
	return s.Metadata
}
