package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// testHostTools shows that agents which read and write through their client do so
// through the host, when the client offers nothing. Gemini CLI replaces a file only:
// of one that is not there it does not understand the answer, whoever gives it,
// because its SDK's errors are no JavaScript errors.
func (r *real) testHostTools(t *testing.T, c *client) {
	t.Helper()
	session := r.newSession(c)
	r.testRead(t, c, session)
	path := filepath.Join(r.dir, r.writes)
	turn := r.prompt(c, session, "write "+path+" by-the-host", choose(t, "allow_once"))
	if turn.err != nil || turn.stop != "end_turn" || !strings.Contains(turn.text, "wrote") {
		t.Errorf("%v, %s: %q; asked %d times", turn.err, turn.stop, turn.text, len(turn.asked))
	}
	if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != "by-the-host" {
		t.Errorf("%q, %v", b, err)
	}
	log := r.g.stderr.String()
	for _, method := range []string{"fs/read_text_file", "fs/write_text_file"} {
		if !regexp.MustCompile(`msg="host tool" session=\S+ agent=` + r.id + ` method=` + method).MatchString(log) {
			t.Errorf("the agent did not use %s", method)
		}
	}
}
