package replica

import (
	"bytes"
	"context"
	"iter"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// Line is an event as it stands in a replica.
type Line struct {
	Seq  uint64
	Text []byte // without newline; good until the next one is yielded
	// Gap says that the node let go of events before this one, and after the one
	// before it, before they could be copied.
	Gap bool
}

// Lines yields what a replica has behind an event, up to what there is now. A line with an
// error is the last.
func Lines(ctx context.Context, s *store.Store, id store.ReplicaID, after uint64) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for b, err := range s.Batches(ctx, id, after) {
			if err != nil {
				yield(Line{}, err)
				return
			}
			gap := b.Gap
			for text := range bytes.Lines(b.Lines) {
				l := Line{Text: bytes.TrimSuffix(text, []byte{'\n'}), Gap: gap}
				gap = false
				if l.Seq = SeqOf(l.Text); l.Seq <= after {
					continue
				}
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}
