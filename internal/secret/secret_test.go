package secret_test

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

func TestAddress(t *testing.T) {
	for address, want := range map[string]string{
		"":                                  "",
		"http://host:1/a?b=c@d":             "http://host:1/a?b=c@d",
		"https://registry.test/@scope/name": "https://registry.test/@scope/name",
		"https://user:secret@host/@scope":   "https://[removed]@host/@scope",
		"https://secret@host":               "https://[removed]@host",
		"https://user:s%40cret@host?a#b":    "https://[removed]@host?a#b",
		"//secret@host":                     "//[removed]@host",
		"secret//secret@host":               "[removed]@host",
		"secret@//host":                     "[removed]@//host",
		"http://u:sec/ret@host":             "http://[removed]@host",
		"http://u:sec ret@host":             "http://[removed]@host",
		"http://u:sec://ret@host":           "http://[removed]@host",
		"http://u:se@cret@host%zz":          "http://[removed]@host%zz",
		"ftphttp://secret@host":             "ftphttp://[removed]@host",
		"u:secret@host":                     "[removed]@host",
		"u:secret://x@host":                 "[removed]@host",
		"secret/secret@host":                "[removed]@host",
		"https://x.test=http://secret@host": "https://[removed]@host",
		"http://u:sec=ret@host":             "http://[removed]@host",
	} {
		if got := secret.Address(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

func TestCleaner(t *testing.T) {
	values := secret.Values([]string{"MY_KEY=a-word-of-mine", "my_password=p\"<&>ss\\w\"", "SHORT_TOKEN=abc", "PATH=/usr/bin:/bin", "broken", "OLDPWD=/some/here", "PWD=/some/there", "COMPASS_POINT=north-west"})
	clean := secret.Cleaner(secret.Forms(), values...)
	for text, want := range map[string]string{
		"":                                    "",
		"/some/here /some/there north-west":   "/some/here /some/there north-west",
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
	for _, name := range []string{"DB_PASS", "MYSQL_PWD", "GITHUB_PAT", "STORE_DSN", "DB_PASS_2"} {
		if len(secret.Values([]string{name + "=a-word-of-mine"})) != 1 {
			t.Errorf("%s is not called a secret", name)
		}
	}
	if got := secret.Cleaner(nil)("sk-0123456789abcdefghij"); !strings.HasPrefix(got, "sk-") {
		t.Errorf("nothing was to be taken out: %q", got)
	}
}
