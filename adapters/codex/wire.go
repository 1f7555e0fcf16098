package codex

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// event holds the members of the params of all notifications; what one does not
// have is zero. Unknown notifications are harmless.
type event struct {
	Method string `json:"-"`
	At     int64  `json:"-"` // Unix time in ms, 0 when unknown

	Thread string    `json:"threadId"`
	TurnID string    `json:"turnId"`
	ItemID string    `json:"itemId"`
	Turn   *turnInfo `json:"turn"`
	Item   *item     `json:"item"`
	Delta  string    `json:"delta"`
	Index  *int      `json:"summaryIndex"`

	Plan   []planStep      `json:"plan"`
	Usage  *tokenUsage     `json:"tokenUsage"`
	Error  json.RawMessage `json:"error"` // an object, or a text
	Retry  bool            `json:"willRetry"`
	Reason string          `json:"failureReason"` // of an MCP server

	Message    string          `json:"message"` // warning
	Summary    string          `json:"summary"` // configWarning, deprecationNotice
	Details    string          `json:"details"`
	Name       string          `json:"name"`
	ThreadName string          `json:"threadName"`
	Status     json.RawMessage `json:"status"`
	From       string          `json:"fromModel"`
	To         string          `json:"toModel"`
	Settings   *threadSettings `json:"threadSettings"`
	RequestID  json.RawMessage `json:"requestId"`
	Success    bool            `json:"success"` // account/login/completed
	LoginID    string          `json:"loginId"`
}

