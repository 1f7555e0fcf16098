package main_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// Real agents that read and write through their client do so through the host,
// when the client offers nothing. Gemini CLI replaces a file only: of one that is
// not there it does not understand the answer, whoever gives it, because its
// SDK's errors are no JavaScript errors.
func TestReal_HostTools(t *testing.T) {
	t.Parallel()
	t.Run("gemini", func(t *testing.T) { testHostTools(t, &geminiAgent, "notes.txt") })
	t.Run("qwen", func(t *testing.T) { testHostTools(t, &qwenAgent, "new.txt") })
}

func testHostTools(t *testing.T, a *realAgent, writes string) {
	t.Parallel()
	agentcache.NotShort(t)
	flags, env := a.install(t)
	agentcache.Turn(t, a.id)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	model := scriptedmodel.Start(t)
	a.write(t, home, model)
	r := &real{realAgent: a, t: t, model: model, dir: filepath.Join(home, "workspace")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.g = newGateway(t, append(flags, "--host-tools", "--log-level", "debug")...)
	r.g.env = slices.Concat(env, []string{
		"HOME=" + home, "HTTPS_PROXY=" + model.URL, "HTTP_PROXY=" + model.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + model.URL, "http_proxy=" + model.URL, "no_proxy=127.0.0.1,localhost",
	}, a.env(model))
	r.g.start()
	c := r.connect()
	session := r.newSession(c)
	r.testRead(t, c, session)
	path := filepath.Join(r.dir, writes)
	turn := r.prompt(c, session, "write "+path+" by-the-host", choose(t, "allow_once"))
	if turn.err != nil || turn.stop != "end_turn" || !strings.Contains(turn.text, "wrote") {
		t.Errorf("%v, %s: %q; asked %d times", turn.err, turn.stop, turn.text, len(turn.asked))
	}
	if b, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(b)) != "by-the-host" {
		t.Errorf("%q, %v", b, err)
	}
	log := r.g.stderr.String()
	for _, method := range []string{"fs/read_text_file", "fs/write_text_file"} {
		if !regexp.MustCompile(`msg="host tool" session=\S+ agent=` + a.id + ` method=` + method).MatchString(log) {
			t.Errorf("the agent did not use %s", method)
		}
	}
}
