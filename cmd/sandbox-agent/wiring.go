package main

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/control/process"
	"sandboxagent.dev/sandbox-agent/control/telemetry"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/inspector"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// gateway is what the server command serves.
type gateway struct {
	runtime   *runtime.Runtime
	messages  *memory.Bound // that are on their way to and from clients
	installer *install.Installer
	catalog   *all.Catalog
	rpc       *acphttp.Handler
	ui        iofs.FS
	files     *fs.Service
	processes *process.Service   // nil when nothing runs any
	tools     *control.HostTools // nil without --host-tools
	served    *process.Service   // processes, unless clients may run none
}

// makeHome makes the home directory where it is missing: an image's is hidden by an empty volume that is mounted above it,
// and agents, logins and git have no place then. Commands of clients begin there, too.
func makeHome(log *slog.Logger) {
	home, err := os.UserHomeDir()
	if err != nil {
		return // who has none wants none
	}
	if err := os.Mkdir(home, 0o700); err != nil && !errors.Is(err, iofs.ErrExist) {
		log.Warn("the home directory is not there and cannot be made: agents that keep files in it may fail", "home", home, "err", err)
	}
}

// openGateway puts the parts together.
func openGateway(cfg serverConfig, hub *joining, told *telemetry.Telemetry, log *slog.Logger) (*gateway, error) {
	makeHome(log)
	dataDir := cfg.dataDir
	if cfg.ephemeral {
		dataDir = "" // another gateway may be using it
	}
	// The user's agents are named where the others are installed: an editor's gateway has a folder of its own for
	// its sessions only, and one that is ephemeral none.
	list, err := all.Adapters(all.Options{DataDir: cfg.install.DataDir, Commands: cfg.commands})
	if err != nil {
		return nil, err
	}
	keep := []string{cfg.dataDir, cfg.install.DataDir}
	if home, err := os.UserHomeDir(); err == nil {
		keep = append(keep, home)
	}
	temp := ""
	if dataDir != "" {
		temp = filepath.Join(dataDir, "requests")
	}
	files, err := fs.New(fs.Options{Root: cfg.fsRoot, Keep: keep, Temp: temp})
	if err != nil && cfg.fsRoot != "" {
		err = fmt.Errorf("%w: give --fs-root a folder that is there", err)
	}
	if err != nil {
		return nil, err
	}
	var processes *process.Service
	if !cfg.noProcesses || cfg.hostTools {
		if processes, err = process.New(process.Options{Logger: log}); err != nil {
			_ = files.Close()
			return nil, err
		}
	}
	o := cfg.install
	o.Logger, o.Temp = log, temp
	installer := install.New(o)
	catalog := all.NewCatalog(installer)
	catalog.Tidy()
	var tools *control.HostTools
	var hostTools runtime.HostTools // an interface without a value, unless wanted
	if cfg.hostTools {
		tools = control.NewHostTools(files, processes)
		hostTools = tools
	}
	messages := memory.NewBound(cfg.maxMemory / 4)
	rt, err := runtime.New(runtime.Options{
		HostTools:         hostTools,
		Versions:          cfg.acpVersions,
		Adapters:          list,
		Catalog:           catalog,
		Installer:         installer.Programs(),
		Files:             control.NewFileMethods(files),
		Left:              control.EndArrivals(files),
		RequirePreinstall: cfg.requirePreinstall,
		DefaultAgent:      cfg.defaultAgent,
		DataDir:           dataDir,
		Ephemeral:         cfg.ephemeral,
		Fsync:             cfg.fsync,
		MinFree:           cfg.minFree,
		LogFiles:          boundLogFiles(),
		RequestTimeout:    cfg.requestTimeout,
		TurnIdleTimeout:   cfg.turnIdleTimeout,
		IdleTimeout:       cfg.idleTimeout,
		UnattachedTimeout: cfg.unattachedTimeout,
		BackgroundTimeout: cfg.backgroundTimeout,
		MaxIdleProcesses:  cfg.maxIdleProcesses,
		MaxIdleMemory:     cfg.maxIdleMemory,
		MaxUnread:         cfg.maxMemory / 4,
		LogMemory:         cfg.maxMemory / 8,
		Memory:            messages,
		Stored:            hub != nil,
		HubTrouble:        hub.trouble,
		Durability:        cfg.join.durability,
		Retention:         cfg.retention,
		Observer:          told.Runtime(),
		Logger:            log,
		Version:           version,
	})
	if err != nil {
		catalog.Close()
		_ = files.Close()
		return nil, err
	}
	g := &gateway{
		runtime:   rt,
		messages:  messages,
		installer: installer,
		catalog:   catalog,
		rpc:       acphttp.New(rt, acphttp.Options{MaxBody: cfg.maxBody, Memory: messages, Logger: log}),
		ui:        inspector.Dist(),
		files:     files,
		processes: processes,
		tools:     tools,
	}
	var counted telemetry.Processes // an interface without a value, unless some run
	if processes != nil {
		counted = processes
	}
	told.Watch(rt, counted)
	if !cfg.noProcesses {
		g.served = processes
	}
	return g, nil
}
