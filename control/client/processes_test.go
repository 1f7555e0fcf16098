package client_test

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
)

// processes is a client of a server with processes, which begin in dir.
func processes(t *testing.T) (c *client.Client, dir string) {
	t.Helper()
	dir = t.TempDir()
	files, err := fs.New(fs.Options{Root: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	all, err := process.New(process.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { all.Close(context.Background()) })
	server := control.New(control.Options{Files: files, Processes: all, Guard: control.Guard{Token: "tok"}})
	t.Cleanup(func() { server.Shutdown(context.Background()) })
	srv := httptest.NewServer(server)
	t.Cleanup(srv.Close)
	if c, err = client.New(srv.URL, client.Options{Token: "tok"}); err != nil {
		t.Fatal(err)
	}
	return c, dir
}

func TestProcesses(t *testing.T) {
	c, dir := processes(t)
	ctx := t.Context()
	r, err := c.Run(ctx, client.ProcessRun{Command: "sh", Args: []string{"-c", "cat; pwd >&2; exit 4"}, Stdin: []byte("\xff\x00"), Combined: true})
	if err != nil || r.ExitCode == nil || *r.ExitCode != 4 || string(r.Stdout.Data) != "\xff\x00" || string(r.Stderr.Data) != dir+"\n" || r.Combined == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = c.Run(ctx, client.ProcessRun{Command: "no-such-program"})
	wantKind(t, err, problem.NotFound)

	p, err := c.Start(ctx, client.ProcessStart{Command: "sh", Args: []string{"-c", "echo $A; cat; sleep 1000"}, Env: map[string]string{"A": "one"}})
	if err != nil || p.State != process.Running {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := c.WriteProcess(ctx, p.ID, []byte("two\n"), false); err != nil {
		t.Error(err)
	}
	if err := c.WriteProcess(ctx, p.ID, nil, true); err != nil {
		t.Error(err)
	}
	var got strings.Builder
	for e, err := range c.FollowProcess(ctx, p.ID, client.LogOptions{}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk != nil {
			got.Write(e.Chunk.Data)
		}
		if got.String() == "one\ntwo\n" {
			break
		}
	}
	page, err := c.ProcessLog(ctx, p.ID, client.LogOptions{Tail: 1, Stream: "stdout"})
	if err != nil || len(page.Chunks) != 1 || string(page.Chunks[0].Data) != "two\n" || page.Next != 8 || page.Ended {
		t.Errorf("%+v, %v", page, err)
	}
	wantKind(t, c.SignalProcess(ctx, p.ID, "NO"), problem.InvalidRequest)
	if err := c.SignalProcess(ctx, p.ID, "USR1"); err != nil {
		t.Error(err)
	}
	ended := false
	for e, err := range c.FollowProcess(ctx, p.ID, client.LogOptions{After: 8}, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil {
			ended = e.Exit.Signal == "SIGUSR1"
		}
	}
	if !ended {
		t.Error("its exit was not told")
	}
	if i, err := c.StopProcess(ctx, p.ID, time.Second); err != nil || i.State != process.Exited {
		t.Errorf("%+v, %v", i, err)
	}
	if all, err := c.Processes(ctx); err != nil || len(all) != 1 || all[0].ID != p.ID {
		t.Errorf("%+v, %v", all, err)
	}
	if err := c.DeleteProcess(ctx, p.ID); err != nil {
		t.Error(err)
	}
	_, err = c.Process(ctx, p.ID)
	wantKind(t, err, problem.NotFound)
	l, err := c.ProcessLimits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.Running = 7
	if now, err := c.SetProcessLimits(ctx, l); err != nil || now != l {
		t.Errorf("%+v, %v", now, err)
	}
}

func TestTerminal(t *testing.T) {
	c, _ := processes(t)
	ctx := t.Context()
	p, err := c.Start(ctx, client.ProcessStart{Command: "sh", TTY: true, Cols: 50, Rows: 10, Env: map[string]string{"PS1": "$ ", "ENV": ""}})
	if err != nil {
		t.Fatal(err)
	}
	term, err := c.Terminal(ctx, p.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	until := func(text string) {
		t.Helper()
		for got := ""; !strings.Contains(got, text); {
			e, err := term.Read(ctx)
			if err != nil {
				t.Fatalf("%v after %q", err, got)
			}
			got += string(e.Output)
		}
	}
	if e, err := term.Read(ctx); err != nil || e.Type != "ready" || e.Cols != 50 || e.Rows != 10 {
		t.Errorf("%+v, %v", e, err)
	}
	until("$ ")
	if err := errors.Join(term.Resize(ctx, 60, 11), term.Input(ctx, []byte("stty size\n"))); err != nil {
		t.Fatal(err)
	}
	until("11 60")
	if err := term.Signal(ctx, "NO"); err != nil {
		t.Fatal(err)
	}
	for {
		e, err := term.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "error" {
			if e.Problem == nil || e.Problem.Kind != problem.InvalidRequest {
				t.Errorf("%+v", e)
			}
			break
		}
	}
	if err := term.Input(ctx, []byte("exit 3\n")); err != nil {
		t.Fatal(err)
	}
	var last client.TerminalEvent
	for {
		e, err := term.Read(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = e
	}
	if last.Type != "exit" || last.ExitCode == nil || *last.ExitCode != 3 {
		t.Errorf("%+v", last)
	}
	if err := term.Close(); err != nil {
		t.Error(err)
	}
	_, err = c.Terminal(ctx, "p-none", 0)
	wantKind(t, err, problem.NotFound)
}
