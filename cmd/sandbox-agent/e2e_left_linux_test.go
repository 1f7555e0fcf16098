package main_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program that is tried has its home with the gateway: of one that is killed meanwhile nothing stays.
func TestInstall_KilledWhileAProgramIsTried(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "home")
	script := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$HOME\" >"+told+".part\nmv "+told+".part "+told+"\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t)
	g.env = append(g.env, "SANDBOX_AGENT_CLAUDE_BIN="+script)
	g.start()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if resp, err := http.Get(g.url + "/v2/doctor?agent=claude"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	var home string
	g.until("the program is tried", func() bool {
		b, err := os.ReadFile(told)
		home = strings.TrimSpace(string(b))
		return err == nil
	})
	g.kill(syscall.SIGKILL)
	<-asked
	if !strings.HasPrefix(home, g.dir+"/") {
		t.Errorf("it has its home in %s", home)
	}
	g.restart()
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("what a killed gateway has left is still there: %v", err)
	}
}
