package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
)

// The configurations of reverse proxies in examples/vm, in the real programs: what an
// agent asks reaches the client while its turn is open, in every dialect.
func TestProxy_PassesStreamsOn(t *testing.T) {
	for _, p := range []struct {
		program string
		start   func(t *testing.T, dir, listen, upstream string) *exec.Cmd
	}{{"nginx", nginx}, {"caddy", caddy}} {
		t.Run(p.program, func(t *testing.T) {
			if _, err := exec.LookPath(p.program); err != nil {
				t.Skipf("%s is not installed, its configuration was not tried", p.program)
			}
			g := startGateway(t, "--token", token)
			listen := fmt.Sprint("127.0.0.1:", freeport.Of(t))
			cmd := p.start(t, t.TempDir(), listen, strings.TrimPrefix(g.url, "http://"))
			runProxy(t, cmd, listen)
			through := &gateway{t: t, url: "http://" + listen, args: g.args, stderr: g.stderr, exited: g.exited}
			for _, kind := range dialects {
				t.Run(string(kind), func(t *testing.T) {
					c := connect(t, through, kind, options{})
					s := c.newSession()
					turn := c.start("session/prompt", promptParams(s, "permission"))
					ask := c.findMethod("session/request_permission")
					c.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": ask.params().Options[0].OptionID}})
					result, err := c.wait(turn)
					if err != nil {
						t.Fatal(err)
					}
					if r := stopReason(t, result); r != "end_turn" {
						t.Errorf("the turn ended with %s", r)
					}
					// Messages of several megabytes go both ways.
					long := strings.Repeat("x", 3<<20)
					if r := c.prompt(s, "echo "+long); r != "end_turn" {
						t.Errorf("the long turn ended with %s", r)
					}
				})
			}
		})
	}
}

// nginx runs the example without TLS, which needs a certificate for its name.
func nginx(t *testing.T, dir, listen, upstream string) *exec.Cmd {
	t.Helper()
	b, err := os.ReadFile("../../examples/vm/nginx.conf")
	if err != nil {
		t.Fatal(err)
	}
	var site strings.Builder
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, "ssl_certificate") {
			site.WriteString(line)
		}
	}
	text := strings.NewReplacer("listen 443 ssl", "listen "+listen, "127.0.0.1:2468", upstream).Replace(site.String())
	if strings.Contains(text, " ssl") || !strings.Contains(text, upstream) {
		t.Fatalf("the example has changed:\n%s", text)
	}
	conf := fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n", dir)
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf+text+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command("nginx", "-p", dir, "-c", file, "-e", "stderr")
}

func caddy(t *testing.T, dir, listen, upstream string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", "../../examples/vm/Caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir, "CADDY_ADMIN=127.0.0.1:0", "GATEWAY_DOMAIN=http://"+listen, "GATEWAY_UPSTREAM="+upstream)
	return cmd
}

// runProxy starts a proxy, waits until it passes requests on, and ends it with the test.
func runProxy(t *testing.T, cmd *exec.Cmd, listen string) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // asked nicely, Caddy waits for idle connections
		<-exited
		if t.Failed() {
			t.Logf("output of the proxy:\n%s", &out)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond) // it does not say when it listens
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		if resp, err := http.Get("http://" + listen + "/v2/health"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("health through the proxy: %s", resp.Status)
			}
			return
		}
		select {
		case <-tick.C:
		case <-exited:
			t.Fatalf("the proxy ended: %v", cmd.ProcessState)
		case <-deadline:
			t.Fatal("the proxy passes nothing on")
		}
	}
}
