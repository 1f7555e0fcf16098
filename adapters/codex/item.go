package codex

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	// showEvery is the least time between two looks at a command's output, in ms.
	showEvery = 100
	// maxSubagent bounds the text that a call shows of a subagent: later text is
	// shown to those only who know subagents.
	maxSubagent = 64 << 10
)

// look is how an item is shown as a tool call.
type look struct {
	title     string
	name      string
	kind      schema.ToolKind
	content   []schema.ToolCallContent
	locations []schema.ToolCallLocation
	input     any
}

func describe(it *item) look {
	l := look{title: it.Type, name: it.Type, kind: schema.ToolKindOther}
	titled := func(s string) {
		if s = bridge.OneLine(s); s != "" {
			l.title = s
		}
	}
	switch it.Type {
	case "commandExecution":
		l.name = "shell"
		l.title = "Command"
		titled(commandOf(it.Command, it.Actions))
		l.kind, l.locations = actionsOf(it.Actions, it.Cwd)
		l.input = map[string]any{"command": commandOf(it.Command, it.Actions), "cwd": it.Cwd}
	case "fileChange":
		l.name = "apply_patch"
		l.title, l.kind = changeTitle(it.Changes)
		l.content, l.locations = changed(it.Changes)
		paths := []any{}
		for _, c := range it.Changes {
			one := map[string]any{"path": c.Path, "kind": c.Kind.Type}
			if c.Kind.Move != "" {
				one["movePath"] = c.Kind.Move
			}
			paths = append(paths, one)
		}
		l.input = map[string]any{"changes": paths}
	case "mcpToolCall":
		l.name = it.Tool
		l.title = it.Server + "." + it.Tool
		if it.ReadOnly {
			l.kind = schema.ToolKindRead
		}
		l.input = rawOrNil(it.Arguments)
	case "dynamicToolCall":
		l.name, l.title = it.Tool, bridge.FirstOf(it.Tool, it.Type)
		l.input = rawOrNil(it.Arguments)
	case "webSearch":
		l.name, l.kind, l.title = "web_search", schema.ToolKindSearch, "Search the web"
		titled(it.Query)
		in := map[string]any{"query": it.Query}
		if a := it.WebAction; a != nil {
			in["action"] = a.Type
			if a.URL != "" {
				in["url"] = a.URL
			}
			if a.Type == "openPage" || a.Type == "findInPage" {
				l.kind = schema.ToolKindFetch
				titled(bridge.FirstOf(a.URL, it.Query))
			}
		}
		l.input = in
	case "imageView":
		l.name, l.kind = "view_image", schema.ToolKindRead
		titled("View " + it.Path)
		l.locations = bridge.At(it.Path, 0)
		l.input = map[string]any{"path": it.Path}
	case "imageGeneration":
		l.title = "Generate an image"
	case "collabAgentToolCall":
		l.name, l.kind, l.title = it.Tool, schema.ToolKindThink, agentTool(it.Tool)
		if it.Prompt != "" {
			l.content = bridge.TextContent(it.Prompt)
			l.input = map[string]any{"prompt": it.Prompt}
		}
	case "sleep":
		l.title = "Wait"
	}
	return l
}

// toolSpawn makes a subagent, toolSend gives one more to do.
const (
	toolSpawn = "spawnAgent"
	toolSend  = "sendInput"
)

// agentTool names what is done with a subagent.
func agentTool(tool string) string {
	switch tool {
	case toolSpawn:
		return "Start a subagent"
	case "wait":
		return "Wait for subagents"
	case toolSend:
		return "Tell a subagent"
	case "closeAgent":
		return "End a subagent"
	case "resumeAgent":
		return "Resume a subagent"
	}
	return bridge.FirstOf(tool, "Subagent")
}

