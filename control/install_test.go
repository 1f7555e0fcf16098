package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// fakeInstaller is an Installer of funcs.
type fakeInstaller struct {
	install func(context.Context, install.Request) (install.Result, error)
	removed []string
	doctor  func(agents []string) (install.Report, error)
}

func installation(agent, version string) install.Installation {
	return install.Installation{
		Agent: agent, Version: version, Source: install.Vendor, Program: "/d/" + agent, Platform: "linux-x64", InstalledAt: when, Reported: "1 <2>",
		Handshake: install.HandshakeInitialize, ACPArgs: []string{"--acp"}, Verified: true, Verification: install.Verification{How: install.BySignature, By: "its maker"}, Dir: "/d", Current: true,
		Artifacts: []install.Artifact{{Kind: install.KindProgram, Path: "/d/" + agent, Version: version, Source: install.Vendor, Verified: true, SHA256: "00"}},
		Downloads: []install.Download{{URL: "https://x/y", Bytes: 3, SHA256: "00", Verified: true}},
	}
}

func (f *fakeInstaller) Install(ctx context.Context, req install.Request) (install.Result, error) {
	return f.install(ctx, req)
}

func (f *fakeInstaller) Remove(_ context.Context, agent string) error {
	if agent == "none" {
		return problem.New(problem.AgentNotInstalled, "nothing to remove")
	}
	f.removed = append(f.removed, agent)
	return nil
}

func (f *fakeInstaller) Status(agent string) (install.Status, error) {
	if agent == "nope" {
		return install.Status{}, problem.New(problem.UnsupportedAgent, "no agent nope is known")
	}
	i := installation(agent, "1.0.0")
	i.ACPArgs = nil
	return install.Status{Agent: agent, InUse: &i, Installed: []install.Installation{i}}, nil
}

func (f *fakeInstaller) Doctor(_ context.Context, agents []string) (install.Report, error) {
	return f.doctor(agents)
}

