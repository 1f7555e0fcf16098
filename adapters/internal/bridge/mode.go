package bridge

// Mode is what a bridge keeps of the mode of a session that its agent forgets. The zero value is none.
type Mode struct {
	Mode string `json:"mode,omitempty"`
	// Under is the permissionMode that the session was open with when it got into the mode.
	Under string `json:"modeUnder,omitempty"`
}

// In is the record of a mode that a session has got into, which is open with a permissionMode.
func In(mode, permissionMode string) Mode { return Mode{mode, wish(permissionMode)} }

// Again is the mode that a session with a permissionMode gets into again, "" for the one that this stands for. Another
// permissionMode than the one under which the session got into its mode was asked for later, and counts. Under readonly there is
// none, nor is there one in a record of an earlier version, which did not note Under: the gateway knows which mode a client has
// chosen, and sets it again.
func (m Mode) Again(permissionMode string) string {
	if permissionMode == "readonly" || wish(permissionMode) != m.Under {
		return ""
	}
	return m.Mode
}

// wish is what a permissionMode asks for.
func wish(permissionMode string) string { return FirstOf(permissionMode, "default") }
