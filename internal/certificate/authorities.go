package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Authorities are certificates in a file by which those of others are checked. The file is looked
// at each time, so that those in use are the ones on the disk. All methods are safe for concurrent
// use; nil are those of the system.
type Authorities struct {
	file string
	log  *slog.Logger

	mu   sync.Mutex
	seen os.FileInfo // of the file that was read last, whether it could be used or not
	pool *x509.CertPool
}

// OpenAuthorities reads the file; without a name it returns nil.
func OpenAuthorities(file string, log *slog.Logger) (*Authorities, error) {
	if file == "" {
		return nil, nil
	}
	a := &Authorities{file: file, log: log, seen: infoOf(file)}
	var err error
	a.pool, err = a.read()
	return a, err
}

// Pool returns the certificates of the file, nil for those of the system. It is the same as long as they
// are. While the file cannot be used it is the last that could.
func (a *Authorities) Pool() *x509.CertPool {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := infoOf(a.file)
	if same(now, a.seen) {
		return a.pool
	}
	a.seen = now
	pool, err := a.read()
	if err != nil {
		a.log.Warn("the new certificates of authorities cannot be used, those before go on being used", "error", err)
		return a.pool
	}
	a.log.Info("new certificates of authorities are used", "file", a.file)
	a.pool = pool
	return pool
}

func (a *Authorities) read() (*x509.CertPool, error) {
	text, err := os.ReadFile(a.file)
	if err != nil {
		return nil, fmt.Errorf("read certificates of authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read certificates of authorities: %w", errors.New(a.file+" has none in PEM"))
	}
	return pool, nil
}