func TestInstall_Answers(t *testing.T) {
	var got install.Request
	f := &fakeInstaller{
		install: func(_ context.Context, req install.Request) (install.Result, error) {
			req.Progress(install.Progress{Agent: req.Agent, Step: install.StepResolve})
			got, got.Progress = req, nil
			switch req.Agent {
			case "nope":
				return install.Result{}, problem.New(problem.UnsupportedAgent, "no agent nope is known")
			case "broken":
				return install.Result{}, problem.New(problem.InstallFailed, "it was not").With("sources", []install.Attempt{{Source: install.Vendor, Answer: "no"}})
			case "secret":
				return install.Result{}, errors.New("/secret")
			}
			return install.Result{Installation: installation(req.Agent, "2.0.0"), Attempts: []install.Attempt{{Source: install.Path, Answer: "missing"}}}, nil
		},
		doctor: func(agents []string) (install.Report, error) {
			if len(agents) == 1 {
				return install.Report{}, problem.New(problem.UnsupportedAgent, "no agent %s is known", agents[0])
			}
			return install.Report{Platform: "linux-x64", Checks: []install.Check{{Name: "PATH", Status: install.CheckFailed, Found: strings.Join(agents, "+"), Remedy: "set it"}}}, nil
		},
	}
	a := newAPI(t, Options{Installer: f})
	long := `{"agentVersion":"` + strings.Repeat("1", maxInstallBody) + `"}`
	tests := []struct {
		method, target, body, invalid string
		status                        int
		want                          string // contained; a kind for problems
	}{
		{"POST", "/v2/agents/mock/install", "", "", 200, `"reported":"1 <2>"`},
		{"POST", "/v2/agents/mock/install", `{"agentVersion":"1.2.3","reinstall":true,"sources":["npm","vendor"]}`, "", 200, `"attempts":[{"source":"path","answer":"missing"}]`},
		{"POST", "/v2/agents/nope/install", "{}", "", 404, "not_found"},
		{"POST", "/v2/agents/broken/install", "", "", 500, "install_failed"},
		{"POST", "/v2/agents/secret/install", "", "", 500, "internal"},
		{"POST", "/v2/agents/mock/install", `{"version":"1"}`, "version", 400, "invalid_request"},
		{"POST", "/v2/agents/mock/install", `{"reinstall":"yes"}`, "reinstall", 400, "invalid_request"},
		{"POST", "/v2/agents/mock/install", `{`, "body", 400, "invalid_request"},
		{"POST", "/v2/agents/mock/install", `{} {}`, "", 400, "invalid_request"},
		{"POST", "/v2/agents/mock/install", long, "", 413, "payload_too_large"},
		{"GET", "/v2/agents/mock/install", "", "", 200, `"acpArgs":null`},
		{"GET", "/v2/agents/nope/install", "", "", 404, "not_found"},
		{"DELETE", "/v2/agents/mock/install", "", "", 204, ""},
		{"DELETE", "/v2/agents/none/install", "", "", 404, "agent_not_installed"},
		{"GET", "/v2/doctor", "", "", 200, `{"ok":false,"platform":"linux-x64","checks":[{"name":"PATH"`},
		{"GET", "/v2/doctor?agent=a&agent=b", "", "", 200, `"found":"a+b"`},
		{"GET", "/v2/doctor?agent=nope", "", "", 400, "unsupported_agent"},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.target+" "+tt.body[:min(len(tt.body), 60)], func(t *testing.T) {
			a.t = t
			w := a.send(tt.method, tt.target, tt.body, tt.invalid)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d: %s", w.Code, tt.status, w.Body)
			}
			if tt.status >= 400 {
				if kind := kindOf(t, w); string(kind) != tt.want {
					t.Errorf("problem %s, want %s", kind, tt.want)
				}
			} else if !strings.Contains(w.Body.String(), tt.want) {
				t.Errorf("body %s, want %s in it", w.Body, tt.want)
			}
			if strings.Contains(w.Body.String(), "/secret") {
				t.Errorf("the answer shows what only the log may: %s", w.Body)
			}
			if strings.Contains(tt.body, "1.2.3") {
				want := install.Request{Agent: "mock", Version: "1.2.3", Reinstall: true, Sources: []install.Source{install.NPM, install.Vendor}}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("request differs (-want +got):\n%s", diff)
				}
			}
		})
	}
	if diff := cmp.Diff([]string{"mock"}, f.removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	t.Run("media type", func(t *testing.T) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/v2/agents/mock/install", strings.NewReader("agentVersion=1"))
		w := httptest.NewRecorder()
		a.server.ServeHTTP(w, r)
		if kindOf(t, w) != problem.UnsupportedMediaType {
			t.Errorf("answer %s", w.Body)
		}
	})
}

func TestInstall_WithoutInstaller(t *testing.T) {
	a := newAPI(t, Options{})
	for _, tt := range [][2]string{{"POST", "/v2/agents/mock/install"}, {"GET", "/v2/agents/mock/install"}, {"DELETE", "/v2/agents/mock/install"}, {"GET", "/v2/doctor"}} {
		if w := a.do(tt[0], tt[1], ""); w.Code != 501 || kindOf(t, w) != problem.NotSupported {
			t.Errorf("%s %s: %d %s", tt[0], tt[1], w.Code, w.Body)
		}
	}
}

// begin posts a request to install mock; leave makes the client go away.
func begin(t *testing.T, s *Server, body, accept string) (w *wire, ended chan struct{}, leave context.CancelFunc) {
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/v2/agents/mock/install", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	w, ended = &wire{header: http.Header{}}, make(chan struct{})
	go func() {
		defer close(ended)
		s.ServeHTTP(w, r)
	}()
	return w, ended, leave
}

// slowInstaller installs in steps that the test takes.
func slowInstaller() (f *fakeInstaller, reports chan install.Progress, begun *atomic.Int32) {
	reports, begun = make(chan install.Progress), &atomic.Int32{}
	return &fakeInstaller{install: func(ctx context.Context, req install.Request) (install.Result, error) {
		begun.Add(1)
		for {
			select {
			case p, ok := <-reports:
				if !ok {
					return install.Result{Installation: install.Installation{Agent: req.Agent, Version: "2.0.0"}}, nil
				}
				req.Progress(p)
			case <-ctx.Done():
				return install.Result{}, problem.Wrap(problem.InstallFailed, context.Cause(ctx), "stopped")
			}
		}
	}}, reports, begun
}

