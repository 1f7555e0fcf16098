package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ownerFile holds the mark of the gateway that uses a data directory.
const ownerFile = "owner"

// TakeOver ends what an earlier gateway on this data directory has left running,
// and notes this gateway's mark there for the next one. Only one gateway may use
// the directory: the caller holds its lock.
func TakeOver(dataDir string) error {
	path := filepath.Join(dataDir, ownerFile)
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("find the gateway before this one: %w", err)
	}
	// A shorter text than a mark could be the beginning of somebody else's.
	if old := strings.TrimSpace(string(b)); len(old) == len(owner) && old != owner {
		killMarked(OwnerVar + "=" + old)
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("note this gateway: %w", err)
	}
	// The mark is written anew, not in place: a torn one would match nothing.
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, []byte(owner+"\n"), 0o600); err != nil {
		return fmt.Errorf("note this gateway: %w", err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("note this gateway: %w", err)
	}
	return nil
}
