package main

import (
	"crypto/rand"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	acpversion "sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// serverConfig is what the flags of the server command say, checked.
type serverConfig struct {
	host, port      string
	token           string
	tokenFile       string // where the token came from, "" for elsewhere
	newToken        bool   // the token was made for this run: nobody else knows it
	cors            control.CORS
	allowedHosts    []string
	dataDir         string
	ephemeral       bool
	fsync           string
	minFree         int64 // bytes
	maxMemory       int64 // bytes
	maxConnections  int   // 0 is what the limit of open files allows
	defaultAgent    string
	requestTimeout  time.Duration
	turnIdleTimeout time.Duration
	idleTimeout     time.Duration

	unattachedTimeout, backgroundTimeout time.Duration
	maxIdleProcesses                     int
	maxIdleMemory                        int64 // bytes
	retention                            runtime.Retention

	acpVersions []int // in order

	maxBody         int64
	commands        map[string][]string
	tlsCert, tlsKey string
	log             cmdline.Log
	logFile         string
	install         install.Options
	fsRoot          string // confines the file routes; "" is the machine
	noProcesses     bool   // clients run no programs
	noMetrics       bool   // none are kept
	shareOTEL       bool   // agents inherit the OTEL_ variables
	logRequests     bool   // at the level info
	hostTools       bool   // agents have files and terminals where clients offer none
	join            joinConfig
	// requirePreinstall says that sessions do not install agents.
	requirePreinstall bool
}

// serverFlags are those of where and to whom the gateway listens, and of the
// gateway itself.
func serverFlags() []cli.Flag {
	env := func(name string) []string { return []string{"SANDBOX_AGENT_" + name} }
	return append([]cli.Flag{
		&cli.StringFlag{Name: "host", Usage: "address to listen on", Value: "127.0.0.1", EnvVars: env("HOST")},
		&cli.StringFlag{Name: "port", Usage: "port to listen on, 0 is any free one", Value: defaultPort, EnvVars: env("PORT")},
		&cli.StringFlag{Name: "token", Usage: "what clients must present; other users of the machine can see it here, so prefer the variable or --token-file", EnvVars: env("TOKEN")},
		&cli.StringFlag{Name: "token-file", TakesFile: true, Usage: "read the token from this file", EnvVars: env("TOKEN_FILE")},
		&cli.BoolFlag{Name: "new-token", Usage: "make a token for this run and print it, unless one is given", EnvVars: env("NEW_TOKEN")},
		&cli.BoolFlag{Name: "no-token", Usage: "let in everybody who can reach the address", EnvVars: env("NO_TOKEN")},
		&cli.StringSliceFlag{Name: "allowed-host", Usage: "further name by which clients may address the gateway, * is any; may be repeated", EnvVars: env("ALLOWED_HOST")},
		&cli.StringSliceFlag{Name: "cors-allow-origin", Usage: "site whose pages may use the gateway, * is any; may be repeated", EnvVars: env("CORS_ALLOW_ORIGIN")},
		&cli.StringSliceFlag{Name: "cors-allow-method", Usage: "method that those pages may use instead of all; may be repeated", EnvVars: env("CORS_ALLOW_METHOD")},
		&cli.StringSliceFlag{Name: "cors-allow-header", Usage: "header that those pages may use instead of the API's own; may be repeated", EnvVars: env("CORS_ALLOW_HEADER")},
		&cli.BoolFlag{Name: "cors-allow-credentials", Usage: "let those pages send cookies and HTTP authentication", EnvVars: env("CORS_ALLOW_CREDENTIALS")},
		&cli.BoolFlag{Name: "end-with-stdin", Usage: "end when standard input does: for a program that starts a gateway of its own and must leave none behind", EnvVars: env("END_WITH_STDIN")},
		&cli.StringFlag{Name: "default-agent", Usage: "agent for clients that name none", EnvVars: env("DEFAULT_AGENT")},
		&cli.StringFlag{Name: "fs-root", TakesFile: true, Usage: "folder that the file routes do not leave and that programs of clients start in; without it they reach all that the gateway can", EnvVars: env("FS_ROOT")},
		&cli.BoolFlag{Name: "no-processes", Usage: "run no programs for clients; agents are not concerned", EnvVars: env("NO_PROCESSES")},
		&cli.BoolFlag{Name: "no-metrics", Usage: "keep no metrics; /metrics then answers with an error", EnvVars: env("NO_METRICS")},
		&cli.BoolFlag{Name: "share-otel", Usage: "let agents inherit the OTEL_ variables by which this gateway sends its traces; without it they are its own", EnvVars: env("SHARE_OTEL")},
		&cli.BoolFlag{Name: "log-requests", Usage: "log each HTTP request at the level info instead of debug: its id, method, route and status, never its query, headers or body", EnvVars: env("LOG_REQUESTS")},
		&cli.IntFlag{Name: "max-connections", Usage: "connections of clients at one time, 0 is what the limit of open files allows", EnvVars: env("MAX_CONNECTIONS")},
		&cli.StringFlag{Name: "tls-cert", TakesFile: true, Usage: "certificate file, for https", EnvVars: env("TLS_CERT")},
		&cli.StringFlag{Name: "tls-key", TakesFile: true, Usage: "key file of the certificate", EnvVars: env("TLS_KEY")},
	}, append(joinFlags(), gatewayFlags()...)...)
}

// gatewayFlags are those of the gateway itself, however clients reach it.
func gatewayFlags() []cli.Flag {
	env := func(name string) []string { return []string{"SANDBOX_AGENT_" + name} }
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "ephemeral", Usage: "keep sessions in memory only", EnvVars: env("EPHEMERAL")},
		&cli.StringFlag{Name: "fsync", Usage: "when sessions are forced to disk: always (before a client sees it), interval (each second), turn (at the end of each turn) or never", Value: "turn", EnvVars: env("FSYNC")},
		&cli.StringFlag{Name: "min-free", Usage: "room that the disk of the data directory must have for new sessions, 0 asks for none", Value: "64MiB", EnvVars: env("MIN_FREE")},
		&cli.DurationFlag{Name: "retain-age", Usage: "let events of sessions go that are older, such as 720h, 0 keeps them", EnvVars: env("RETAIN_AGE")},
		&cli.StringFlag{Name: "retain-session-bytes", Usage: "size of a session's log beyond which its oldest events go, 0 keeps them", Value: "0", EnvVars: env("RETAIN_SESSION_BYTES")},
		&cli.StringFlag{Name: "retain-bytes", Usage: "size of all sessions' logs beyond which events go, those of the sessions first that have been silent longest, 0 keeps them", Value: "0", EnvVars: env("RETAIN_BYTES")},
		&cli.StringSliceFlag{Name: "agent-command", Usage: "an agent of your own, as `NAME=COMMAND LINE`, that speaks ACP on its standard streams; may be repeated", EnvVars: env("AGENT_COMMAND")},
		&cli.DurationFlag{Name: "request-timeout", Usage: "limit for agents' answers to all requests but prompts", Value: 120 * time.Second, EnvVars: env("REQUEST_TIMEOUT")},
		&cli.DurationFlag{Name: "turn-idle-timeout", Usage: "cancel turns that were silent for this time, and restart an agent that ignores it; 0 is never", EnvVars: env("TURN_IDLE_TIMEOUT")},
		&cli.DurationFlag{Name: "idle-timeout", Usage: "end the processes of sessions that were idle for this time, 0 is never", Value: 30 * time.Minute, EnvVars: env("IDLE_TIMEOUT")},
		&cli.DurationFlag{Name: "unattached-timeout", Usage: "the same for sessions that no client is attached to and that their agent can open again, 0 is as --idle-timeout", Value: time.Minute, EnvVars: env("UNATTACHED_TIMEOUT")},
		&cli.IntFlag{Name: "max-idle-processes", Usage: "keep so many agent processes in whose sessions nothing goes on, the newest, 0 is any number", EnvVars: env("MAX_IDLE_PROCESSES")},
		&cli.StringFlag{Name: "max-idle-memory", Usage: "memory that these processes and all below them may take together; those go first that have been idle longest, 0 is any (default: a quarter of the machine's or the container's)", EnvVars: env("MAX_IDLE_MEMORY")},
		&cli.DurationFlag{Name: "background-timeout", Usage: "the same for sessions whose agent works in the background, 0 is never", Value: 24 * time.Hour, EnvVars: env("BACKGROUND_TIMEOUT")},
		&cli.StringFlag{Name: "acp-versions", Usage: "versions of ACP that clients may choose from", Value: "1,2", EnvVars: env("ACP_VERSIONS")},
		&cli.StringFlag{Name: "max-body", Usage: "largest message of a client", Value: "32MiB", EnvVars: env("MAX_BODY")},
		&cli.StringFlag{Name: "max-memory", Usage: "memory that the gateway aims to stay below; messages on their way from and to clients get a quarter of it, and answers that nobody fetches another (default: a quarter of the machine's or the container's)", EnvVars: env("MAX_MEMORY")},
		&cli.BoolFlag{Name: "host-tools", Usage: "give agents files and terminals on this machine, where their clients offer none", EnvVars: env("HOST_TOOLS")},
		cmdline.LogLevel(env("LOG_LEVEL")),
		cmdline.LogFormat(env("LOG_FORMAT")),
		&cli.StringFlag{Name: "log-file", TakesFile: true, Usage: "append the log to this file instead of the standard error", EnvVars: env("LOG_FILE")},
		&cli.BoolFlag{Name: "require-preinstall", Usage: "never install an agent because a session wants it", EnvVars: env("REQUIRE_PREINSTALL")},
	}, installFlags()...)
}