const events = "text/event-stream"

func TestInstall_StreamsAndShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reports, begun := slowInstaller()
		s := New(Options{Sessions: &fake{}, Installer: f})
		defer s.Shutdown(t.Context())
		first, firstEnded, leave := begin(t, s, `{}`, events)
		reports <- install.Progress{Agent: "mock", Source: install.Vendor, Step: install.StepResolve}
		synctest.Wait()
		const resolve = "event: progress\ndata: {\"agent\":\"mock\",\"source\":\"vendor\",\"step\":\"resolve\",\"done\":0,\"total\":0}\n\n"
		if diff := cmp.Diff(resolve, first.taken()); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		if status, contentType, _ := first.head(); status != 200 || contentType != events {
			t.Errorf("status %d, type %s", status, contentType)
		}
		// Who comes later hears of the steps before, and waits for the same.
		second, secondEnded, _ := begin(t, s, ` {} `, events)
		plain, plainEnded, _ := begin(t, s, ``, "application/json")
		synctest.Wait()
		if diff := cmp.Diff(resolve, second.taken()); diff != "" {
			t.Errorf("second (-want +got):\n%s", diff)
		}
		reports <- install.Progress{Agent: "mock", Source: install.Vendor, Step: install.StepDownload, Done: 1, Total: 9}
		synctest.Wait()
		first.taken()
		leave()
		<-firstEnded
		reports <- install.Progress{Agent: "mock", Source: install.Vendor, Step: install.StepDownload, Done: 9, Total: 9}
		close(reports)
		<-secondEnded
		<-plainEnded
		got := second.taken()
		if !strings.Contains(got, `"done":9,"total":9}`) || !strings.Contains(got, "\n\nevent: result\ndata: {\"agent\":\"mock\",\"version\":\"2.0.0\"") || !strings.HasSuffix(got, "}\n\n") {
			t.Errorf("second %q", got)
		}
		if status, contentType, _ := plain.head(); status != 200 || contentType != "application/json" || !strings.Contains(plain.taken(), `"version":"2.0.0"`) {
			t.Errorf("without a stream: status %d, type %s", status, contentType)
		}
		if got := first.taken(); got != "" {
			t.Errorf("to who left: %q", got)
		}
		if n := begun.Load(); n != 1 {
			t.Errorf("%d installations, want 1", n)
		}
	})
}

func TestInstall_EndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reports, begun := slowInstaller()
		s := New(Options{Sessions: &fake{}, Installer: f})
		defer s.Shutdown(t.Context())
		_, oneEnded, leaveOne := begin(t, s, `{}`, events)
		_, otherEnded, leaveOther := begin(t, s, `{}`, "")
		_, _, leaveThird := begin(t, s, `{"agentVersion":"9"}`, "") // something else
		synctest.Wait()
		leaveOne()
		<-oneEnded
		reports <- install.Progress{Step: install.StepResolve} // one of the two takes it
		leaveOther()
		leaveThird()
		<-otherEnded
		synctest.Wait()
		select {
		case reports <- install.Progress{}:
			t.Error("an installation goes on without anybody who waits")
		default:
		}
		// The next one is a new one.
		w, ended, _ := begin(t, s, `{}`, events)
		close(reports)
		<-ended
		if got := w.taken(); !strings.HasPrefix(got, "event: result\n") {
			t.Errorf("stream %q", got)
		}
		if n := begun.Load(); n != 3 {
			t.Errorf("%d installations, want 3", n)
		}
	})
}

