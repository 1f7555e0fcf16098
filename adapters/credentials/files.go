package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxFile bounds what is read of a file; claude's keeps whole histories.
const maxFile = 64 << 20

// file is one that an agent keeps.
type file struct {
	agent, path string // below the home directory
	read        func(content []byte) ([]Credential, error)
	// variable names a folder that the agent uses instead, with the file below it.
	variable, below string
}

var files = []file{
	{"claude", ".claude/.credentials.json", claudeLogin, "CLAUDE_CONFIG_DIR", ".credentials.json"},
	{"claude", ".claude.json", claudeKey, "CLAUDE_CONFIG_DIR", ".claude.json"},
	{"codex", ".codex/auth.json", codexAuth, "CODEX_HOME", "auth.json"},
	{"opencode", ".local/share/opencode/auth.json", providers, "XDG_DATA_HOME", "opencode/auth.json"},
	{"amp", ".local/share/amp/secrets.json", ampSecrets, "XDG_DATA_HOME", "amp/secrets.json"},
	{"amp", ".config/amp/settings.json", ampKey, "XDG_CONFIG_HOME", "amp/settings.json"},
	{"amp", ".amp/config.json", ampKey, "", ""},
	{"pi", ".pi/agent/auth.json", providers, "PI_CODING_AGENT_DIR", "auth.json"},
}

// in returns where the file is: in the folder that its variable names, else below
// the home directory; "" when that is not known either.
func (f *file) in(home string, getenv func(string) string) string {
	if f.variable != "" {
		if dir := getenv(f.variable); filepath.IsAbs(dir) {
			return filepath.Join(dir, filepath.FromSlash(f.below))
		}
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, filepath.FromSlash(f.path))
}

// find reads the file, which need not be there.
func (f *file) find(path string) ([]Credential, error) {
	if path == "" {
		return nil, nil
	}
	content, err := load(path)
	if err != nil || content == nil {
		return nil, err
	}
	found, err := f.read(content)
	for i := range found {
		found[i].Agent, found[i].Source = f.agent, path
	}
	return found, err
}

// load reads a file; nil when there is none.
func load(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, reason(err)
	case !info.Mode().IsRegular(): // a pipe would be waited for
		return nil, errors.New("it is no ordinary file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, reason(err)
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return b, nil
}

// reason is an error without the path, which stands beside it.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// decode reads a JSON object. Its errors hold nothing of the content.
func decode(content []byte, v any) error {
	err := json.Unmarshal(content, v)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON, from byte %d on", syntax.Offset)
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && t.Field == "" {
		return errors.New("it is no JSON object")
	} else if ok {
		return fmt.Errorf("%s is not what it should be", t.Field)
	}
	return errors.New("it cannot be understood")
}

// at is a moment in epoch milliseconds, or seconds where it cannot be those.
func at(epoch float64) *time.Time {
	if epoch <= 0 {
		return nil
	}
	if epoch < 1e11 { // milliseconds have been above that since 1973
		epoch *= 1000
	}
	t := time.UnixMilli(int64(epoch)).UTC()
	return &t
}

// expiry reads the end of a JSON web token, nil when it says none.
func expiry(token string) *time.Time {
	_, rest, _ := strings.Cut(token, ".")
	body, _, ok := strings.Cut(rest, ".")
	if !ok {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(body, "="))
	if err != nil {
		return nil
	}
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return nil
	}
	return at(claims.Exp)
}

func claudeLogin(content []byte) ([]Credential, error) {
	var f struct {
		OAuth *struct {
			Access  string  `json:"accessToken"`
			Refresh string  `json:"refreshToken"`
			Expires float64 `json:"expiresAt"` // in epoch milliseconds
		} `json:"claudeAiOauth"`
	}
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	if f.OAuth == nil || f.OAuth.Access == "" {
		return nil, nil
	}
	return []Credential{{Provider: "anthropic", Kind: OAuth, Value: f.OAuth.Access, ExpiresAt: at(f.OAuth.Expires), Renewable: f.OAuth.Refresh != ""}}, nil
}

func claudeKey(content []byte) ([]Credential, error) {
	var f struct {
		Key string `json:"primaryApiKey"`
	}
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	if f.Key == "" {
		return nil, nil
	}
	return []Credential{{Provider: "anthropic", Kind: APIKey, Value: f.Key}}, nil
}

func codexAuth(content []byte) ([]Credential, error) {
	var f struct {
		Key    string `json:"OPENAI_API_KEY"`
		Tokens *struct {
			Access  string `json:"access_token"`
			Refresh string `json:"refresh_token"`
		} `json:"tokens"`
	}
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	var out []Credential
	if f.Key != "" {
		out = append(out, Credential{Provider: "openai", Kind: APIKey, Value: f.Key})
	}
	if f.Tokens != nil && f.Tokens.Access != "" {
		out = append(out, Credential{Provider: "openai", Kind: OAuth, Value: f.Tokens.Access, ExpiresAt: expiry(f.Tokens.Access), Renewable: f.Tokens.Refresh != ""})
	}
	return out, nil
}

// providers reads the file of OpenCode and Pi: a login for each provider.
func providers(content []byte) ([]Credential, error) {
	var f map[string]json.RawMessage
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	var out []Credential
	for name, raw := range f {
		var login struct {
			Type    string  `json:"type"`
			Key     string  `json:"key"`
			Access  string  `json:"access"`
			Refresh string  `json:"refresh"`
			Expires float64 `json:"expires"` // in epoch milliseconds; 0 is never
		}
		if json.Unmarshal(raw, &login) != nil {
			continue // of a kind that nobody here knows
		}
		switch {
		case login.Type == "oauth" && login.Access != "":
			out = append(out, Credential{Provider: name, Kind: OAuth, Value: login.Access, ExpiresAt: at(login.Expires), Renewable: login.Refresh != ""})
		case login.Type != "oauth" && login.Key != "":
			out = append(out, Credential{Provider: name, Kind: APIKey, Value: login.Key})
		}
	}
	slices.SortFunc(out, func(a, b Credential) int { return strings.Compare(a.Provider, b.Provider) })
	return out, nil
}

// ampSecrets reads the keys that amp keeps by the address of its server.
func ampSecrets(content []byte) ([]Credential, error) {
	var f map[string]any
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	var names []string
	for name, v := range f {
		if s, ok := v.(string); ok && s != "" && strings.HasPrefix(name, "apiKey@") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []Credential
	for _, name := range names {
		s, _ := f[name].(string)
		out = append(out, Credential{Provider: "amp", Kind: APIKey, Value: s})
	}
	return out, nil
}

func ampKey(content []byte) ([]Credential, error) {
	var f map[string]any
	if err := decode(content, &f); err != nil {
		return nil, err
	}
	for _, name := range []string{"amp.apiKey", "apiKey", "api_key", "accessToken", "access_token", "token"} {
		if s, ok := f[name].(string); ok && s != "" {
			return []Credential{{Provider: "amp", Kind: APIKey, Value: s}}, nil
		}
	}
	return nil, nil
}
