package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What a hub writes is in its copy before the store tells of it, in whatever order the two
// come: what it has removed does not come back by a late word, and nothing is told twice.
func TestBucket_WritesMeetWhatTheStoreTells(t *testing.T) {
	put := func(revision uint64) record[string] {
		return record[string]{value: fmt.Sprint("v", revision), revision: revision}
	}
	gone := func(revision uint64) record[string] { return record[string]{revision: revision, gone: true} }
	for name, row := range map[string]struct {
		changes []record[string]
		told    []string // to who watches
		has     string   // in the end
	}{
		"told of behind":                  {[]record[string]{put(1), put(1)}, []string{"v1"}, "v1"},
		"told of before":                  {[]record[string]{put(1), put(2), put(1)}, []string{"v1", "v2"}, "v2"},
		"removed here":                    {[]record[string]{put(1), gone(1), gone(2)}, []string{"v1", ""}, ""},
		"removed here, and then told all": {[]record[string]{put(1), gone(1), put(1), gone(2)}, []string{"v1", ""}, ""},
		"removed here, and made again":    {[]record[string]{put(1), gone(1), put(3), put(1), gone(2), put(3)}, []string{"v1", "", "v3"}, "v3"},
		"removed elsewhere":               {[]record[string]{put(1), gone(2)}, []string{"v1", ""}, ""},
		"removed elsewhere, known late":   {[]record[string]{put(1), put(3), gone(2)}, []string{"v1", "v3"}, "v3"},
	} {
		t.Run(name, func(t *testing.T) {
			var told, taken []string
			before := ""
			b := &bucket[string]{records: map[string]record[string]{}, moved: make(chan struct{}), changed: func(_ string, _ bool, v string) { told = append(told, v) }}
			b.taken = func(had, now string) {
				if r, _ := b.get("key"); had != before || r.value != now { // it is in the copy already
					t.Errorf("%q in the place of %q, and there was %q and is %q", now, had, before, r.value)
				}
				before, taken = now, append(taken, now)
			}
			for _, r := range row.changes {
				b.take("key", r)
			}
			r, ok := b.get("key")
			if !slices.Equal(told, row.told) || !slices.Equal(taken, row.told) || r.value != row.has || ok != (row.has != "") || b.len() != len(b.all()) || (b.len() == 1) != ok {
				t.Errorf("told %q, has %q, want %q and %q", told, r.value, row.told, row.has)
			}
		})
	}
}

// What a cluster says while its servers choose a leader is asked again; what it refuses is not.
func TestPasses(t *testing.T) {
	for err, want := range map[error]bool{
		nats.ErrNoResponders:                        true,
		jetstream.ErrNoStreamResponse:               true,
		&jetstream.APIError{Code: 503}:              true,
		&jetstream.APIError{Code: 400}:              false,
		jetstream.ErrKeyExists:                      false,
		errChanged:                                  false,
		&nats.APIError{Code: 500, ErrorCode: 10005}: true,
	} {
		if passes(fmt.Errorf("renew lease: %w", err)) != want {
			t.Errorf("%v passes: %t", err, !want)
		}
	}
}