func TestInstall_ShutdownEndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, reports, _ := slowInstaller()
		s := New(Options{Sessions: &fake{}, Installer: f})
		w, ended, _ := begin(t, s, `{}`, events)
		reports <- install.Progress{Step: install.StepResolve}
		synctest.Wait()
		w.taken()
		s.Shutdown(t.Context())
		<-ended
		if got := w.taken(); !strings.HasPrefix(got, "event: error\ndata: {") || !strings.Contains(got, "install_failed") {
			t.Errorf("stream %q", got)
		}
		late, ended, _ := begin(t, s, `{}`, events)
		<-ended
		if status, contentType, _ := late.head(); status != 503 || contentType != problem.ContentType {
			t.Errorf("after the shutdown: status %d, type %s", status, contentType)
		}
	})
}

func TestInstall_Bound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, _ := slowInstaller()
		s := New(Options{Sessions: &fake{}, Installer: f})
		defer s.Shutdown(t.Context())
		for i := range maxInstalls {
			begin(t, s, `{"agentVersion":"`+strings.Repeat("1", i+1)+`"}`, "")
		}
		synctest.Wait()
		w, ended, _ := begin(t, s, `{}`, "")
		<-ended
		if status, _, _ := w.head(); status != 503 || !strings.Contains(w.taken(), "under way already") {
			t.Errorf("status %d", status)
		}
	})
}

func TestDoctor_OneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		let := make(chan struct{})
		s := New(Options{Sessions: &fake{}, Installer: &fakeInstaller{doctor: func([]string) (install.Report, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-let
			return install.Report{OK: true, Checks: []install.Check{}}, nil
		}}})
		defer s.Shutdown(t.Context())
		codes := make(chan int, 3)
		for range 3 {
			go func() {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "http://localhost/v2/doctor", nil))
				codes <- w.Code
			}()
		}
		synctest.Wait()
		if running.Load() != 1 {
			t.Errorf("%d at once", running.Load())
		}
		close(let)
		for range 3 {
			if code := <-codes; code != 200 {
				t.Errorf("status %d", code)
			}
		}
		if most.Load() != 1 {
			t.Errorf("%d at once", most.Load())
		}
	})
}

func TestFlight_SlowReaderSeesEveryStep(t *testing.T) {
	f := &flight{more: make(chan struct{})}
	var at reader
	f.report(install.Progress{Step: install.StepResolve})
	for i := range 1000 {
		f.report(install.Progress{Step: install.StepDownload, Done: int64(i)})
	}
	f.report(install.Progress{Step: install.StepProve})
	news, _ := at.next(f)
	want := []install.Progress{{Step: install.StepResolve}, {Step: install.StepDownload, Done: 999}, {Step: install.StepProve}}
	if diff := cmp.Diff(want, news); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	news, more := at.next(f)
	if len(news) != 0 {
		t.Errorf("read twice: %+v", news)
	}
	f.report(install.Progress{Step: install.StepProve, Done: 5})
	<-more
	if news, _ = at.next(f); len(news) != 1 || news[0].Done != 5 {
		t.Errorf("news %+v", news)
	}
	for i := range 2 * maxSteps {
		f.report(install.Progress{Step: install.StepDownload, Done: int64(-i)})
	}
	if news, _ = at.next(f); len(news) != maxSteps-3 {
		t.Errorf("%d steps, want the bound", len(news))
	}
	f.report(install.Progress{Step: install.StepLand})
	if news, _ = at.next(f); len(news) != 1 || news[0].Step != install.StepLand {
		t.Errorf("at the bound: %+v", news)
	}
}

// An installation that hangs, as on a disk that does, holds up the end no longer than all else may.
func TestInstall_HangsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		s := New(Options{Sessions: &fake{}, Installer: &fakeInstaller{install: func(context.Context, install.Request) (install.Result, error) {
			<-hangs
			return install.Result{}, nil
		}}})
		_, ended, leave := begin(t, s, `{}`, events)
		defer leave()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			<-time.After(time.Hour)
			close(hangs)
		}()
		began := time.Now()
		s.Shutdown(ctx)
		if took := time.Since(began); took != time.Minute {
			t.Errorf("it took %v", took)
		}
		<-ended
	})
}