func rawOrNil(raw json.RawMessage) any {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

func encoded(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	b, err := schema.Encode(v)
	if err != nil {
		return nil
	}
	return b
}

// commandOf is a command without the shell around it.
func commandOf(command string, actions []action) string {
	if len(actions) == 1 && actions[0].Command != "" {
		return actions[0].Command
	}
	var parts []string
	for _, a := range actions {
		parts = append(parts, a.Command)
	}
	return bridge.FirstOf(strings.Join(parts, " && "), command)
}

// actionsOf says what a command does, as far as codex understood it.
func actionsOf(actions []action, cwd string) (schema.ToolKind, []schema.ToolCallLocation) {
	kind := schema.ToolKind("")
	var at []schema.ToolCallLocation
	for _, a := range actions {
		one := schema.ToolKindExecute
		switch a.Type {
		case "read":
			one = schema.ToolKindRead
		case "search", "listFiles":
			one = schema.ToolKindSearch
		}
		switch {
		case kind == "":
			kind = one
		case kind != one:
			kind = schema.ToolKindExecute
		}
		if a.Path != "" && one != schema.ToolKindExecute {
			path := a.Path
			if !filepath.IsAbs(path) {
				path = filepath.Join(cwd, path)
			}
			at = append(at, bridge.At(path, 0)...)
		}
	}
	if kind == "" {
		kind = schema.ToolKindExecute
	}
	return kind, at
}

func changeTitle(list []change) (string, schema.ToolKind) {
	removed, moved := 0, 0
	for _, c := range list {
		if c.Kind.Type == "delete" {
			removed++
		}
		if c.Kind.Move != "" {
			moved++
		}
	}
	var names []string
	for _, c := range list {
		switch {
		case c.Kind.Move != "":
			names = append(names, c.Path+" → "+c.Kind.Move)
		default:
			names = append(names, c.Path)
		}
	}
	all := bridge.OneLine(strings.Join(names, ", "))
	switch n := len(list); {
	case n == 0:
		return "Edit files", schema.ToolKindEdit
	case removed == n:
		return "Delete " + all, schema.ToolKindDelete
	case moved == n:
		return "Move " + all, schema.ToolKindMove
	case n == 1 && list[0].Kind.Type == "add":
		return "Write " + all, schema.ToolKindEdit
	}
	return "Edit " + all, schema.ToolKindEdit
}

// own says whose subagent makes a call.
func (t *translator) own(parent string) bridge.Own {
	if parent == "" {
		return bridge.Own{}
	}
	return bridge.Own{Parent: string(t.shownID(parent))}
}

func (t *translator) parentMeta(parent string) map[string]json.RawMessage {
	return t.own(parent).Meta()
}

// announce shows an item as a tool call.
func (t *translator) announce(s *shown, parent string) []schema.SessionUpdate {
	if s.call {
		return nil
	}
	s.call = true
	it := s.item
	l := describe(it)
	status := schema.ToolCallStatusInProgress
	if it.Type == "commandExecution" && it.Source == "agent" {
		status = schema.ToolCallStatusPending // it waits for a permission
	}
	own := t.own(parent)
	if it.Type == "collabAgentToolCall" && (it.Tool == toolSpawn || t.made(s)) {
		own.Subagent = &bridge.Subagent{Cancel: true}
	}
	if it.Type == "commandExecution" {
		own.Terminal, own.Cancel = &bridge.Terminal{Command: commandOf(it.Command, it.Actions), Cwd: it.Cwd}, it.Process != ""
	}
	return []schema.SessionUpdate{{ToolCall: &schema.ToolCall{
		ToolCallID: s.id, Title: l.title, Name: &l.name, Kind: l.kind, Status: status,
		Content: l.content, Locations: l.locations, RawInput: encoded(l.input), Meta: own.Meta(),
	}}}
}

// outputs takes a piece of a command's output.
func (t *translator) outputs(e *event) []schema.SessionUpdate {
	s := t.items[e.ItemID]
	if s == nil || s.over || !s.call || e.Delta == "" {
		return nil
	}
	s.output.add(e.Delta)
	if !s.waits {
		s.waits = true
		t.dirty = append(t.dirty, e.ItemID)
	}
	if e.At != 0 && e.At-s.at < showEvery {
		return nil
	}
	s.at = e.At
	return t.showOutputs()
}

// showOutputs shows the output that came since it was shown last.
func (t *translator) showOutputs() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.dirty {
		s := t.items[id]
		if s == nil || s.over || !s.waits {
			continue
		}
		s.waits = false
		own := t.own(t.children[s.thread])
		own.Terminal = &bridge.Terminal{Output: true}
		out = append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{
			ToolCallID: s.id, Status: schema.ToolCallStatusInProgress, Content: shownOutput(s.output.text()), Meta: own.Meta(),
		}})
	}
	t.dirty = nil
	return out
}

