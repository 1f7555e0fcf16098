package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/telemetry"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/inspector"
	"sandboxagent.dev/sandbox-agent/internal/certificate"
	"sandboxagent.dev/sandbox-agent/internal/claim"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

const (
	shutdownBound   = 10 * time.Second // for everything a graceful end waits for
	flushBound      = 3 * time.Second  // for spans that were not sent yet
	mostConnections = 16384
	mostStrangers   = 4096 // connections on which nobody has shown a token: as many nodes may come at once
)

// serveConfig is what the flags of the serve command say, checked.
type serveConfig struct {
	host, port      string
	dataDir         string
	nats, natsCreds string
	advertise       string
	replicas        int
	copies          bool
	copyBytes       int64
	bundles         bool
	bundleBytes     int64
	onLoss          []fleet.OnLoss
	lossGrace       time.Duration
	forgetAfter     time.Duration
	adminToken      string
	cors            control.CORS
	tlsCert, tlsKey string
	peerCA          string
	maxConnections  int
	log             cmdline.Log
}

func serveCommand(std stdio) *cli.Command {
	env := func(name string) []string { return []string{"SANDBOX_HUB_" + name} }
	return &cli.Command{
		Name:  "serve",
		Usage: "run a hub",
		Description: `The hub keeps what it knows in --data-dir, or in the NATS servers of --nats. Without
--admin-token-file, and as long as the store has no token with the scope admin, it
makes one and prints it, this once. SIGTERM and Ctrl-C end it in order within 10
seconds; a second one ends it at once.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Usage: "address to listen on", Value: "127.0.0.1", EnvVars: env("HOST")},
			&cli.StringFlag{Name: "port", Usage: "port to listen on, 0 is any free one", Value: "2470", EnvVars: env("PORT")},
			&cli.StringFlag{Name: "data-dir", TakesFile: true, Usage: "folder for what the hub keeps (default: sandbox-hub in XDG_DATA_HOME or ~/.local/share)", EnvVars: env("DATA_DIR")},
			&cli.StringFlag{Name: "admin-token-file", TakesFile: true, Usage: "read a token that may do everything from this file", EnvVars: env("ADMIN_TOKEN_FILE")},
			&cli.StringFlag{Name: "nats", Usage: "keep everything in the NATS servers at these addresses, separated by commas, instead of --data-dir; they need JetStream", EnvVars: env("NATS")},
			&cli.StringFlag{Name: "nats-creds", TakesFile: true, Usage: "file with the credentials for them", EnvVars: env("NATS_CREDS")},
			&cli.IntFlag{Name: "nats-replicas", Usage: "how many of them hold each record", Value: 1, EnvVars: env("NATS_REPLICAS")},
			&cli.StringFlag{Name: "advertise", Usage: "address by which other hubs of the NATS servers reach this one (default: the one it listens on, unless that is all of the machine's)", EnvVars: env("ADVERTISE")},
			&cli.BoolFlag{Name: "no-replicas", Usage: "copy no sessions of nodes; copies that were made before can still be read", EnvVars: env("NO_REPLICAS")},
			&cli.StringFlag{Name: "replica-bytes", Usage: "size of all copies, such as 50GiB, beyond which nothing more is copied until sessions are removed; 0 is no bound", Value: "0", EnvVars: env("REPLICA_BYTES")},
			&cli.BoolFlag{Name: "no-bundles", Usage: "do not keep what agents keep of sessions: they cannot go on without their node then", EnvVars: env("NO_BUNDLES")},
			&cli.StringFlag{Name: "bundle-bytes", Usage: "size of all that agents keep, beyond which nothing newer is kept until sessions are removed; 0 is no bound", Value: "8GiB", EnvVars: env("BUNDLE_BYTES")},
			&cli.StringSliceFlag{Name: "on-node-loss", Usage: "what becomes of sessions whose node is lost: read, or move to the node with the least work; move:NAME=VALUE is for nodes with that label, among each other, with + between several; may be repeated", Value: cli.NewStringSlice("read"), EnvVars: env("ON_NODE_LOSS")},
			&cli.DurationFlag{Name: "node-loss-after", Usage: "a node that is offline for this long is lost, for --on-node-loss", Value: time.Minute, EnvVars: env("NODE_LOSS_AFTER")},
			&cli.DurationFlag{Name: "forget-after", Usage: "forget nodes that have been away for this long, such as 720h, and copies of sessions that no connected node has; 0 is never", EnvVars: env("FORGET_AFTER")},
			&cli.StringSliceFlag{Name: "cors-allow-origin", Usage: "site whose pages may use the hub, * is any; may be repeated", EnvVars: env("CORS_ALLOW_ORIGIN")},
			&cli.StringFlag{Name: "tls-cert", TakesFile: true, Usage: "certificate file, for https", EnvVars: env("TLS_CERT")},
			&cli.StringFlag{Name: "tls-key", TakesFile: true, Usage: "key file of the certificate", EnvVars: env("TLS_KEY")},
			&cli.StringFlag{Name: "peer-ca", TakesFile: true, Usage: "file with the certificates of authorities, in PEM, by which those of the other hubs of --nats are checked (default: those of the system)", EnvVars: env("PEER_CA")},
			&cli.IntFlag{Name: "max-connections", Usage: "connections of clients and nodes at one time, 0 is what the limit of open files allows", EnvVars: env("MAX_CONNECTIONS")},
			cmdline.LogLevel(env("LOG_LEVEL")),
			cmdline.LogFormat(env("LOG_FORMAT")),
		},
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			cfg, err := serveConfigOf(c)
			if err != nil {
				return err
			}
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, cmdline.Ending(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
			defer signal.Stop(signals)
			cmdline.OutlivePipes() // who reads the log may leave
			return serve(c.Context, cfg, signals, std)
		},
	}
}

func serveConfigOf(c *cli.Context) (serveConfig, error) {
	cfg := serveConfig{
		host: strings.Trim(c.String("host"), "[]"), port: c.String("port"), dataDir: c.String("data-dir"),
		nats: c.String("nats"), natsCreds: c.String("nats-creds"), replicas: c.Int("nats-replicas"), copies: !c.Bool("no-replicas"),
		bundles:   !c.Bool("no-bundles") && !c.Bool("no-replicas"),
		advertise: c.String("advertise"),
		cors:      control.CORS{Origins: cmdline.Words(c.StringSlice("cors-allow-origin"))},
		tlsCert:   c.String("tls-cert"), tlsKey: c.String("tls-key"), peerCA: c.String("peer-ca"), maxConnections: c.Int("max-connections"),
	}
	if _, err := strconv.ParseUint(cfg.port, 10, 16); err != nil {
		return cfg, cmdline.Usagef(c, "--port %s is not a port: use 0 to 65535", cfg.port)
	}
	switch {
	case cfg.host == "":
		return cfg, cmdline.Usagef(c, "--host is empty: use 0.0.0.0 for all addresses")
	case cfg.nats != "" && c.IsSet("data-dir"):
		return cfg, cmdline.Usagef(c, "--nats and --data-dir are both given: everything is kept in one of them")
	case cfg.nats == "" && (cfg.natsCreds != "" || c.IsSet("nats-replicas")):
		return cfg, cmdline.Usagef(c, "--nats-creds and --nats-replicas are about the servers of --nats, which is missing")
	case cfg.nats == "" && cfg.advertise != "":
		return cfg, cmdline.Usagef(c, "--advertise is for hubs that share the servers of --nats, which is missing")
	case cfg.replicas < 1 || cfg.replicas > 5:
		return cfg, cmdline.Usagef(c, "--nats-replicas %d: use 1 to 5", cfg.replicas)
	case (cfg.tlsCert == "") != (cfg.tlsKey == ""):
		return cfg, cmdline.Usagef(c, "--tls-cert and --tls-key are needed together")
	case cfg.nats == "" && cfg.peerCA != "":
		return cfg, cmdline.Usagef(c, "--peer-ca is for hubs that share the servers of --nats, which is missing")
	case cfg.tlsCert != "" && strings.HasPrefix(strings.ToLower(cfg.advertise), "http:"):
		return cfg, cmdline.Usagef(c, "--advertise %s: with --tls-cert other hubs reach this one by https", secret.Address(cfg.advertise))
	case c.Duration("node-loss-after") < leastLossGrace:
		return cfg, cmdline.Usagef(c, "--node-loss-after must be at least %v: nodes whose connection breaks need that long to join again", leastLossGrace)
	case c.Duration("forget-after") != 0 && c.Duration("forget-after") < leastForgetAfter:
		return cfg, cmdline.Usagef(c, "--forget-after must be 0 or at least %v: what is forgotten is gone, and machines are started anew", leastForgetAfter)
	case cfg.maxConnections < 0:
		return cfg, cmdline.Usagef(c, "--max-connections cannot be negative")
	}
	if o, wrong := cfg.cors.Wrong(); wrong {
		return cfg, cmdline.Usagef(c, control.NoOrigin, o)
	}
	if u, err := url.Parse(cfg.advertise); cfg.advertise != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "") {
		return cfg, cmdline.Usagef(c, "--advertise: %q is not the http or https address of a hub", secret.Address(cfg.advertise))
	}
	var err error
	for _, size := range []struct {
		flag string
		to   *int64
	}{{"replica-bytes", &cfg.copyBytes}, {"bundle-bytes", &cfg.bundleBytes}} {
		if *size.to, err = cmdline.SizeOrNone(c.String(size.flag)); err != nil {
			return cfg, cmdline.Usagef(c, "--%s %s", size.flag, err)
		}
	}
	if cfg.log, err = cmdline.LogOf(c); err != nil {
		return cfg, err
	}
	cfg.lossGrace, cfg.forgetAfter = c.Duration("node-loss-after"), c.Duration("forget-after")
	if cfg.onLoss, err = fleet.ParseOnLoss(c.StringSlice("on-node-loss")); err != nil {
		return cfg, cmdline.Usagef(c, "--on-node-loss: %v", err)
	}
	if len(cfg.onLoss) > 0 && !cfg.bundles {
		return cfg, cmdline.Usagef(c, "--on-node-loss move needs what agents keep: do not say --no-bundles or --no-replicas")
	}
	if file := c.String("admin-token-file"); file != "" {
		if cfg.adminToken, err = cmdline.TokenIn(file); err != nil {
			return cfg, cmdline.Usagef(c, "--admin-token-file: %s", err)
		}
		if len(cfg.adminToken) < leastAdminToken {
			return cfg, cmdline.Usagef(c, "the token in %s has %d characters: use at least %d, as from: openssl rand -hex 24", file, len(cfg.adminToken), leastAdminToken)
		}
	}
	if cfg.dataDir == "" && cfg.nats == "" {
		cfg.dataDir, err = cmdline.DataDir("sandbox-hub")
	}
	return cfg, err
}

// leastAdminToken is the length of an admin token that nobody guesses.
const leastAdminToken = 20

// leastLossGrace is what a node needs to come back by itself.
const leastLossGrace = 20 * time.Second

// leastForgetAfter is more than anybody takes to start a machine anew.
const leastForgetAfter = time.Hour

// serve runs the hub until ctx ends or a signal comes.
func serve(ctx context.Context, cfg serveConfig, signals <-chan os.Signal, std stdio) error {
	log, endLog := cfg.log.Open(std.err)
	defer endLog()
	shown, err := certificate.Open(cfg.tlsCert, cfg.tlsKey, log)
	if err != nil {
		return err
	}
	authorities, err := certificate.OpenAuthorities(cfg.peerCA, log)
	if err != nil {
		return err
	}
	defer cmdline.NoticeSleep()()
	defer cmdline.GiveBack()()
	defer cmdline.FitProcessors()()
	o := store.Options{URL: cfg.nats, Credentials: cfg.natsCreds, Replicas: cfg.replicas, LogBytes: cfg.copyBytes, BundleBytes: cfg.bundleBytes, Hub: strings.ToLower(rand.Text()[:10]), Logger: log}
	temp := "" // of a hub without a folder of its own
	if cfg.nats == "" {
		unlock, err := claim.DirSoon(cfg.dataDir)
		if err != nil {
			return err
		}
		defer unlock()
		o.Dir, temp = filepath.Join(cfg.dataDir, "store"), filepath.Join(cfg.dataDir, "requests")
		_ = os.RemoveAll(temp) // of one that was killed; what stays is in nobody's way
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cfg.host, cfg.port))
	if err != nil {
		return cmdline.ExplainListen(ctx, cmdline.Hub, cfg.host, cfg.port, err)
	}
	o.Advertise = advertised(cfg, ln.Addr())
	var hub atomic.Pointer[fleet.Hub] // the store tells of nodes before there is one
	kept, err := store.Open(ctx, o, func(node, other string) {
		if h := hub.Load(); h != nil {
			h.Moved(node, other)
		}
	})
	if err != nil {
		_ = ln.Close()
		return &noStore{servers: cfg.nats != "", err: err}
	}
	defer kept.Close()
	made, err := firstToken(ctx, kept, cfg)
	if err != nil {
		_ = ln.Close()
		return err
	}
	told, err := telemetry.New(ctx, telemetry.Options{Traces: true, Service: "sandbox-hub", Version: version, Logger: log})
	if err != nil {
		_ = ln.Close()
		return fmt.Errorf("set up telemetry: %w", err)
	}
	defer flushTraces(told)
	var traces fleet.Traces // an interface without a value, unless some are sent
	if told.Traces() {
		traces = told
	}
	h := fleet.New(fleet.Options{Peers: fleet.PeerTLS{Only: cfg.tlsCert != "" || cfg.peerCA != "", Authorities: authorities}, Traces: traces, Store: kept, AdminToken: cfg.adminToken, CORS: cfg.cors, UI: inspector.Dist(), Replicate: cfg.copies, Bundles: cfg.bundles, OnLoss: cfg.onLoss, LossGrace: cfg.lossGrace, ForgetAfter: cfg.forgetAfter, Temp: temp, Version: version, Logger: log})
	hub.Store(h)
	running, stopRunning := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		h.Run(running)
	}()
	defer func() { stopRunning(); <-ran }()
	connections := boundConnections(cfg.maxConnections, log)
	srv := cmdline.HTTPServer(h, log)
	srv.ConnContext = connections.Context
	bounded := connections.Listen(ln)
	served := make(chan error, 2)
	go func() { served <- shown.Serve(srv, bounded) }()
	go func() {
		select {
		case <-kept.SetBack():
			served <- store.ErrSetBack
		case <-ran:
		}
	}()
	announce(cfg, ln.Addr(), made, log, std)

	ended, err := cmdline.Await(ctx, served, signals, log)
	defer ended()
	within, cancel := context.WithTimeout(context.Background(), shutdownBound)
	defer cancel()
	if err := h.Shutdown(within); err != nil {
		log.Warn("the hub has not ended in good order", "err", err)
	}
	if err := srv.Shutdown(within); err != nil {
		log.Warn("connections were cut off", "err", err)
		_ = srv.Close()
	}
	return err
}

// flushTraces sends what is left, when all that could be traced has ended.
func flushTraces(told *telemetry.Telemetry) {
	ctx, cancel := context.WithTimeout(context.Background(), flushBound)
	defer cancel()
	told.Shutdown(ctx)
}

// advertised is the address by which other hubs of the store reach this one, "" for none.
func advertised(cfg serveConfig, addr net.Addr) string {
	if ip, err := netip.ParseAddr(cfg.host); cfg.advertise != "" || cfg.nats == "" || err == nil && ip.IsUnspecified() {
		return cfg.advertise
	}
	return cmdline.LocalURL(cfg.host, cfg.port, addr, cfg.tlsCert != "")
}

// firstToken makes a token with the scope admin if nobody could have one.
func firstToken(ctx context.Context, kept *store.Store, cfg serveConfig) (string, error) {
	if cfg.adminToken != "" {
		return "", nil
	}
	for _, t := range kept.Tokens() {
		if t.Kind == store.KindClient && t.Scope == store.ScopeAdmin && t.Everywhere() && (t.Expires == nil || t.Expires.After(time.Now())) {
			return "", nil
		}
	}
	_, text, err := kept.CreateToken(ctx, store.Token{Kind: store.KindClient, Scope: store.ScopeAdmin, Note: "made at the first start"})
	return text, err
}

// announce says where the hub listens, and the token that was made for this start.
func announce(cfg serveConfig, addr net.Addr, made string, log *slog.Logger, std stdio) {
	url := cmdline.LocalURL(cfg.host, cfg.port, addr, cfg.tlsCert != "")
	if made != "" { // before the address: who waits for that finds the token
		fmt.Fprintln(std.err, "A token with the scope admin is printed on the standard output. It is shown this once.")
		fmt.Fprintln(std.out, made)
	}
	if cfg.log.JSON {
		log.Info("listening", "url", url)
	} else {
		fmt.Fprintf(std.err, "sandbox-hub %s listening on %s\n", version, url)
		fmt.Fprintf(std.err, "Let a gateway join: sandbox-hub token create --endpoint %s --kind join >join-token && sandbox-agent server --join %s --join-token-file join-token\n", url, url)
	}
	if cfg.tlsCert == "" && !control.Loopback(cfg.host) {
		log.Warn("without TLS tokens can be read on their way: give --tls-cert, or put a proxy with TLS before the hub")
	}
}

// boundConnections bounds the connections of clients and nodes.
func boundConnections(most int, log *slog.Logger) *control.Connections {
	if most == 0 {
		most = control.MostConnections(mostConnections, cmdline.OpenFiles())
	}
	return &control.Connections{Most: most, Strangers: max(8, min(mostStrangers, most/2)), Direct: true, Logger: log}
}
