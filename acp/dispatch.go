package acp

import (
	"context"
	"encoding/json"
)

// handler decodes params and calls the agent. ok is false when the agent lacks
// the interface.
type handler func(ctx context.Context, a Agent, params []byte) (result any, ok bool, err error)

// handlers are the requests an [Agent] and its further interfaces take.
var handlers = map[string]handler{
	MethodInitialize:             on(Agent.Initialize),
	MethodAuthenticate:           on(Authenticator.Authenticate),
	MethodLogout:                 on(Logouter.Logout),
	MethodSessionNew:             on(Agent.NewSession),
	MethodSessionLoad:            on(SessionLoader.LoadSession),
	MethodSessionResume:          on(Resumer.ResumeSession),
	MethodSessionFork:            on(Forker.ForkSession),
	MethodSessionList:            on(Lister.ListSessions),
	MethodSessionClose:           on(Closer.CloseSession),
	MethodSessionDelete:          on(Deleter.DeleteSession),
	MethodSessionSetMode:         on(ModeSetter.SetSessionMode),
	MethodSessionSetConfigOption: on(ConfigSetter.SetSessionConfigOption),
	MethodSessionPrompt:          on(Agent.Prompt),
}

// on makes a handler of a method of an interface.
func on[I, P, R any](method func(I, context.Context, *P) (*R, error)) handler {
	return func(ctx context.Context, a Agent, params []byte) (any, bool, error) {
		target, ok := a.(I)
		if !ok {
			return nil, false, nil
		}
		p := new(P)
		if err := any(p).(json.Unmarshaler).UnmarshalJSON(params); err != nil {
			return nil, true, Errorf(CodeInvalidParams, "invalid params: %v", err)
		}
		r, err := method(target, ctx, p)
		if r == nil {
			return struct{}{}, true, err
		}
		return r, true, err
	}
}

// call answers a request of the client.
func (e *endpoint) call(ctx context.Context, method string, params json.RawMessage) (any, error) {
	decoded := params
	if decoded == nil || string(decoded) == "null" {
		decoded = json.RawMessage("{}")
	}
	if h, ok := handlers[method]; ok {
		if result, ok, err := h(ctx, e.agent, decoded); ok {
			return result, err
		}
	}
	if x, ok := e.agent.(Extender); ok {
		result, err := x.ExtMethod(ctx, method, params)
		if result == nil {
			result = struct{}{}
		}
		return result, err
	}
	return nil, Errorf(CodeMethodNotFound, "method not found: %s", method)
}
