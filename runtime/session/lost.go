package session

import (
	"slices"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// isLost reports whether an agent that does not open the conversation native does not have it, or cannot open any: then it may begin
// anew. Else it may open it later. Bridges say so by a code alone. Agents that speak ACP themselves have other codes, too, and words.
func isLost(kind adapters.Kind, native string, refused *acp.Error) bool {
	if refused.Code == acp.CodeResourceNotFound {
		return true
	}
	if kind == adapters.Bridge {
		return false
	}
	return refused.Code == acp.CodeMethodNotFound || saysLost(native, refused.Message) || saysLost(native, rawjson.MemberString(refused.Data, "details"))
}

// lostWords are how agents say that they have no such conversation; # is its id.
var lostWords = sync.OnceValue(func() (out []string) {
	for _, what := range []string{"session", "conversation", "thread", "chat"} {
		for _, words := range []string{
			"% not found", "% was not found", "% is not found", "% id not found", "% could not be found", "% cannot be found",
			"% does not exist", "% doesn't exist", "% no longer exists", "% is unknown",
			"no such %", "no % found", "no saved % found", "no % with id", "unknown %", "invalid % id", "invalid % identifier", "could not find %", "cannot find %",
		} {
			out = append(out, strings.ReplaceAll(words, "%", what), strings.ReplaceAll(words, "%", what+" #"))
		}
	}
	return out
})

// otherWords stand in texts about something else that is not found, or not there: for an agent that has the conversation, too.
var otherWords = []string{"login", "log in", "sign in", "auth", "token", "credential", "mcp", "server", "director", "folder", "file", "model", "permission", "disk", "space"}

// marks stand around ids and words.
var marks = strings.NewReplacer(`"`, " ", "`", " ", "'s ", " ", " '", " ", "' ", " ", ":", " ", ". ", " ", "(", " ", ")", " ", "[", " ", "]", " ", ",", " ", "’", "'")

// saysLost reports whether a sentence of a text says that there is no such conversation, and speaks of nothing else.
func saysLost(native, text string) bool {
	text = strings.ToLower(text)
	if native != "" {
		text = strings.ReplaceAll(text, strings.ToLower(native), " # ")
	}
	for sentence := range strings.SplitSeq(strings.ReplaceAll(text, ". ", "\n"), "\n") {
		if slices.ContainsFunc(otherWords, func(other string) bool { return strings.Contains(sentence, other) }) {
			continue
		}
		words := " " + strings.Join(strings.Fields(marks.Replace(" "+sentence+" ")), " ") + " "
		if slices.ContainsFunc(lostWords(), func(lost string) bool { return strings.Contains(words, " "+lost+" ") }) {
			return true
		}
	}
	return false
}
