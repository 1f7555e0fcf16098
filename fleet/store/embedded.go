package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// syncEvery is how often the server in this program forces its files to disk. What a
// program that was killed has written is there; this is about machines that stop.
const syncEvery = 5 * time.Second

// embed starts a server in this program that listens nowhere.
func embed(dir string, log *slog.Logger) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		ServerName: "sandbox-hub", DontListen: true, JetStream: true, StoreDir: dir, SyncInterval: syncEvery,
		NoSigs: true, DisableJetStreamBanner: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start the store: %w", err)
	}
	s.SetLoggerV2(&serverLog{log}, log.Enabled(context.Background(), slog.LevelDebug), false, false)
	s.Start()
	if !s.ReadyForConnections(openBound) {
		s.Shutdown()
		return nil, errors.New("start the store: it is not ready in time; the log says why")
	}
	return s, nil
}

// serverLog writes what the server has to say. Of its notices only those that a
// person can do something about are above debug.
type serverLog struct{ log *slog.Logger }

func (l *serverLog) say(level slog.Level, format string, v []any) {
	l.log.Log(context.Background(), level, "store", "message", strings.TrimSpace(fmt.Sprintf(format, v...)))
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) { l.say(slog.LevelWarn, format, v) }

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Fatalf implements server.Logger. The program goes on: Open reports what failed.
func (l *serverLog) Fatalf(format string, v ...any) { l.say(slog.LevelError, format, v) }

// Debugf implements server.Logger.
func (l *serverLog) Debugf(format string, v ...any) { l.say(slog.LevelDebug, format, v) }

// Tracef implements server.Logger.
func (l *serverLog) Tracef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
