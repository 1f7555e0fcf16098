package credentials

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func nothing(string) string { return "" }

// home makes a home directory with files.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// jwt is a token that ends at a moment.
func jwt(end time.Time) string {
	return "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, end.Unix())) + ".sig"
}

var (
	past   = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	future = time.Date(2090, 1, 2, 3, 4, 5, 0, time.UTC)
)

func TestFind_FilesOfAgents(t *testing.T) {
	token := jwt(future)
	dir := home(t, map[string]string{
		".claude/.credentials.json":       fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat-claude","refreshToken":"r","expiresAt":%d,"scopes":["x"]}}`, past.UnixMilli()),
		".claude.json":                    `{"primaryApiKey":"sk-ant-api-claude","projects":{}}`,
		".codex/auth.json":                `{"OPENAI_API_KEY":"sk-codex","tokens":{"access_token":"` + token + `","refresh_token":"","id_token":"x"}}`,
		".local/share/opencode/auth.json": fmt.Sprintf(`{"openrouter":{"type":"api","key":"sk-or"},"anthropic":{"type":"oauth","access":"oat","refresh":"ort","expires":%d},"odd":{"type":"wellknown"},"x":7}`, future.UnixMilli()),
		".local/share/amp/secrets.json":   `{"apiKey@https://ampcode.com/":"sgamp_1","other":"no"}`,
		".config/amp/settings.json":       `{"amp.apiKey":"sgamp_2","amp.url":"x"}`,
		".amp/config.json":                `{"apiKey":"sgamp_3"}`,
		".pi/agent/auth.json":             `{"google":{"type":"api_key","key":"AIza"}}`,
	})
	got, problems := Find(Options{Home: dir, Getenv: nothing})
	if len(problems) > 0 {
		t.Errorf("%+v", problems)
	}
	want := []Credential{
		{Provider: "anthropic", Agent: "claude", Kind: OAuth, Source: ".claude/.credentials.json", ExpiresAt: &past, Renewable: true, Value: "sk-ant-oat-claude"},
		{Provider: "anthropic", Agent: "claude", Kind: APIKey, Source: ".claude.json", Value: "sk-ant-api-claude"},
		{Provider: "openai", Agent: "codex", Kind: APIKey, Source: ".codex/auth.json", Value: "sk-codex"},
		{Provider: "openai", Agent: "codex", Kind: OAuth, Source: ".codex/auth.json", ExpiresAt: &future, Value: token},
		{Provider: "anthropic", Agent: "opencode", Kind: OAuth, Source: ".local/share/opencode/auth.json", ExpiresAt: &future, Renewable: true, Value: "oat"},
		{Provider: "openrouter", Agent: "opencode", Kind: APIKey, Source: ".local/share/opencode/auth.json", Value: "sk-or"},
		{Provider: "amp", Agent: "amp", Kind: APIKey, Source: ".local/share/amp/secrets.json", Value: "sgamp_1"},
		{Provider: "amp", Agent: "amp", Kind: APIKey, Source: ".config/amp/settings.json", Value: "sgamp_2"},
		{Provider: "amp", Agent: "amp", Kind: APIKey, Source: ".amp/config.json", Value: "sgamp_3"},
		{Provider: "google", Agent: "pi", Kind: APIKey, Source: ".pi/agent/auth.json", Value: "AIza"},
	}
	for i := range want {
		want[i].Source = filepath.Join(dir, want[i].Source)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Agents: []string{"codex", "pi"}}, "sk-codex " + token + " AIza"},
		{Options{NoOAuth: true, Agents: []string{"claude", "codex"}}, "sk-ant-api-claude sk-codex"},
		{Options{Providers: []string{"anthropic"}}, "sk-ant-oat-claude sk-ant-api-claude oat"},
		{Options{Agents: []string{}}, ""},
	} {
		tt.o.Home, tt.o.Getenv = dir, nothing
		found, _ := Find(tt.o)
		var values []string
		for _, c := range found {
			values = append(values, c.Value)
		}
		if s := strings.Join(values, " "); s != tt.want {
			t.Errorf("%+v: %s, want %s", tt.o, s, tt.want)
		}
	}
}

