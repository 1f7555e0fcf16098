package journal

import "sync/atomic"

// Stats counts what logs do. One is shared by many logs; but for Open it is added to once
// for each flush.
type Stats struct {
	Appended atomic.Uint64 // entries that were shown to readers
	Written  atomic.Uint64 // bytes that files took
	Errors   atomic.Uint64 // flushes that a file did not take
	Open     atomic.Int64  // files that are open now
}
