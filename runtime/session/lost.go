package session

import (
	"strings"

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

// lostWords are how agents say that they have no such conversation, without its id and marks.
var lostWords = func() (out []string) {
	for _, what := range []string{"session", "conversation", "thread", "chat"} {
		for _, words := range []string{
			"% not found", "% was not found", "% is not found", "% id not found", "% could not be found", "% cannot be found",
			"% does not exist", "% doesn't exist", "% no longer exists", "% is unknown", "% expired", "% has expired",
			"no such %", "no % found", "no saved % found", "no % with id", "unknown %", "invalid % id", "invalid % identifier", "could not find %", "cannot find %",
		} {
			out = append(out, strings.ReplaceAll(words, "%", what))
		}
	}
	return out
}()

// marks stand around ids.
var marks = strings.NewReplacer(`"`, " ", "`", " ", "'s ", " ", " '", " ", "' ", " ", ":", " ", "(", " ", ")", " ", "[", " ", "]", " ", ",", " ", "’", "'")

// saysLost reports whether a text says that there is no such conversation. That something else is not found, such as a file of one
// that is there, is another matter.
func saysLost(native, text string) bool {
	text = strings.ToLower(text)
	if native != "" {
		text = strings.ReplaceAll(text, strings.ToLower(native), " ")
	}
	words := " " + strings.Join(strings.Fields(marks.Replace(" "+text+" ")), " ") + " "
	for _, lost := range lostWords {
		if strings.Contains(words, " "+lost) {
			return true
		}
	}
	return false
}
