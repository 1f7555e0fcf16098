package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	// toolText bounds the text that an agent reads in one request.
	toolText = 16 << 20
	// toolTerminals bounds the terminals of a session that were not released;
	// more are refused.
	toolTerminals = 64
)

// HostTools carries out agents' requests about files and terminals, in place of
// a client. It is safe for concurrent use.
type HostTools struct {
	files     *fs.Service
	processes *process.Service

	mu        sync.Mutex
	closed    bool
	terminals map[string]map[string]*toolTerminal // by session and id; at most toolTerminals of a session
	work      map[string]*toolWork                // by session: what goes on and comes to its end by itself
}

// toolWork is the calls of a session, and its terminals that are being ended.
type toolWork struct {
	n    int
	over chan struct{} // closed with the last
}

func (w *toolWork) await(ctx context.Context) {
	select {
	case <-w.over:
	case <-ctx.Done():
	}
}

type toolTerminal struct {
	p     *process.Process
	limit int // of the output that is shown
}

var _ runtime.HostTools = (*HostTools)(nil)

// NewHostTools returns the tools of a file service and of processes.
func NewHostTools(files *fs.Service, processes *process.Service) *HostTools {
	return &HostTools{files: files, processes: processes, terminals: map[string]map[string]*toolTerminal{}, work: map[string]*toolWork{}}
}

// beginLocked notes something that goes on for a session, and returns what is called when it is over.
func (h *HostTools) beginLocked(session string) (over func()) {
	w := h.work[session]
	if w == nil {
		w = &toolWork{over: make(chan struct{})}
		h.work[session] = w
	}
	w.n++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if w.n--; w.n == 0 {
			delete(h.work, session)
			close(w.over)
		}
	}
}

// toolParams are the parameters of all methods.
type toolParams struct {
	Path            string   `json:"path"`
	Content         string   `json:"content"`
	Line            *int     `json:"line"`
	Limit           *int     `json:"limit"`
	Command         string   `json:"command"`
	Args            []string `json:"args"`
	Cwd             string   `json:"cwd"`
	OutputByteLimit *uint64  `json:"outputByteLimit"`
	TerminalID      string   `json:"terminalId"`
	Env             []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
}

// Call implements runtime.HostTools.
func (h *HostTools) Call(ctx context.Context, session, cwd, method string, params json.RawMessage) (any, error) {
	h.mu.Lock()
	if ctx.Err() != nil { // nobody waits for what begins now
		h.mu.Unlock()
		return nil, context.Cause(ctx)
	}
	defer h.beginLocked(session)()
	h.mu.Unlock()
	var p toolParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, problem.Wrap(problem.InvalidRequest, problem.InJSON(err), "the params of %s cannot be read", method)
	}
	result, err := h.call(ctx, session, cwd, method, p)
	if err != nil {
		return nil, processProblem(err)
	}
	return result, nil
}

