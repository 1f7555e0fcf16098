package patient

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	for name, tt := range map[string]struct {
		comes, within time.Duration
		want          bool
		most          int           // it asks at most so often
		late          time.Duration // it sees it at most so late
	}{
		"at once":    {0, time.Second, true, 1, 0},
		"soon":       {10 * time.Millisecond, time.Second, true, 7, 2 * time.Millisecond},
		"late":       {20 * time.Second, time.Minute, true, 150, 200 * time.Millisecond},
		"never":      {time.Hour, time.Second, false, 50, 0},
		"in no time": {time.Hour, 0, false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, asked := time.Now(), 0
				got := Until(tt.within, func() bool { asked++; return time.Since(begun) >= tt.comes })
				took := time.Since(begun)
				if got != tt.want || asked > tt.most {
					t.Errorf("%v, asked %d times; want %v, at most %d times", got, asked, tt.want, tt.most)
				}
				if got && took > tt.comes+tt.late {
					t.Errorf("seen after %v, it came after %v", took, tt.comes)
				}
				if !got && took > tt.within+longest {
					t.Errorf("given up after %v, the time was %v", took, tt.within)
				}
			})
		})
	}
}
