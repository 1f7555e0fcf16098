package control

import (
	"context"
	"crypto/rand"
	"io"
	iofs "io/fs"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// Sessions is what the API shows. *runtime.Runtime implements it. Errors are
// problems of package problem.
type Sessions interface {
	Sessions(ctx context.Context, f runtime.SessionFilter) (runtime.SessionList, error)
	FollowSessions(ctx context.Context, after uint64) iter.Seq2[runtime.SessionChange, error]
	Session(id string) (runtime.SessionInfo, error)
	Events(ctx context.Context, id string, after uint64, limit int) (events []runtime.Event, hasMore bool, err error)
	RaisedEvents(ctx context.Context, id string, after uint64, limit int) (events []runtime.Event, hasMore bool, err error)
	Raw(ctx context.Context, id string) (io.ReadCloser, error)
	Cleaner(id string) (func(text string) string, error)
	FollowEvents(ctx context.Context, id string, after uint64) iter.Seq2[runtime.Event, error]
	Permissions(id string) ([]runtime.Grant, error)
	ForgetPermissions(ctx context.Context, id string, ids ...string) (forgotten []runtime.Grant, err error)
	// Went is where a session went of which only what was left was here, "" for one that was here itself.
	CloseSession(ctx context.Context, id string) (went string, err error)
	DeleteSession(ctx context.Context, id string) (went string, err error)
	Agents() []runtime.AgentInfo
	Ready() error
}

var _ Sessions = (*runtime.Runtime)(nil)

// Options configure a Server.
type Options struct {
	Sessions  Sessions
	Travel    Travel      // nil when sessions stay on this server
	Copies    Copies      // nil when no hub copies the sessions of this server
	Installer Installer   // nil when this server installs nothing
	Files     *fs.Service // nil when this server gives no access to files
	// Processes runs programs for clients; nil when this server does not. It
	// needs Files, which say where they start.
	Processes *process.Service
	// Transfers bounds the uploads and downloads at one time; more are refused
	// with a problem. 0 is 64.
	Transfers int
	Memory    *memory.Bound // of messages on their way to and from clients; nil is no bound
	RPC       http.Handler  // serves /v2/rpc
	UI        iofs.FS       // served at /ui/
	Guard     Guard
	Version   string
	Metrics   http.Handler // serves /metrics; nil when there are none
	Observer  Observer     // is told of requests; may be nil
	// LogRequests logs requests at the level info in place of debug.
	LogRequests bool
	Logger      *slog.Logger // nil discards
}

// Server is the gateway's http.Handler.
type Server struct {
	o       Options
	log     *slog.Logger
	echo    *echo.Echo
	ui      http.Handler
	handler http.Handler
	// templates are the routes of the API by the web framework's form of them.
	templates map[string]string

	installs  installs
	transfers chan struct{} // holds one for each upload and download
	searches  chan struct{} // holds one for each search and run of git
	watchers  chan struct{} // holds one for each watched folder
	requests  counted       // all that are under way
	viewing   counted       // terminal sockets, which the HTTP server does not wait for
	// examining is held by the one request that the doctor works for; others
	// wait as long as their clients do.
	examining chan struct{}
	draining  atomic.Bool
	instance  string          // tells this server from others, whatever its addresses
	stop      context.Context // done when event streams must end
	end       context.CancelFunc
}

var _ http.Handler = (*Server)(nil)

// New returns a server. It starts nothing.
func New(o Options) *Server {
	s := &Server{o: o, log: o.Logger, examining: make(chan struct{}, 1), instance: rand.Text()}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.stop, s.end = context.WithCancel(context.Background())
	if s.o.Memory == nil {
		s.o.Memory = memory.NewBound(0)
	}
	if o.Transfers <= 0 {
		o.Transfers = 64
	}
	s.searches = make(chan struct{}, maxSearches)
	s.transfers, s.watchers = make(chan struct{}, o.Transfers), make(chan struct{}, maxWatchers)
	s.installs.ctx, s.installs.flights = s.stop, map[string]*flight{}
	s.ui = NewPage(o.UI)
	s.echo = s.routes()
	s.templates = templatesOf(s.echo)
	s.handler = s.observe(o.Guard.prepare().wrap(http.HandlerFunc(s.dispatch)))
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	leave, ok := s.requests.enter()
	if !ok {
		problem.Write(w, errStopping())
		return
	}
	defer leave()
	s.handler.ServeHTTP(w, r)
}

func errStopping() error { return problem.New(problem.Unavailable, "the gateway is shutting down") }

// Drain makes the server report that it is not ready, and begin no further
// installation. Everything else goes on.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.installs.refuse()
}