func serverConfigOf(c *cli.Context) (serverConfig, error) {
	cfg, err := gatewayConfigOf(c)
	if err != nil {
		return cfg, err
	}
	cfg.host, cfg.port = strings.Trim(c.String("host"), "[]"), c.String("port")
	cfg.allowedHosts = cmdline.Words(c.StringSlice("allowed-host"))
	cfg.cors = control.CORS{
		Origins: cmdline.Words(c.StringSlice("cors-allow-origin")), Methods: cmdline.Words(c.StringSlice("cors-allow-method")),
		Headers: cmdline.Words(c.StringSlice("cors-allow-header")), Credentials: c.Bool("cors-allow-credentials"),
	}
	for _, h := range cfg.allowedHosts {
		if !control.IsHost(h) {
			return cfg, cmdline.Usagef(c, "--allowed-host %s is not a host: give a name as box.example, without http:// and path, or *", h)
		}
	}
	if o, wrong := cfg.cors.Wrong(); wrong {
		return cfg, cmdline.Usagef(c, control.NoOrigin, o)
	}
	cfg.defaultAgent = c.String("default-agent")
	cfg.tlsCert, cfg.tlsKey = c.String("tls-cert"), c.String("tls-key")
	cfg.fsRoot, cfg.noProcesses = c.String("fs-root"), c.Bool("no-processes")
	cfg.shareOTEL = c.Bool("share-otel")
	if cfg.maxConnections = c.Int("max-connections"); cfg.maxConnections < 0 {
		return cfg, cmdline.Usagef(c, "--max-connections cannot be negative")
	}
	cfg.noMetrics, cfg.logRequests = c.Bool("no-metrics"), c.Bool("log-requests")
	if n, err := strconv.ParseUint(cfg.port, 10, 16); err != nil {
		return cfg, cmdline.Usagef(c, "--port %s is not a port: use 0 to 65535", cfg.port)
	} else if cfg.port = strconv.FormatUint(n, 10); cfg.host == "" {
		return cfg, cmdline.Usagef(c, "--host is empty: use 0.0.0.0 for all addresses")
	}
	if cfg.token, cfg.tokenFile, err = cmdline.Token(c, "SANDBOX_AGENT"); err != nil {
		return cfg, err
	}
	if cfg.join, err = joinConfigOf(c); err != nil {
		return cfg, err
	}
	noToken := c.Bool("no-token")
	if noToken && c.Bool("new-token") {
		return cfg, cmdline.Usagef(c, "--no-token and --new-token are both given: remove one, or unset SANDBOX_AGENT_NEW_TOKEN or SANDBOX_AGENT_NO_TOKEN")
	}
	if cfg.token == "" && c.Bool("new-token") {
		cfg.token, cfg.newToken = rand.Text(), true
	}
	anySite := slices.Contains(cfg.cors.Origins, "*")
	switch {
	case cfg.token != "" && noToken:
		return cfg, cmdline.Usagef(c, "--no-token and a token are both given: remove one, or unset SANDBOX_AGENT_TOKEN")
	case cfg.token == "" && !noToken && !control.Loopback(cfg.host):
		return cfg, cmdline.Usagef(c, "--host %s can be reached from other machines, which needs a token: give --token-file or SANDBOX_AGENT_TOKEN, or --no-token to let in everybody", cfg.host)
	case cfg.token == "" && !noToken && anySite:
		return cfg, cmdline.Usagef(c, "--cors-allow-origin '*' lets every web page use the gateway, which needs a token: give --token-file or SANDBOX_AGENT_TOKEN, or --no-token to let in everybody")
	case anySite && cfg.cors.Credentials:
		return cfg, cmdline.Usagef(c, "--cors-allow-credentials cannot be used with --cors-allow-origin '*': name the origins")
	case (cfg.tlsCert == "") != (cfg.tlsKey == ""):
		return cfg, cmdline.Usagef(c, "--tls-cert and --tls-key are needed together")
	}
	return cfg, nil
}