func (h *HostTools) call(ctx context.Context, session, cwd, method string, p toolParams) (any, error) {
	switch method {
	case acp.MethodFSReadTextFile:
		text, err := h.read(ctx, cwd, p)
		return schema.ReadTextFileResponse{Content: text}, err
	case acp.MethodFSWriteTextFile:
		path, err := h.files.Resolve(p.Path, cwd)
		if err != nil {
			return nil, err
		}
		_, _, err = h.files.Write(path, strings.NewReader(p.Content), fs.WriteOptions{Parents: true})
		return struct{}{}, err
	case acp.MethodTerminalCreate:
		return h.create(ctx, session, cwd, p)
	}
	t, err := h.terminal(session, p.TerminalID, method == acp.MethodTerminalRelease)
	if err != nil {
		return nil, err
	}
	switch method {
	case acp.MethodTerminalOutput:
		return t.output(), nil
	case acp.MethodTerminalWaitForExit:
		select {
		case <-t.p.Done():
			return t.exit(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	case acp.MethodTerminalKill:
		t.p.Stop(0)
		return struct{}{}, nil
	case acp.MethodTerminalRelease:
		t.p.Stop(-1) // what it wrote can be looked at as long as that of other programs
		return struct{}{}, nil
	}
	return nil, problem.New(problem.NotSupported, "there is no method %s", method)
}

// read returns a text file, or some lines of it.
func (h *HostTools) read(ctx context.Context, cwd string, p toolParams) (string, error) {
	first, most := 1, -1
	if p.Line != nil {
		first = max(1, *p.Line)
	}
	if p.Limit != nil {
		most = max(0, *p.Limit)
	}
	path, err := h.files.Resolve(p.Path, cwd)
	if err != nil {
		return "", err
	}
	f, e, err := h.files.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var out strings.Builder
	r := bufio.NewReaderSize(f, 64<<10)
	for line := 1; most != 0; {
		if ctx.Err() != nil { // to a line that is far in the file, or longer than memory, it can be long
			return "", context.Cause(ctx)
		}
		part, err := r.ReadSlice('\n')
		if line >= first {
			if out.Len()+len(part) > toolText {
				return "", problem.New(problem.PayloadTooLarge, "%s has %d bytes, at most %d can be read at one time: give line and limit", path, e.Size, toolText)
			}
			out.Write(part)
		}
		switch {
		case err == nil:
			if line >= first && most > 0 {
				most--
			}
			line++
		case errors.Is(err, io.EOF):
			return strings.ToValidUTF8(out.String(), "\uFFFD"), nil
		case !errors.Is(err, bufio.ErrBufferFull): // a long line comes in parts
			return "", err
		}
	}
	return strings.ToValidUTF8(out.String(), "\uFFFD"), nil
}

// create starts a command. One without arguments that is not the name of a
// program is a line for a shell, which some agents send.
func (h *HostTools) create(ctx context.Context, session, cwd string, p toolParams) (any, error) {
	if h.processes == nil {
		return nil, problem.New(problem.NotSupported, "this server runs no processes")
	}
	if p.Cwd == "" {
		p.Cwd = cwd
	}
	dir, err := h.files.Resolve(p.Cwd, cwd)
	if err != nil {
		return nil, err
	}
	if err := startsIn(h.files, dir); err != nil {
		return nil, err
	}
	spec := process.Spec{Command: p.Command, Args: p.Args, Dir: dir, Env: map[string]string{}, Hidden: true}
	if len(p.Args) == 0 && strings.ContainsAny(p.Command, " \t\n|&;<>()$`\"'*?") && !filepath.IsAbs(p.Command) {
		spec.Command, spec.Args = "sh", []string{"-c", p.Command}
	}
	for _, v := range p.Env {
		spec.Env[v.Name] = v.Value
	}
	h.mu.Lock()
	err = h.mayCreateLocked(ctx, session)
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	started, err := h.processes.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	_, _ = started.Write(ctx, nil, true) // nobody could type anything
	t := &toolTerminal{p: started, limit: int(h.processes.Limits().LogBytes)}
	if p.OutputByteLimit != nil {
		t.limit = int(min(*p.OutputByteLimit, uint64(t.limit)))
	}
	h.mu.Lock()
	if err = h.mayCreateLocked(ctx, session); err == nil {
		if h.terminals[session] == nil {
			h.terminals[session] = map[string]*toolTerminal{}
		}
		h.terminals[session][started.ID()] = t
	}
	h.mu.Unlock()
	if err != nil { // nobody will know of it
		h.processes.Delete(started)
		return nil, err
	}
	return schema.CreateTerminalResponse{TerminalID: schema.TerminalID(started.ID())}, nil
}

// mayCreateLocked says why a session may have no further terminal: its end, the bound, or the gateway's end.
func (h *HostTools) mayCreateLocked(ctx context.Context, session string) error {
	switch n := len(h.terminals[session]); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case h.closed:
		return errStopping()
	case n >= toolTerminals:
		return problem.New(problem.TooManyRequests, "the session has %d terminals, which is the most: release some", n)
	}
	return nil
}

// terminal returns a session's terminal, and forgets it if wanted.
func (h *HostTools) terminal(session, id string, forget bool) (*toolTerminal, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.terminals[session][id]
	if t == nil {
		return nil, problem.New(problem.NotFound, "the session has no terminal %q; it may have been released", id)
	}
	if forget {
		delete(h.terminals[session], id)
		if len(h.terminals[session]) == 0 {
			delete(h.terminals, session)
		}
	}
	return t, nil
}

// output is the end of what the command wrote, cut before a character.
func (t *toolTerminal) output() schema.TerminalOutputResponse {
	ended := false
	select {
	case <-t.p.Done(): // before the output is read: that is all of it then
		ended = true
	default:
	}
	part := t.p.Output(0, math.MaxInt) // as much as the log keeps
	truncated := part.Missed > 0
	var text []byte
	for _, c := range part.Chunks {
		text = append(text, c.Data...)
	}
	if len(text) > t.limit {
		text, truncated = text[len(text)-t.limit:], true
		for i := range min(utf8.UTFMax, len(text)) {
			if utf8.RuneStart(text[i]) {
				text = text[i:]
				break
			}
		}
	}
	r := schema.TerminalOutputResponse{Output: strings.ToValidUTF8(string(text), "\uFFFD"), Truncated: truncated}
	if ended {
		exit := t.exit()
		r.ExitStatus = &schema.TerminalExitStatus{ExitCode: exit.ExitCode, Signal: exit.Signal}
	}
	return r
}

func (t *toolTerminal) exit() schema.WaitForTerminalExitResponse {
	i := t.p.Info()
	var r schema.WaitForTerminalExitResponse
	if i.ExitCode != nil {
		r.ExitCode = new(uint32(*i.ExitCode))
	}
	if i.Signal != "" {
		r.Signal = &i.Signal
	}
	return r
}

// End implements runtime.HostTools.
func (h *HostTools) End(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.terminals[session] {
		if !h.closed {
			over := h.beginLocked(session)
			go func() {
				defer over()
				h.processes.Delete(t.p)
			}()
		}
	}
	delete(h.terminals, session)
}

// Wait implements runtime.HostTools.
func (h *HostTools) Wait(ctx context.Context, session string) {
	h.mu.Lock()
	w := h.work[session]
	h.mu.Unlock()
	if w != nil {
		w.await(ctx)
	}
}

// Close waits, while ctx lasts, for calls and for terminals that are being ended. The others end with the
// processes.
func (h *HostTools) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	work := slices.Collect(maps.Values(h.work))
	h.mu.Unlock()
	for _, w := range work {
		w.await(ctx)
	}
}
