package secret_test

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

func TestCleaner(t *testing.T) {
	values := secret.Values([]string{"MY_KEY=a-word-of-mine", "my_password=p\"<&>ss\\w\"", "SHORT_TOKEN=abc", "PATH=/usr/bin:/bin", "broken"})
	clean := secret.Cleaner(secret.Forms(), values...)
	for text, want := range map[string]string{
		"":                                    "",
		"it is a-word-of-mine, abc, /usr/bin": "it is [removed], abc, /usr/bin",
		`{"key":"p\"<&>ss\\w\""}`:             `{"key":"[removed]"}`,
		`{"key":"sk-0123456789abcdefghij"}`:   `{"key":"[removed]"}`,
		"Authorization: Bearer abcdefghijkl":  "[removed]",
		`"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"`: `"[removed]\n"`,
	} {
		if got := clean(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := secret.Cleaner(nil)("sk-0123456789abcdefghij"); !strings.HasPrefix(got, "sk-") {
		t.Errorf("nothing was to be taken out: %q", got)
	}
}
