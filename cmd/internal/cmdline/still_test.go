package cmdline

import "testing"

func TestStillness(t *testing.T) {
	var s stillness
	for i, step := range []struct {
		more uint64
		want bool
	}{
		{6 << 20, true},    // the start
		{100, false},       // nothing since
		{50 << 20, false},  // a burst goes on
		{50 << 20, false},  //
		{10 << 10, true},   // and has ended
		{10 << 10, false},  // nothing since
		{3 << 20, false},   // too little
		{10 << 10, false},  // to be worth it
		{2 << 20, false},   // with what came before it is worth it,
		{200 << 10, true},  // now that it is still
		{200 << 10, false}, // and again not
	} {
		now := s.last + step.more
		if got := s.noteworthy(now); got != step.want {
			t.Errorf("step %d: memory is given back: %t, want %t", i, got, step.want)
		}
	}
}