// Agents keep their files elsewhere when variables say so; another home has no
// variables.
func TestFind_FoldersOfVariables(t *testing.T) {
	dir := home(t, map[string]string{
		"c/.credentials.json": `{"claudeAiOauth":{"accessToken":"claude-login","expiresAt":4102444800000}}`, "c/.claude.json": `{"primaryApiKey":"claude-key"}`,
		"x/auth.json": `{"OPENAI_API_KEY":"codex-key"}`, "data/opencode/auth.json": `{"openrouter":{"type":"api","key":"opencode-key"}}`,
		"data/amp/secrets.json": `{"apiKey@https://ampcode.com/":"amp-key"}`, "home/.codex/auth.json": `{"OPENAI_API_KEY":"not this"}`,
		"p/auth.json": `{"google":{"type":"api_key","key":"pi-key"}}`, "home/.pi/agent/auth.json": `{"google":{"type":"api_key","key":"not this"}}`,
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, value := range map[string]string{
		"HOME": at("home"), "CLAUDE_CONFIG_DIR": at("c"), "CODEX_HOME": at("x"), "XDG_DATA_HOME": at("data"), "XDG_CONFIG_HOME": "not/absolute", "PI_CODING_AGENT_DIR": at("p"),
		"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
	found, problems := Find(Options{Getenv: func(name string) string {
		if strings.HasSuffix(name, "_HOME") || strings.HasSuffix(name, "_DIR") {
			return os.Getenv(name)
		}
		return ""
	}})
	var got []string
	for _, c := range found {
		got = append(got, c.Value)
	}
	if diff := cmp.Diff([]string{"claude-login", "claude-key", "codex-key", "opencode-key", "amp-key", "pi-key"}, got); diff != "" || len(problems) > 0 {
		t.Errorf("(-want +got):\n%s%v", diff, problems)
	}
	if !Available("codex", "") || Available("codex", at("nowhere")) {
		t.Error("Available does not mind CODEX_HOME, or minds it for another home")
	}
	if found, _ := Find(Options{Home: at("home"), Agents: []string{"codex"}, Getenv: os.Getenv}); len(found) != 1 || found[0].Value != "not this" {
		t.Errorf("another home: %+v", found)
	}
}

func TestFind_TheEnvironmentComesFirst(t *testing.T) {
	dir := home(t, map[string]string{".claude.json": `{"primaryApiKey":"from file"}`})
	env := map[string]string{"ANTHROPIC_API_KEY": " from environment\n", "GROQ_API_KEY": "g", "PATH": "/bin", "OPENAI_API_KEY": ""}
	found, _ := Find(Options{Home: dir, Getenv: func(name string) string { return env[name] }})
	vars, left := Environment(found, time.Now())
	if len(found) != 3 || found[0].Value != "from environment" || found[0].Source != "ANTHROPIC_API_KEY" || len(left) != 0 {
		t.Errorf("%+v, left %+v", found, left)
	}
	if len(vars) != 2 || vars[0].Name != "ANTHROPIC_API_KEY" || vars[0].Value != "from environment" || vars[1].Name != "GROQ_API_KEY" {
		t.Errorf("%+v", vars)
	}
}

func TestEnvironment(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	found := []Credential{
		{Provider: "anthropic", Agent: "claude", Kind: OAuth, Value: "old", ExpiresAt: &past, Renewable: true},
		{Provider: "anthropic", Agent: "opencode", Kind: OAuth, Value: "new", ExpiresAt: &future},
		{Provider: "openai", Agent: "codex", Kind: OAuth, Value: "chatgpt", ExpiresAt: &future},
		{Provider: "my-cloud.1", Agent: "opencode", Kind: APIKey, Value: "k"},
		{Provider: "x;rm -r /", Agent: "opencode", Kind: APIKey, Value: "k"},
	}
	vars, left := Environment(found, now)
	var got []string
	for _, v := range vars {
		got = append(got, v.Name+"="+v.Value)
	}
	if s := strings.Join(got, " "); s != "CLAUDE_CODE_OAUTH_TOKEN=new MY_CLOUD_1_API_KEY=k" || len(left) != 3 {
		t.Errorf("%s, left %+v", s, left)
	}
}

func TestFind_BadFilesAreProblemsWithoutSecrets(t *testing.T) {
	dir := home(t, map[string]string{
		".claude/.credentials.json":       `{"claudeAiOauth":{"accessToken":"s3cret`,
		".codex/auth.json":                `{"OPENAI_API_KEY":["s3cret"]}`,
		".local/share/opencode/auth.json": `["s3cret"]`,
		".claude.json":                    `{"primaryApiKey":"fine"}`,
		".pi/agent/auth.json":             ``,
	})
	if err := os.MkdirAll(filepath.Join(dir, ".amp/config.json"), 0o700); err != nil { // a folder
		t.Fatal(err)
	}
	found, problems := Find(Options{Home: dir, Getenv: nothing})
	if len(found) != 1 || found[0].Value != "fine" {
		t.Errorf("%+v", found)
	}
	if len(problems) != 5 {
		t.Errorf("%+v", problems)
	}
	for _, p := range problems {
		if p.Reason == "" || p.Agent == "" || strings.Contains(fmt.Sprint(p), "s3cret") {
			t.Errorf("%+v", p)
		}
	}
}

func TestAvailable(t *testing.T) {
	login := func(end time.Time, refresh string) string {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"a","refreshToken":%q,"expiresAt":%d}}`, refresh, end.UnixMilli())
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"nothing":             {nil, false},
		"valid":               {map[string]string{".claude/.credentials.json": login(future, "")}, true},
		"expired":             {map[string]string{".claude/.credentials.json": login(past, "")}, false},
		"renewable":           {map[string]string{".claude/.credentials.json": login(past, "r")}, true},
		"expired and a key":   {map[string]string{".claude/.credentials.json": login(past, ""), ".claude.json": `{"primaryApiKey":"k"}`}, true},
		"settings but no key": {map[string]string{".claude.json": `{"theme":"dark"}`}, false},
		"another agent's":     {map[string]string{".codex/auth.json": `{"OPENAI_API_KEY":"k"}`}, false},
	} {
		if got := Available("claude", home(t, tt.files)); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestRedacted(t *testing.T) {
	for value, want := range map[string]string{
		"short": "****", "0123456789012345678": "****", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz": "sk-ant-…wxyz", "01234567890123456789": "01234…6789",
	} {
		if got := (&Credential{Value: value}).Redacted(); got != want {
			t.Errorf("%s is shown as %s, want %s", value, got, want)
		}
	}
}

// Each agent takes what it was seen to take.
func TestChoices(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	past := at.Add(-time.Hour)
	env := func(name, provider string, kind Kind) Credential {
		return Credential{Provider: provider, Kind: kind, Source: name}
	}
	key, token, login := env("ANTHROPIC_API_KEY", "anthropic", APIKey), env("ANTHROPIC_AUTH_TOKEN", "anthropic", OAuth), env("CLAUDE_CODE_OAUTH_TOKEN", "anthropic", OAuth)
	in := func(agent, provider, file string) Credential {
		return Credential{Provider: provider, Agent: agent, Kind: OAuth, Source: file}
	}
	expired := in("claude", "anthropic", "old")
	expired.ExpiresAt = &past
	for _, tt := range []struct {
		name  string
		found []Credential
		want  []Choice
	}{
		{"one each", []Credential{key, in("codex", "openai", "auth.json")}, nil},
		{"all of Claude Code's", []Credential{key, login, token, in("claude", "anthropic", "login"), in("claude", "anthropic", ".claude.json")}, []Choice{
			{"claude", "anthropic", "ANTHROPIC_AUTH_TOKEN", []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "login", ".claude.json"}},
		}},
		{"a key and a login", []Credential{key, in("claude", "anthropic", "login")}, []Choice{{"claude", "anthropic", "ANTHROPIC_API_KEY", []string{"login"}}}},
		{"a login that has ended", []Credential{key, expired}, nil},
		{"a key and a login of Codex", []Credential{env("OPENAI_API_KEY", "openai", APIKey), in("codex", "openai", "auth.json")}, []Choice{{"codex", "openai", "auth.json", []string{"OPENAI_API_KEY"}}}},
		{"two that one file has", []Credential{in("codex", "openai", "auth.json"), in("codex", "openai", "auth.json")}, nil},
		{"by provider", []Credential{key, env("GEMINI_API_KEY", "google", APIKey), in("opencode", "anthropic", "o"), in("pi", "google", "p")}, []Choice{
			{"opencode", "anthropic", "o", []string{"ANTHROPIC_API_KEY"}}, {"pi", "google", "p", []string{"GEMINI_API_KEY"}},
		}},
		{"Amp", []Credential{env("AMP_API_KEY", "amp", APIKey), in("amp", "amp", "secrets.json")}, []Choice{{"amp", "amp", "AMP_API_KEY", []string{"secrets.json"}}}},
		{"two variables of which no order is known", []Credential{env("GEMINI_API_KEY", "google", APIKey), env("GOOGLE_API_KEY", "google", APIKey)}, nil},
	} {
		if diff := cmp.Diff(tt.want, Choices(tt.found, at)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	for _, agent := range Agents() {
		if _, ok := habits[agent]; !ok {
			t.Errorf("what %s takes is not known", agent)
		}
	}
}