type (
	turnInfo struct {
		ID     string     `json:"id"`
		Root   string     `json:"rootTurnId"`
		Status string     `json:"status"`
		Error  *turnError `json:"error"`
		Items  []item     `json:"items"`
	}
	turnError struct {
		Message string          `json:"message"`
		Info    json.RawMessage `json:"codexErrorInfo"`
		Details string          `json:"additionalDetails"`
	}
	planStep struct {
		Step   string `json:"step"`
		Status string `json:"status"`
	}
	tokenUsage struct {
		Total  tokens  `json:"total"`
		Last   tokens  `json:"last"`
		Window *uint64 `json:"modelContextWindow"`
	}
	tokens struct {
		Total     uint64 `json:"totalTokens"`
		Input     uint64 `json:"inputTokens"` // with those read from the cache
		Cached    uint64 `json:"cachedInputTokens"`
		Written   uint64 `json:"cacheWriteInputTokens"`
		Output    uint64 `json:"outputTokens"`
		Reasoning uint64 `json:"reasoningOutputTokens"`
	}
	// item is a piece of a turn, with the members of all types.
	item struct {
		Type string `json:"type"`
		ID   string `json:"id"`

		Text      string          `json:"text"`
		Delivery  string          `json:"delivery"`
		Questions json.RawMessage `json:"questions"`
		Content   json.RawMessage `json:"content"` // userMessage: inputs, reasoning: texts
		Summary   []string        `json:"summary"`

		Command  string   `json:"command"`
		Cwd      string   `json:"cwd"`
		Process  string   `json:"processId"`
		Source   string   `json:"source"`
		Status   string   `json:"status"`
		Actions  []action `json:"commandActions"`
		Output   *string  `json:"aggregatedOutput"`
		ExitCode *int     `json:"exitCode"`
		Duration *int64   `json:"durationMs"`

		Changes []change `json:"changes"`

		Server    string          `json:"server"`
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		ReadOnly  bool            `json:"readOnlyHint"`
		Result    *struct {
			Content    json.RawMessage `json:"content"`
			Structured json.RawMessage `json:"structuredContent"`
		} `json:"result"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
		ContentItems json.RawMessage `json:"contentItems"`
		Success      *bool           `json:"success"`

		Query     string `json:"query"`
		WebAction *struct {
			Type    string `json:"type"`
			URL     string `json:"url"`
			Pattern string `json:"pattern"`
		} `json:"action"`
		Path      string   `json:"path"`
		Prompt    string   `json:"prompt"`
		Receivers []string `json:"receiverThreadIds"`
		Review    string   `json:"review"`
	}
	action struct {
		Type    string `json:"type"`
		Command string `json:"command"`
		Path    string `json:"path"`
		Query   string `json:"query"`
	}
	change struct {
		Path string `json:"path"`
		Kind struct {
			Type string `json:"type"`
			Move string `json:"move_path"`
		} `json:"kind"`
		Diff string `json:"diff"`
	}
	// input is a piece of a prompt.
	input struct {
		Type string `json:"type"`
		Text string `json:"text"`
		URL  string `json:"url"`
		Path string `json:"path"`
		Name string `json:"name"`
	}
	threadSettings struct {
		Approval      json.RawMessage `json:"approvalPolicy"`
		Sandbox       *sandboxPolicy  `json:"sandboxPolicy"`
		Model         string          `json:"model"`
		Effort        string          `json:"effort"`
		Collaboration *struct {
			Mode string `json:"mode"`
		} `json:"collaborationMode"`
	}
	sandboxPolicy struct {
		Type     string   `json:"type"`
		Writable []string `json:"writableRoots,omitzero"`
		Network  *bool    `json:"networkAccess,omitempty"`
		NoTmpVar *bool    `json:"excludeTmpdirEnvVar,omitempty"`
		NoTmp    *bool    `json:"excludeSlashTmp,omitempty"`
	}
	thread struct {
		ID      string  `json:"id"`
		Cwd     string  `json:"cwd"`
		Name    string  `json:"name"`
		Preview string  `json:"preview"`
		Updated float64 `json:"updatedAt"` // Unix time in s
	}
	// opened is the result of thread/start, resume and fork.
	opened struct {
		Thread   thread          `json:"thread"`
		Model    string          `json:"model"`
		Effort   string          `json:"reasoningEffort"`
		Approval json.RawMessage `json:"approvalPolicy"`
		Sandbox  *sandboxPolicy  `json:"sandbox"`
	}
)

// question is what Codex asks of its client, with the members of all kinds.
type question struct {
	Method string `json:"-"`

	Thread string `json:"threadId"`
	TurnID string `json:"turnId"`
	ItemID string `json:"itemId"`
	Reason string `json:"reason"`

	Command   string          `json:"command"`
	Cwd       string          `json:"cwd"`
	Actions   []action        `json:"commandActions"`
	Amendment []string        `json:"proposedExecpolicyAmendment"`
	Network   json.RawMessage `json:"networkApprovalContext"`
	GrantRoot string          `json:"grantRoot"`

	Server        string          `json:"serverName"`
	Mode          string          `json:"mode"`
	Message       string          `json:"message"`
	Schema        json.RawMessage `json:"requestedSchema"`
	URL           string          `json:"url"`
	ElicitationID string          `json:"elicitationId"`
	Meta          *struct {
		Approval string          `json:"codex_approval_kind"`
		Tool     string          `json:"tool_name"`
		Params   json.RawMessage `json:"tool_params"`
		Persist  []string        `json:"persist"`
	} `json:"_meta"`

	Questions []struct {
		ID       string `json:"id"`
		Header   string `json:"header"`
		Question string `json:"question"`
		Other    bool   `json:"isOther"` // own words are an answer, too
		Options  []struct {
			Label       string `json:"label"`
			Description string `json:"description"`
		} `json:"options"`
	} `json:"questions"`
	Permissions json.RawMessage `json:"permissions"`
}

// parse decodes the params of a notification.
func parse(method string, params []byte) (*event, error) {
	e := &event{Method: method}
	if len(params) == 0 {
		return e, nil
	}
	return e, bridge.Lenient(params, e)
}

// failure decodes the error of an error notification.
func (e *event) failure() *turnError {
	f := new(turnError)
	if len(e.Error) == 0 || bridge.Lenient(e.Error, f) != nil {
		return nil
	}
	return f
}

// kind returns the error's kind and the HTTP status that came with it.
func (f *turnError) kind() (string, int) {
	if s := bridge.Text(f.Info); s != "" {
		return s, 0
	}
	var m map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	_ = bridge.Lenient(f.Info, &m) // an unknown kind has no name
	for name, about := range m {
		return name, about.Status
	}
	return "", 0
}
