package problem_test

import (
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Embedded is part of what is decoded, and its name is not part of the JSON.
type Embedded struct {
	Below int `json:"below"`
}

// TestDecodeJSON_SaysWhatIsWrong has bodies that are wrong, and what their writers are told: nothing of Go.
func TestDecodeJSON_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                "it is empty",
		`{"name":`:                        "it ends in the middle",
		`{"name":"a"} x`:                  "there is something behind it",
		`{"name":"a"}{}`:                  "there is something behind it",
		`[]`:                              "it must be an object, not an array",
		`"a"`:                             "it must be an object, not a string",
		`{"name":1}`:                      "name must be a string, not a number",
		`{"name":true}`:                   "name must be a string, not true or false",
		`{"count":"1"}`:                   "count must be a whole number, not a string",
		`{"count":1.5}`:                   "count must be a whole number, not 1.5",
		`{"count":1e99}`:                  "count must be a whole number, not 1e99",
		`{"size":-1}`:                     "size must be a whole number from 0 on, not -1",
		`{"part":"a"}`:                    "part must be a number, not a string",
		`{"on":"yes"}`:                    "on must be true or false, not a string",
		`{"list":"a"}`:                    "list must be an array, not a string",
		`{"list":[1]}`:                    "list must be a string, not a number",
		`{"env":{"A":1}}`:                 "must be a string, not a number",
		`{"env":[]}`:                      "env must be an object, not an array",
		`{"bytes":1}`:                     "bytes must be a string in base64, not a number",
		`{"bytes":"%"}`:                   "bytes are written in base64",
		`{"at":1}`:                        "a time is written as in",
		`{"at":"soon"}`:                   "a time is written as in",
		`{"inner":{"deep":"a"}}`:          "inner.deep must be a whole number, not a string",
		`{"below":"a"}`:                   "an object with a name: below must be a whole number, not a string",
		`{"nme":"a"}`:                     `there is no member "nme"`,
		`{"name":"a","name":"b",`:         "it ends in the middle",
		`{name:"a"}`:                      "invalid character 'n'",
		`{"name":"a","name":"a"}`:         `the member "name" more than once`,
		"{\"name\":\"a\xffb\"}":           "is not valid UTF-8",
		`{"env":{"A":"","A":""}}`:         `the member "A" more than once`,
		`{"name":"a\ud800b"}`:             `\ud800 without the other half`,
		`{"name":"\ud83d\ude00\uDE00\n"}`: `\uDE00 without the other half`,
		`{"name":"\\ud800\ud83d\\"}`:      `\ud83d without the other half`,
	} {
		var v struct {
			Embedded
			Name  string            `json:"name"`
			Count *int              `json:"count"`
			Size  uint64            `json:"size"`
			Part  float64           `json:"part"`
			On    bool              `json:"on"`
			List  []string          `json:"list"`
			Env   map[string]string `json:"env"`
			Bytes []byte            `json:"bytes"`
			At    *time.Time        `json:"at"`
			Inner struct {
				Deep int64 `json:"deep"`
			} `json:"inner"`
		}
		err := problem.DecodeJSON([]byte(body), &v, "an object with a name")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the body must be an object with a name") {
			t.Errorf("%s: %v, want %q", body, err, want)
			continue
		}
		if p := problem.From(err); p.Kind != problem.InvalidRequest || strings.Contains(p.Detail, "Go ") || strings.Contains(p.Detail, "json:") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestDecodeJSON_WholeCharacters(t *testing.T) {
	t.Parallel()
	var v struct {
		Name string `json:"name"`
	}
	if err := problem.DecodeJSON([]byte(`{"name":"\ud83d\uDE00 \\ud800 \u00e4\n\ufffd"}`), &v, "an object"); err != nil {
		t.Fatal(err)
	}
	if want := "\U0001F600 \\ud800 \u00e4\n\ufffd"; v.Name != want {
		t.Errorf("%q, want %q", v.Name, want)
	}
}
