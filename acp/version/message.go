package version

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// message is a message of an agent of version 2, as far as version 1 was shown it.
type message struct {
	own      bool   // it repeats a prompt of the gateway
	revision int    // how often its content was replaced
	written  int    // bytes of the content that was shown, as [write] counts them
	sum      uint64 // their hash
}

const sumStart = 14695981039346656037 // FNV-1a

func write(sum uint64, text string) uint64 {
	for i := range len(text) {
		sum = (sum ^ uint64(text[i])) * 1099511628211
	}
	return sum
}

// blockText is a block as a text, by which content is compared: that of a text is its text.
func blockText(block json.RawMessage) string {
	if rawjson.MemberString(block, "type") == "text" {
		return rawjson.MemberString(block, "text")
	}
	h := fnv.New64a()
	_, _ = h.Write(block)
	return "\x00" + strconv.FormatUint(h.Sum64(), 16)
}

func (t *message) add(block json.RawMessage) {
	if t.written == 0 {
		t.sum = sumStart
	}
	text := blockText(block)
	t.sum = write(t.sum, text)
	t.written += len(text)
}

// idFor returns the id of the message in version 1.
func (t *message) idFor(id string) string {
	if t.revision == 0 {
		return id
	}
	return id + "#" + strconv.Itoa(t.revision)
}

// chunk takes a piece of a message, which is the same in both versions unless its
// content was replaced before.
func (a *Agent) chunk(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	role := roleOf(string(m.UpdateKind()))
	id := rawjson.MemberString(m.Update(), "messageId")
	content, ok := rawjson.Member(m.Update(), "content")
	if id == "" || !ok {
		return append(out, *m)
	}
	t := s.messages.get(role + " " + id)
	if role == "user_message" && s.repeats(t, id, content) {
		return out
	}
	t.add(content)
	if t.revision == 0 {
		return append(out, *m)
	}
	return append(out, one(s.token, chunkOf(role, t.idFor(id), id, content)), m.For(Two, nil))
}

// repeats reports whether a message of the user's is the prompt that the gateway has sent,
// and shows itself.
func (s *spoken) repeats(t *message, id string, block json.RawMessage) bool {
	p := s.prompt
	switch {
	case t.own:
	case p == nil || p.message != "" || p.taken:
		return false
	case !slices.Contains(p.blocks, blockText(block)):
		return false
	default:
		p.message, t.own = id, true
	}
	return true
}

// message takes a message, or all of its content so far.
func (a *Agent) message(s *spoken, m *acp.Message, out []acp.Message) []acp.Message {
	role := roleOf(string(m.UpdateKind()))
	id := rawjson.MemberString(m.Update(), "messageId")
	content, given := rawjson.Member(m.Update(), "content")
	blocks := rawjson.Elements(content)
	t := s.messages.get(role + " " + id)
	if role == "user_message" && len(blocks) > 0 && s.repeats(t, id, blocks[0]) {
		return out
	}
	out = append(out, m.For(Two, nil))
	if !given {
		return out
	}
	news, goesOn := t.news(blocks)
	if !goesOn {
		t.revision++
		t.written, t.sum, news = 0, 0, blocks
	}
	replaces := ""
	if t.revision > 0 {
		replaces = id
	}
	if len(news) == 0 && !goesOn { // that it is empty now is something to show, too
		news = []json.RawMessage{textBlock("")}
	}
	for _, block := range news {
		out = append(out, one(s.token, chunkOf(role, t.idFor(id), replaces, block)))
	}
	t.written, t.sum = 0, 0
	for _, block := range blocks {
		t.add(block)
	}
	return out
}

// news returns what the content has beyond what was shown, and false when it does not
// begin with that.
func (t *message) news(blocks []json.RawMessage) ([]json.RawMessage, bool) {
	sum, n := uint64(sumStart), 0
	for i, block := range blocks {
		if n == t.written {
			return blocks[i:], t.written == 0 || sum == t.sum
		}
		text := blockText(block)
		if left := t.written - n; len(text) > left {
			if text[0] == 0 || write(sum, text[:left]) != t.sum {
				return nil, false
			}
			rest := rawjson.SetMember(block, rawjson.AppendQuoted(nil, text[left:]), "text")
			return append([]json.RawMessage{rest}, blocks[i+1:]...), true
		}
		sum, n = write(sum, text), n+len(text)
	}
	return nil, n == t.written && (n == 0 || sum == t.sum)
}
