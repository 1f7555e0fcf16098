package bridgetest

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// ShownBy names a test of each feature that is claimed: a function, of a test or
// of a part of one.
type ShownBy map[adapters.Feature]any

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
		case support.Level != adapters.Unsupported && (s[one] == nil || reflect.TypeOf(s[one]).Kind() != reflect.Func):
			t.Errorf("%s is claimed, and no test shows it", one)
		}
	}
	if len(f) != len(adapters.AllFeatures) {
		t.Errorf("%d features, want %d", len(f), len(adapters.AllFeatures))
	}
}

// Elsewhere are the features that other tests than the contract show, with the
// test as the reason why the contract does not.
func (s ShownBy) Elsewhere() map[adapters.Feature]string {
	out := map[adapters.Feature]string{}
	for one, test := range s {
		name := runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name()
		if name = name[strings.LastIndexByte(name, '.')+1:]; name != "TestContract" {
			out[one] = name + " shows it"
		}
	}
	return out
}
