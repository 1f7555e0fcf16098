package bridge

import "testing"

func TestMode_Again(t *testing.T) {
	for _, c := range []struct {
		kept       Mode
		asks, want string
	}{
		{In("plan", ""), "default", "plan"},
		{In("plan", "default"), "", "plan"},
		{In("full-access", "bypass"), "bypass", "full-access"},
		{In("full-access", "bypass"), "", ""},
		{In("full-access", "bypass"), "write", ""},
		{In("read-only", "readonly"), "readonly", ""},
		{Mode{Mode: "full-access"}, "", ""}, // of a version that did not note under which it was
		{Mode{Mode: "full-access"}, "default", ""},
		{Mode{}, "", ""},
	} {
		if got := c.kept.Again(c.asks); got != c.want {
			t.Errorf("%+v, asked for with %q: %q, want %q", c.kept, c.asks, got, c.want)
		}
	}
}