func shownOutput(s string) []schema.ToolCallContent {
	return bridge.TextContent(bridge.Fenced(strings.ReplaceAll(s, "\r\n", "\n"), "console"))
}

// allowed says that a call that was asked about goes on.
func (t *translator) allowed(id string) []schema.SessionUpdate {
	s := t.items[id]
	if s == nil || s.over || !s.call {
		return nil
	}
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{
		ToolCallID: s.id, Status: schema.ToolCallStatusInProgress, Meta: t.parentMeta(t.children[s.thread]),
	}}}
}

// ended takes the end of an item that is a tool call.
func (t *translator) ended(s *shown, parent string) []schema.SessionUpdate {
	out := t.announce(s, parent)
	it := s.item
	u := &schema.ToolCallUpdate{ToolCallID: s.id, Status: schema.ToolCallStatusCompleted, Meta: t.parentMeta(parent)}
	s.over = true
	switch it.Type {
	case "commandExecution":
		output := ""
		if it.Output != nil {
			output = capped(*it.Output)
		}
		raw := map[string]any{"status": it.Status}
		if it.ExitCode != nil {
			raw["exitCode"] = *it.ExitCode
		}
		if it.Duration != nil {
			raw["durationMs"] = *it.Duration
		}
		u.RawOutput = encoded(raw)
		if it.ExitCode == nil || *it.ExitCode != 0 {
			u.Status = schema.ToolCallStatusFailed
		}
		own := t.own(parent)
		own.Terminal = &bridge.Terminal{}
		if it.ExitCode != nil && *it.ExitCode >= 0 { // -1 is of a command that was ended
			own.Terminal.ExitCode = it.ExitCode
		}
		if output != "" || s.output.len() > 0 {
			u.Content, own.Terminal.Output = shownOutput(output), true
		}
		if it.Status == "declined" {
			u.Content, own.Terminal.Output = bridge.TextContent("It was declined."), false
		}
		u.Meta = own.Meta()
	case "fileChange":
		u.Content, u.Locations = changed(it.Changes)
		if it.Status != "completed" {
			u.Status = schema.ToolCallStatusFailed
		}
		u.RawOutput = encoded(map[string]string{"status": it.Status})
	case "mcpToolCall":
		t.mcpEnded(it, u)
	case "dynamicToolCall":
		u.Content = dynamicContent(it.ContentItems)
		u.RawOutput = encoded(rawOrNil(it.ContentItems))
		if it.Success != nil && !*it.Success {
			u.Status = schema.ToolCallStatusFailed
		}
	case "webSearch":
		l := describe(it) // what is looked for is known at the end only
		u.Title, u.Kind, u.RawInput = &l.title, l.kind, encoded(l.input)
	case "collabAgentToolCall":
		t.spawn(s, it, u)
	default:
		if it.Status == "failed" {
			u.Status = schema.ToolCallStatusFailed
		}
	}
	return append(out, schema.SessionUpdate{ToolCallUpdate: u})
}

func (t *translator) mcpEnded(it *item, u *schema.ToolCallUpdate) {
	if it.Status != "completed" {
		u.Status = schema.ToolCallStatusFailed
	}
	if it.Error != nil {
		u.Content = bridge.TextContent(it.Error.Message)
		u.RawOutput = encoded(map[string]any{"error": it.Error.Message})
		return
	}
	if it.Result == nil {
		return
	}
	for _, raw := range rawjson.Elements(it.Result.Content) {
		var b schema.ContentBlock
		if json.Unmarshal(raw, &b) == nil && (b.Text != nil || b.Image != nil || b.Audio != nil || b.ResourceLink != nil || b.Resource != nil) {
			u.Content = append(u.Content, schema.ToolCallContent{Content: &schema.Content{Content: b}})
		}
	}
	u.RawOutput = encoded(rawOrNil(it.Result.Structured))
}

// dynamicContent shows the result of a tool.
func dynamicContent(items json.RawMessage) []schema.ToolCallContent {
	var out []schema.ToolCallContent
	for _, raw := range rawjson.Elements(items) {
		if s := rawjson.MemberString(raw, "text"); s != "" {
			out = append(out, bridge.TextContent(s)...)
		}
	}
	return out
}

