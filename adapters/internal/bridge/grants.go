package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Grant is what a client has allowed for more than one call, as a bridge's record has it.
type Grant struct {
	Key     string          `json:"key"`
	Title   string          `json:"title"`
	Kind    schema.ToolKind `json:"kind,omitempty"`
	GivenAt time.Time       `json:"givenAt,omitzero"`
	// Process says that it counts as long as the agent's process has the session open.
	Process bool `json:"process,omitempty"`
	// File is where the agent has written it; "" for what counts in the session only.
	File string `json:"file,omitempty"`
}

// Grants are those of a session, the oldest first. Its zero value is none.
type Grants []Grant

// maxGrants bounds them: of more the oldest is asked about again.
const maxGrants = 512

// maxCommand bounds a command that is a part of a key, in bytes.
const maxCommand = 4 << 10

// CommandKey is a command as a part of a key: of a long one there is only a hash.
func CommandKey(command string) string {
	if len(command) <= maxCommand {
		return command
	}
	sum := sha256.Sum256([]byte(command))
	return "sha256 " + hex.EncodeToString(sum[:])
}

// Has reports whether what key names is allowed.
func (g Grants) Has(key string) bool {
	return slices.ContainsFunc(g, func(one Grant) bool { return one.Key == key })
}

// Add adds a grant, unless it is there: then that stays the one that was given first. One that counts somewhere else takes its
// place: the agent would not have asked if that did still count.
func (g *Grants) Add(one Grant) {
	same := func(had Grant) bool { return had.Key == one.Key && had.Process == one.Process && had.File == one.File }
	if one.Key == "" || slices.ContainsFunc(*g, same) {
		return
	}
	all := append(slices.DeleteFunc(slices.Clone(*g), func(had Grant) bool { return had.Key == one.Key }), one)
	*g = all[max(0, len(all)-maxGrants):]
}

// Asked takes out what an agent has written to a file and asks about all the same: somebody has taken it out there.
func (g *Grants) Asked(key string) {
	*g = slices.DeleteFunc(slices.Clone(*g), func(one Grant) bool { return one.Key == key && one.File != "" })
}

// Given is a grant of now.
func Given(key, title string, kind schema.ToolKind) Grant {
	return Grant{Key: key, Title: title, Kind: kind, GivenAt: time.Now().UTC().Truncate(time.Millisecond)}
}

// id names a grant within its session.
func (one *Grant) id() string {
	sum := sha256.Sum256([]byte(one.Key))
	return hex.EncodeToString(sum[:8])
}

// List implements [adapters.Granter] for a bridge's record.
func (g Grants) List() []adapters.Grant {
	out := make([]adapters.Grant, len(g))
	for i, one := range g {
		out[i] = adapters.Grant{
			ID: one.id(), Key: strings.ReplaceAll(one.Key, "\x00", " "), Title: one.Title, Kind: string(one.Kind), GivenAt: one.GivenAt, Where: adapters.GrantInSession,
		}
		switch {
		case one.File != "":
			out[i].Where, out[i].File = adapters.GrantInFile, one.File
			out[i].Reason = "the agent has written it to " + one.File + ", which is for all sessions: take it out there"
		case one.Process:
			out[i].Where = adapters.GrantInProcess
		}
	}
	return out
}

// Forget takes grants out that are named by their ids, but those in files.
func (g *Grants) Forget(ids []string) {
	*g = slices.DeleteFunc(slices.Clone(*g), func(one Grant) bool { return one.File == "" && slices.Contains(ids, one.id()) })
}

// Reopened takes out what has ended with the process that had the session open.
func (g *Grants) Reopened() {
	*g = slices.DeleteFunc(slices.Clone(*g), func(one Grant) bool { return one.Process })
}
