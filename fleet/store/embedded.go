package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// syncEvery is how often the server in this program forces its files to disk. What a
// program that was killed has written is there; this is about machines that stop.
const syncEvery = 5 * time.Second

// startLook is how often is looked whether the server has started.
const startLook = 50 * time.Millisecond

// engine is the store's server when it is in this program. A server that could not write to one
// of its files takes nothing more there, also when there is room again: then it is started anew.
// The connection to it, which is in the program too, comes back as one to a server elsewhere does.
//
// A server whose files were removed would write on to files that nobody will find. It is ended, and runs again when
// they are back: it is given no new folder, as all that it knows would be gone.
type engine struct {
	dir    string
	log    *slog.Logger
	files  os.FileInfo            // of the folder in which the server has its files
	lost   atomic.Bool            // that folder is not there
	failed atomic.Pointer[string] // why it takes nothing, or not everything; nil for nothing
	fatal  atomic.Pointer[string] // why its server cannot start

	mu     sync.Mutex
	server *server.Server
}

// startEngine starts a server that listens nowhere.
func startEngine(dir string, log *slog.Logger) (*engine, error) {
	e := &engine{dir: dir, log: log}
	err := e.start()
	if err == nil {
		if e.files, err = os.Stat(e.folder()); err != nil {
			e.stop()
		}
	}
	return e, err
}

func (e *engine) folder() string { return filepath.Join(e.dir, server.JetStreamStoreDir) }

// look ends the server when its folder is not there, or another one is in its place, and reports whether it is there.
func (e *engine) look() bool {
	now, err := os.Stat(e.folder())
	there := err == nil && os.SameFile(e.files, now) || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR)
	switch was := e.lost.Swap(!there); {
	case !there && !was:
		e.log.Error("the store's folder was removed, or another one is in its place: nothing is stored until it is back", "folder", e.folder())
		e.stop()
	case there && was:
		why := "its folder is back"
		e.failed.Store(&why) // it is started anew
	}
	return there
}

func (e *engine) start() error {
	s, err := server.NewServer(&server.Options{
		ServerName: "sandbox-hub", DontListen: true, JetStream: true, StoreDir: e.dir, SyncInterval: syncEvery,
		// The bounds of the buckets are what they may have, not what the disk must have free at the
		// start. Without a number the server reserves them from a share of what is free.
		JetStreamMaxStore: math.MaxInt64,
		NoSigs:            true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return fmt.Errorf("start the store: %w", err)
	}
	s.SetLoggerV2(&serverLog{e}, e.log.Enabled(context.Background(), slog.LevelDebug), false, false)
	e.fatal.Store(nil)
	s.Start()
	for until := time.Now().Add(openBound); !s.ReadyForConnections(startLook); {
		why := e.fatal.Load()
		if why == nil && time.Now().Before(until) {
			continue
		}
		s.Shutdown()
		s.WaitForShutdown()
		if why != nil {
			return fmt.Errorf("start the store: %s", *why)
		}
		return errors.New("start the store: it is not ready in time; the log says why")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.server = s
	return nil
}

// gone says that the server has no folder; nil when it has. The nil engine has none that could be gone.
func (e *engine) gone() error {
	if e == nil || !e.lost.Load() {
		return nil
	}
	return fmt.Errorf("the folder of the store, %s, was removed, or another one is in its place: bring it back, or start the hub anew with what is there", e.folder())
}

// fault is what the server says of a write that has failed, "" for nothing. The nil engine, of a
// store elsewhere, has none.
func (e *engine) fault() string {
	if e == nil {
		return ""
	}
	if text := e.failed.Load(); text != nil {
		return *text
	}
	return ""
}

// again starts the server anew. One that does not start has a fault, so that it is tried once more.
func (e *engine) again() error {
	e.stop()
	e.failed.Store(nil) // what fails while it starts counts
	err := e.start()
	if err != nil {
		why := err.Error()
		e.failed.Store(&why)
	}
	return err
}

// stop ends the server, if there is one. It may be called more than once.
func (e *engine) stop() {
	if s := e.running(); s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

func (e *engine) running() *server.Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.server
}

// InProcessConn implements nats.InProcessConnProvider.
func (e *engine) InProcessConn() (net.Conn, error) { return e.running().InProcessConn() }

// serverLog writes what the server has to say. Of its notices only those that a
// person can do something about are above debug.
type serverLog struct{ of *engine }

func (l *serverLog) say(level slog.Level, format string, v []any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	if strings.Contains(text, "Critical write error") { // it has no other way to say so
		l.of.failed.Store(&text)
	}
	l.of.log.Log(context.Background(), level, "store", "message", text)
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Fatalf implements server.Logger. The program goes on: start reports what failed.
func (l *serverLog) Fatalf(format string, v ...any) {
	why := strings.TrimSpace(fmt.Sprintf(format, v...))
	l.of.fatal.Store(&why)
	l.say(slog.LevelError, format, v)
}

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (l *serverLog) Tracef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
