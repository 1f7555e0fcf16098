package scriptedmodel

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestAmp_Server asks what Amp asks besides the model.
func TestAmp_Server(t *testing.T) {
	m := Start(t)
	post := func(path, key, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			req.Header.Set("Authorization", "Bearer "+key)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for key, want := range map[string]string{
		"sgamp_any": "@example.com", AmpTeamKey: "@ampcode.com", AmpRefusedKey: "auth-required", "": "auth-required",
	} {
		status, body := post("/api/internal?getUserInfo", key, `{"method":"getUserInfo","params":{}}`)
		if !strings.Contains(body, want) || (status == http.StatusOK) != strings.Contains(body, `"ok":true`) {
			t.Errorf("key %q: %d %s", key, status, body)
		}
	}
	post("/api/internal?uploadThread", "sgamp_any", "{}")
	if asked := m.AmpAsked(); len(asked) != 5 || !slices.Contains(asked, "uploadThread") {
		t.Errorf("asked for %q", asked)
	}
	if status, _ := post("/api/thread-actors", "sgamp_any", "{}"); status != http.StatusNotFound || len(m.Unknown()) != 1 {
		t.Errorf("a route of newer releases: %d, unknown %q", status, m.Unknown())
	}
	_, body := post("/api/provider/anthropic/v1/messages", "", `{"model":"m","max_tokens":60,"tools":[{"name":"set_title","input_schema":{"type":"object"}}],`+
		`"messages":[{"role":"user","content":"<message>hello</message>"}]}`)
	var answer struct {
		Content []struct {
			Name  string            `json:"name"`
			Input map[string]string `json:"input"`
		} `json:"content"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Content) != 1 || answer.Content[0].Input["title"] != "Scripted title" {
		t.Errorf("the title is %s: %v", body, err)
	}
	if r := m.Requests()[0]; r.Kind != Title {
		t.Errorf("a request for a title is %q", r.Kind)
	}
}