var fsyncs = []string{"turn", "always", "interval", "never"}

// gatewayConfigOf returns what the flags say about the gateway itself.
func gatewayConfigOf(c *cli.Context) (serverConfig, error) {
	cfg := serverConfig{
		ephemeral: c.Bool("ephemeral"), fsync: c.String("fsync"),
		requestTimeout: c.Duration("request-timeout"), turnIdleTimeout: c.Duration("turn-idle-timeout"), idleTimeout: c.Duration("idle-timeout"),
		unattachedTimeout: c.Duration("unattached-timeout"), backgroundTimeout: c.Duration("background-timeout"), maxIdleProcesses: c.Int("max-idle-processes"),
		logFile:           c.String("log-file"),
		hostTools:         c.Bool("host-tools"),
		requirePreinstall: c.Bool("require-preinstall"),
	}
	switch {
	case !slices.Contains(fsyncs, cfg.fsync):
		return cfg, cmdline.Usagef(c, "--fsync %s: use %s", cfg.fsync, anyOf(fsyncs))
	case cfg.requestTimeout <= 0:
		return cfg, cmdline.Usagef(c, "--request-timeout must be more than 0")
	case cfg.turnIdleTimeout < 0 || cfg.idleTimeout < 0 || cfg.unattachedTimeout < 0 || cfg.backgroundTimeout < 0:
		return cfg, cmdline.Usagef(c, "a timeout cannot be negative")
	case cfg.maxIdleProcesses < 0:
		return cfg, cmdline.Usagef(c, "--max-idle-processes cannot be negative")
	}
	var err error
	if cfg.log, err = cmdline.LogOf(c); err != nil {
		return cfg, err
	}
	if cfg.minFree, err = cmdline.SizeOrNone(c.String("min-free")); err != nil {
		return cfg, cmdline.Usagef(c, "--min-free %s", err)
	}
	if cfg.retention.Age = c.Duration("retain-age"); cfg.retention.Age < 0 {
		return cfg, cmdline.Usagef(c, "--retain-age cannot be negative")
	}
	for name, to := range map[string]*int64{"retain-session-bytes": &cfg.retention.SessionBytes, "retain-bytes": &cfg.retention.Bytes} {
		if *to, err = cmdline.SizeOrNone(c.String(name)); err != nil {
			return cfg, cmdline.Usagef(c, "--%s %s", name, err)
		}
	}
	cfg.maxMemory = defaultMemory()
	if size := c.String("max-memory"); size != "" {
		if cfg.maxMemory, err = cmdline.Size(size); err != nil {
			return cfg, cmdline.Usagef(c, "--max-memory %s", err)
		}
	}
	cfg.maxIdleMemory = defaultMemory()
	if size := c.String("max-idle-memory"); size != "" {
		if cfg.maxIdleMemory, err = cmdline.SizeOrNone(size); err != nil {
			return cfg, cmdline.Usagef(c, "--max-idle-memory %s", err)
		}
	}
	if cfg.acpVersions, err = acpversion.Parse(c.String("acp-versions")); err != nil {
		return cfg, cmdline.Usagef(c, "--acp-versions %s", err)
	}
	if cfg.maxBody, err = cmdline.Size(c.String("max-body")); err != nil {
		return cfg, cmdline.Usagef(c, "--max-body %s", err)
	}
	if cfg.commands, err = parseCommands(c.StringSlice("agent-command")); err != nil {
		return cfg, cmdline.Usagef(c, "--agent-command %s", err)
	}
	if cfg.install, err = installOptionsOf(c); err != nil {
		return cfg, err
	}
	cfg.dataDir = cfg.install.DataDir
	return cfg, nil
}

func (c *serverConfig) guard() control.Guard {
	return control.Guard{Bind: c.host, AllowedHosts: c.allowedHosts, Token: c.token, CORS: c.cors}
}
