package amp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The program's settings that are read or written here.
const (
	setPermissions = "amp.permissions"
	setAllowAll    = "amp.dangerouslyAllowAll"
	setGuarded     = "amp.guardedFiles.allowlist"
	setSkills      = "amp.skills.path"
	setSystem      = "amp.systemPrompt"
	setUpdates     = "amp.updates.mode"
)

type settings map[string]json.RawMessage

// readSettings reads a file of settings. One that is not there is empty.
func readSettings(path string) (settings, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return settings{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read amp's settings: %w", err)
	}
	s := settings{}
	if b = plainJSON(b); len(b) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("read amp's settings %s: %w", path, err)
	}
	return s, nil
}

// userSettings is the file of the user's own settings.
func userSettings(env []string) string {
	if path := bridge.Lookup(env, "AMP_SETTINGS_FILE"); path != "" {
		return path
	}
	dir := bridge.Lookup(env, "XDG_CONFIG_HOME")
	if dir == "" {
		dir = filepath.Join(bridge.Lookup(env, "HOME"), ".config")
	}
	return orComments(filepath.Join(dir, "amp", "settings.json"))
}

// orComments is the path, or the same with the ending jsonc when only that is
// there.
func orComments(path string) string {
	if _, err := os.Stat(path); err != nil {
		if _, err := os.Stat(path + "c"); err == nil {
			return path + "c"
		}
	}
	return path
}

// workspaceSettings is the file of settings that the program finds for a
// workspace, "" for none. It looks in the folders above, too: here in all, there
// in those of a repository.
func workspaceSettings(cwd string) string {
	for dir := filepath.Clean(cwd); ; dir = filepath.Dir(dir) {
		path := orComments(filepath.Join(dir, ".amp", "settings.json"))
		if _, err := os.Stat(path); err == nil {
			return path
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return ""
		}
	}
}

func (s settings) rules() []rule {
	var list []rule
	_ = json.Unmarshal(s[setPermissions], &list) // the program ignores what is no list
	return list
}

// checkWorkspace refuses settings of a workspace that decide in the place of
// clients. They come before all others and cannot be overridden: one would allow
// everything, the other ask on a terminal that is not there, and wait for ever.
func checkWorkspace(cwd, mode string) error {
	path := workspaceSettings(cwd)
	if path == "" || mode == permitBypass {
		return nil
	}
	s, err := readSettings(path)
	if err != nil {
		return err
	}
	refuse := func(setting, why string) error {
		return acp.Errorf(acp.CodeInvalidParams, "%s in %s %s", setting, path, why).
			WithData(map[string]string{"file": path, "setting": setting})
	}
	var all bool
	if json.Unmarshal(s[setAllowAll], &all) == nil && all {
		return refuse(setAllowAll, "would allow everything without asking anybody: remove it, or make the session with permissionMode bypass")
	}
	for _, r := range s.rules() {
		if bridge.Text(r["action"]) == "ask" {
			return refuse(setPermissions, "has a rule that asks on a terminal, and amp would wait for ever: move the rule to your own settings, where it is put to clients, or make the session with permissionMode bypass")
		}
	}
	return nil
}

// write makes the settings that the program gets: the user's, with the session's
// on top.
func (l *launch) write(path string, own settings, delegate string) error {
	s := settings{}
	for k, v := range own {
		s[k] = v
	}
	for k, v := range l.own {
		s[k] = v
	}
	bypass := l.permit == permitBypass
	s[setAllowAll], s[setUpdates] = json.RawMessage(fmt.Sprint(bypass)), quoted("disabled")
	if !bypass {
		rules, err := schema.Encode(rulesOf(l.permit, slices.Concat(l.rules, s.rules()), delegate))
		if err != nil {
			return fmt.Errorf("write amp's settings: %w", err)
		}
		s[setPermissions], s[setGuarded] = rules, json.RawMessage(`["**"]`)
	}
	if l.system != "" {
		text := l.system
		if before := bridge.Text(s[setSystem]); before != "" {
			text = before + "\n\n" + text
		}
		s[setSystem] = quoted(text)
	}
	if len(l.skills) > 0 {
		dir := filepath.Join(filepath.Dir(path), "skills")
		if before := bridge.Text(s[setSkills]); before != "" {
			dir = before + string(os.PathListSeparator) + dir
		}
		s[setSkills] = quoted(dir)
	}
	b, err := schema.Encode(s)
	if err != nil {
		return fmt.Errorf("write amp's settings: %w", err)
	}
	return bridge.WritePrivate(path, b)
}

// plainJSON takes comments, and commas behind which nothing follows, out of JSON.
func plainJSON(b []byte) []byte {
	out := make([]byte, 0, len(b))
	comma := -1 // where in out a comma waits for what follows
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '"':
			end := i + 1
			for end < len(b) && b[end] != '"' {
				if b[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(b))
			out, comma = append(out, b[i:end]...), -1
			i = end
		case c == '/' && i+1 < len(b) && b[i+1] == '/':
			for i < len(b) && b[i] != '\n' {
				i++
			}
		case c == '/' && i+1 < len(b) && b[i+1] == '*':
			for i += 2; i < len(b) && (b[i] != '/' || b[i-1] != '*'); {
				i++
			}
			i++
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		default:
			if (c == '}' || c == ']') && comma >= 0 {
				out = append(out[:comma], out[comma+1:]...)
			}
			comma = -1
			if c == ',' {
				comma = len(out)
			}
			out = append(out, c)
			i++
		}
	}
	return out
}
