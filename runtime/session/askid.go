package session

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// askIDs gives the requests of agents the ids by which clients know them. No two
// have the same one, over restarts too: an answer that was meant for an earlier
// request must not be taken for another one's. They are 31-bit integers, because
// clients exist that read no others.
type askIDs struct {
	path string // of the file that says which are taken; "" without one

	mu   sync.Mutex
	next int64
	end  int64 // those before it are taken in the file
}

const (
	askBlock = 1 << 12 // ids that are taken at once
	askLimit = 1<<31 - 1
)

// take returns an id. err says why the file could not be written: the id is then
// one that was hardly used before.
func (ids *askIDs) take() (id int64, err error) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if ids.next == ids.end {
		ids.next, err = ids.reserve()
		if err != nil || ids.next == 0 || ids.next > askLimit-askBlock {
			ids.next = 1 + rand.Int64N(askLimit-askBlock)
		}
		ids.end = ids.next + askBlock
	}
	id = ids.next
	ids.next++
	return id, err
}

// reserve takes a block of ids for good and returns its first, 0 without a file.
func (ids *askIDs) reserve() (int64, error) {
	if ids.path == "" {
		return 0, nil
	}
	first := int64(1)
	b, err := os.ReadFile(ids.path)
	if err == nil {
		first, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	if err == nil && first < 1 {
		err = fmt.Errorf("%d is no id", first)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("read which ids of requests are taken: %w", err)
	}
	if err := journal.ReplaceFile(ids.path, strconv.AppendInt(nil, first+askBlock, 10)); err != nil {
		return 0, fmt.Errorf("take ids of requests: %w", err)
	}
	return first, nil
}
