package bridgetest

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// ShownBy names a test of each feature that is claimed.
type ShownBy map[adapters.Feature]func(*testing.T)

// Check fails when a feature is missing, is claimed without a test, or is
// disclaimed without a reason.
func (s ShownBy) Check(t *testing.T, f adapters.Features) {
	t.Helper()
	for _, one := range adapters.AllFeatures {
		support, ok := f[one]
		switch {
		case !ok:
			t.Errorf("%s is missing", one)
		case support.Level == adapters.Unsupported && support.Reason == "":
			t.Errorf("%s is unsupported without a reason", one)
		case support.Level != adapters.Unsupported && s[one] == nil:
			t.Errorf("%s is claimed, and no test shows it", one)
		}
	}
	if len(f) != len(adapters.AllFeatures) {
		t.Errorf("%d features, want %d", len(f), len(adapters.AllFeatures))
	}
}