// Shutdown ends the event streams and terminals, which would otherwise go on
// for ever, and the installations, and waits for the last two, but not longer than ctx: a program that an installation has
// started, or a disk, may hang.
func (s *Server) Shutdown(ctx context.Context) {
	s.Drain()
	s.end()
	within(ctx, func() {
		s.viewing.wait()
		s.installs.running.Wait()
	})
}

// Await takes no further requests, and waits for those that are under way, but not longer than ctx. One whose connection
// was cut off may still have to remove what it has begun, such as half a copy.
func (s *Server) Await(ctx context.Context) {
	s.requests.refuse()
	within(ctx, s.requests.wait)
}

// within waits for what wait waits for, but not longer than ctx.
func within(ctx context.Context, wait func()) {
	done := make(chan struct{})
	go func() { // as long as what is waited for
		defer close(done)
		wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// counted are things under way that somebody waits for in the end.
type counted struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// enter counts one until leave is called; false means the server stops.
func (c *counted) enter() (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false
	}
	c.running.Add(1)
	return c.running.Done, true
}

// refuse lets nobody in any more.
func (c *counted) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

// wait lets nobody in any more and waits for those who are.
func (c *counted) wait() {
	c.refuse()
	c.running.Wait()
}

// dispatch hands a request to the part of the server that its path belongs to.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	switch routeOf(r.URL.Path) {
	case routeRPC:
		if err := queries.Check(r, r.URL.Path); err != nil {
			problem.Write(w, err)
			return
		}
		s.o.RPC.ServeHTTP(w, r)
	case routeUI, routeToUI:
		s.ui.ServeHTTP(w, r)
	case routeV1:
		serveV1(w, r)
	case routeOpencode:
		serveOpencode(w, r)
	default:
		s.echo.ServeHTTP(w, r)
	}
}

// routes builds the API. Each resource has its own file.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.JSONSerializer = serializer{s}
	e.HTTPErrorHandler = s.handleError
	e.Use(s.noteRoutes, s.checkQueries)
	// A GET answers HEAD as well; the HTTP server leaves the body out.
	get := func(path string, h echo.HandlerFunc) {
		e.GET(path, h)
		e.HEAD(path, h)
	}
	get("/v2/health", s.getHealth)
	get("/v2/ready", s.getReady)
	get("/v2/version", s.getVersion)
	get("/v2/agents", s.listAgents)
	get("/v2/agents/:agent", s.getAgent)
	get("/v2/agents/:agent/install", s.getInstall)
	e.POST("/v2/agents/:agent/install", s.installAgent)
	e.DELETE("/v2/agents/:agent/install", s.removeInstall)
	get("/v2/doctor", s.getDoctor)
	get("/v2/sessions", s.listSessions)
	e.GET("/v2/sessions/changes", s.followSessions)
	get("/v2/sessions/:id", s.getSession)
	e.DELETE("/v2/sessions/:id", s.deleteSession)
	e.POST("/v2/sessions/:id/close", s.closeSession)
	get("/v2/sessions/:id/permissions", s.listPermissions)
	e.DELETE("/v2/sessions/:id/permissions", s.forgetPermissions)
	e.DELETE("/v2/sessions/:id/permissions/:grant", s.forgetPermission)
	get("/v2/sessions/:id/events", s.getEvents)
	get("/v2/sessions/:id/raw", s.getRaw)
	get("/v2/sessions/:id/transcript", s.getTranscript)
	e.GET("/v2/sessions/:id/export", s.travel(s.exportSession))
	e.POST("/v2/sessions/:id/export", s.travel(s.exportSession))
	e.POST("/v2/sessions/import", s.travel(s.importSession))
	s.fileRoutes(e, get)
	s.processRoutes(e, get)
	get("/v2/openapi.json", s.getOpenAPI)
	get("/metrics", s.getMetrics)
	return e
}