// tells takes the begin of a call that gives subagents more to do. It shows what those do that do nothing now. Of others it may yet
// come to show that: codex may have broken them off for it.
func (t *translator) tells(it *item) {
	if it.Tool != toolSend {
		return
	}
	for _, id := range it.Receivers {
		if s := t.items[t.children[id]]; s != nil && !s.over && s.item.ID != it.ID {
			t.told[id] = it.ID
			continue
		}
		delete(t.told, id)
		t.adopt(id, it.ID)
	}
}

// adopt has a call show what a subagent does. At the bound it does not: what more of them say is not shown.
func (t *translator) adopt(id, call string) bool {
	if t.children[id] == "" && len(t.children) >= maxItems {
		return false
	}
	t.children[id] = call
	return true
}

// spawn takes the end of a call that has to do with subagents. The one that shows
// what a subagent does goes on as long as the subagent.
func (t *translator) spawn(s *shown, it *item, u *schema.ToolCallUpdate) {
	if it.Status == "failed" {
		u.Status = schema.ToolCallStatusFailed
		return
	}
	if t.tells(it); it.Tool == toolSpawn {
		for _, id := range it.Receivers {
			if !t.adopt(id, it.ID) {
				return
			}
		}
	}
	if t.made(s) {
		s.over = false
		u.Status = schema.ToolCallStatusInProgress
		if it.Tool == toolSend {
			u.Meta = t.showsSubagent(s)
		}
	}
}

// showsSubagent says of a call that it shows a subagent, which was not known when it was announced.
func (t *translator) showsSubagent(s *shown) map[string]json.RawMessage {
	own := t.own(t.children[s.thread])
	own.Subagent = &bridge.Subagent{Cancel: true}
	return own.Meta()
}

// subagentBegins takes the begin of a subagent's turn. Where the call is over that showed what it did, one may go on
// that told it something since.
func (t *translator) subagentBegins(e *event, parent string) []schema.SessionUpdate {
	if parent == "" || e.Turn == nil {
		return nil
	}
	t.runs[e.Thread] = e.Turn.Root
	s, call := t.items[t.told[e.Thread]], t.items[parent]
	if s == nil || call != nil && !call.over {
		return nil
	}
	delete(t.told, e.Thread)
	t.children[e.Thread] = s.item.ID
	s.over = false
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: s.id, Status: schema.ToolCallStatusInProgress, Meta: t.showsSubagent(s)}}}
}

// subagentSaid takes a text of a subagent, and shows it in its call's content.
func (t *translator) subagentSaid(parent string, m *shown, text string, thought bool) []schema.SessionUpdate {
	s := t.items[parent]
	if s == nil || s.over || thought {
		return nil
	}
	own, said := t.own(t.children[s.thread]), bridge.Said{Message: m.item.ID, Text: text}
	if s.words.Len()+len(text) > maxSubagent {
		return own.Words(s.id, "", nil, said)
	}
	if m.words.Len() == 0 && s.words.Len() > 0 {
		s.words.WriteString("\n\n")
	}
	m.words.WriteString("w")
	s.words.WriteString(text)
	return own.Words(s.id, schema.ToolCallStatusInProgress, t.subagentContent(s), said)
}

func (t *translator) subagentContent(s *shown) []schema.ToolCallContent {
	var out []schema.ToolCallContent
	if s.item.Prompt != "" {
		out = bridge.TextContent(s.item.Prompt)
	}
	if s.words.Len() > 0 {
		out = append(out, bridge.TextContent(s.words.String())...)
	}
	return out
}

// subagentOver takes the end of a subagent's turn.
func (t *translator) subagentOver(e *event, parent string) []schema.SessionUpdate {
	s := t.items[parent]
	if s == nil || s.over {
		return nil
	}
	s.over = true
	u := &schema.ToolCallUpdate{ToolCallID: s.id, Status: schema.ToolCallStatusCompleted, Content: t.subagentContent(s)}
	if e.Turn.Status != "completed" {
		u.Status = schema.ToolCallStatusFailed
		if e.Turn.Error != nil {
			u.Content = append(u.Content, bridge.TextContent(e.Turn.Error.Message)...)
		}
	}
	return []schema.SessionUpdate{{ToolCallUpdate: u}}
}
