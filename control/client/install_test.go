package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/client"
)

// installer installs in two steps; the agent "broken" fails after them, and
// "slow" never ends.
type installer struct {
	asked   []install.Request
	stopped chan struct{} // closed when the installation of slow was ended
}

func (f *installer) Install(ctx context.Context, req install.Request) (install.Result, error) {
	req.Progress(install.Progress{Agent: req.Agent, Source: install.NPM, Step: install.StepResolve, Detail: "a <b>"})
	req.Progress(install.Progress{Agent: req.Agent, Source: install.NPM, Step: install.StepDownload, Done: 5, Total: 5})
	req.Progress = nil
	switch req.Agent {
	case "broken":
		return install.Result{}, problem.New(problem.InstallFailed, "no").With("sources", []install.Attempt{{Source: install.NPM, Answer: "no npm"}})
	case "slow":
		<-ctx.Done()
		close(f.stopped)
		return install.Result{}, ctx.Err()
	}
	f.asked = append(f.asked, req)
	return install.Result{Installation: f.installation(), Already: true}, nil
}

func (f *installer) installation() install.Installation {
	return install.Installation{Agent: "a b", Version: "1", Source: install.NPM, Program: "/p", InstalledAt: when, Artifacts: []install.Artifact{{Kind: install.KindProgram}}}
}

func (f *installer) Remove(_ context.Context, agent string) error {
	f.asked = append(f.asked, install.Request{Agent: agent, Version: "removed"})
	return nil
}

func (f *installer) Status(agent string) (install.Status, error) {
	return install.Status{Agent: agent, Installed: []install.Installation{f.installation()}}, nil
}

func (f *installer) Doctor(_ context.Context, agents []string) (install.Report, error) {
	r := install.Report{OK: true, Platform: "p"}
	for _, a := range agents {
		r.Checks = append(r.Checks, install.Check{Agent: a, Status: install.CheckOK})
	}
	return r, nil
}

func TestClient_Install(t *testing.T) {
	f := &installer{stopped: make(chan struct{})}
	api := control.New(control.Options{Sessions: &sessions{}, Installer: f})
	srv := httptest.NewServer(api)
	t.Cleanup(func() { api.Shutdown(context.Background()); srv.Close() })
	c, err := client.New(srv.URL, client.Options{HTTP: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, want, got any, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, diff)
		}
	}
	var steps []install.Progress
	r, err := c.Install(t.Context(), "a b", client.InstallRequest{AgentVersion: "1", Reinstall: true, Sources: []install.Source{install.NPM}}, func(p install.Progress) { steps = append(steps, p) })
	check("result", install.Result{Installation: f.installation(), Already: true}, r, err)
	want := []install.Progress{{Agent: "a b", Source: install.NPM, Step: install.StepResolve, Detail: "a <b>"}, {Agent: "a b", Source: install.NPM, Step: install.StepDownload, Done: 5, Total: 5}}
	check("progress", want, steps, nil)
	_, err = c.Install(t.Context(), "a", client.InstallRequest{}, nil)
	if err != nil {
		t.Error(err)
	}
	status, err := c.InstallStatus(t.Context(), "a b")
	check("status", install.Status{Agent: "a b", Installed: []install.Installation{f.installation()}}, status, err)
	err = c.RemoveInstall(t.Context(), "a b")
	check("asked", []install.Request{{Agent: "a b", Version: "1", Reinstall: true, Sources: []install.Source{install.NPM}}, {Agent: "a"}, {Agent: "a b", Version: "removed"}}, f.asked, err)
	report, err := c.Doctor(t.Context(), "x", "y")
	check("doctor", install.Report{OK: true, Platform: "p", Checks: []install.Check{{Agent: "x", Status: install.CheckOK}, {Agent: "y", Status: install.CheckOK}}}, report, err)

	_, err = c.Install(t.Context(), "broken", client.InstallRequest{}, nil)
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Kind != problem.InstallFailed || p.Extensions["sources"] == nil {
		t.Errorf("error %v", err)
	}

	// A client that goes away ends what only it waits for.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = c.Install(ctx, "slow", client.InstallRequest{}, func(p install.Progress) {
		if p.Step == install.StepDownload {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-f.stopped
}

func TestClient_InstallEndsEarly(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte(":\n\nevent: progress\ndata: {\"agent\":\"a\",\"step\":\"resolve\"}\n\n"))
	}))
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, client.Options{HTTP: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Install(t.Context(), "a", client.InstallRequest{}, nil); err == nil {
		t.Errorf("result %+v of a stream without one", r)
	}
}
