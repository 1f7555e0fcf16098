package changes_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/changes"
)

// view is what a follower knows when it has taken what it was told.
type view struct {
	f   *changes.Follower[int, int]
	has map[int]int
	was uint64 // the newest change that it was told
}

// take takes at most limit changes, and reports whether those were all.
func (v *view) take(t *testing.T, limit int) bool {
	t.Helper()
	got, anew := v.f.Next(nil, limit)
	if anew {
		v.has, v.was = map[int]int{}, 0
	}
	for _, c := range got {
		if c.Position <= v.was {
			t.Fatalf("change %d stands behind change %d", c.Position, v.was)
		}
		v.was = c.Position
		if v.has[c.Key] = c.Value; c.Gone {
			delete(v.has, c.Key)
		}
	}
	if v.f.Position() < v.was {
		t.Fatalf("the position %d is before change %d", v.f.Position(), v.was)
	}
	return len(got) < limit
}

// Whoever follows, from wherever and however slowly, has in the end what there is.
func TestList_FollowersAgree(t *testing.T) {
	const things, gone = 40, 6000 // more are forgotten than are remembered
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var l changes.List[int, int]
		const begin = 1000
		l.Begin(begin)
		truth := map[int]int{}
		views := []*view{{f: l.Follow(0), has: map[int]int{}}}
		for step := range 1000 {
			switch key := rng.IntN(things); rng.IntN(10) {
			case 0: // many come and go
				for i := range rng.IntN(2) * gone / 4 {
					l.Note(things+step*gone+i, i)
					l.Forget(things+step*gone+i, 0)
				}
			case 1, 2:
				l.Forget(key, 0)
				delete(truth, key)
			case 3, 4, 5:
				l.Note(key, step)
				truth[key] = step
			case 6: // it is followed again, from where it was known before
				old := views[rng.IntN(len(views))]
				v := &view{f: l.Follow(old.f.Position()), has: maps.Clone(old.has), was: old.f.Position()}
				if views = append(views, v); len(views) > 8 {
					views = views[1:]
				}
			default:
				views[rng.IntN(len(views))].take(t, 1+rng.IntN(12))
			}
		}
		for i, v := range views {
			for !v.take(t, 7) {
			}
			if !maps.Equal(v.has, truth) {
				t.Fatalf("seed %d: follower %d has %v, want %v", seed, i, v.has, truth)
			}
		}
	}
}

// What changes often between two looks is told once, as it is then.
func TestList_SlowFollower(t *testing.T) {
	var l changes.List[string, int]
	l.Begin(1)
	f := l.Follow(l.Position())
	wake := make(chan struct{}, 1)
	stop := l.Watch(wake)
	for i := range 100_000 {
		l.Note("busy", i)
	}
	l.Note("quiet", 1)
	<-wake
	got, anew := f.Next(nil, 10)
	if anew || len(got) != 2 || got[0].Key != "busy" || got[0].Value != 99_999 || got[1].Key != "quiet" {
		t.Errorf("anew %t, %+v", anew, got)
	}
	stop()
	select {
	case <-wake: // of the changes before
	default:
	}
	l.Note("quiet", 2)
	select {
	case <-wake:
		t.Error("who watches no more is woken")
	default:
	}
}

// A position of another list, or one before what is forgotten, is none.
func TestList_UnknownPosition(t *testing.T) {
	var l changes.List[int, int]
	l.Begin(1000)
	l.Note(1, 1)
	for _, position := range []uint64{0, 999, 1002, 1 << 60} {
		if _, anew := l.Follow(position).Next(nil, 10); !anew {
			t.Errorf("position %d is known", position)
		}
	}
	for _, position := range []uint64{1000, 1001} {
		if _, anew := l.Follow(position).Next(nil, 10); anew {
			t.Errorf("position %d is not known", position)
		}
	}
}
