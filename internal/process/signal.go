package process

import (
	"maps"
	"slices"
	"strings"
	"syscall"
)

var signalNames = func() map[syscall.Signal]string {
	names := make(map[syscall.Signal]string, len(signals))
	for name, s := range signals {
		names[s] = name
	}
	return names
}()

// SignalName returns a signal's name, such as SIGTERM.
func SignalName(s syscall.Signal) string {
	if n, ok := signalNames[s]; ok {
		return n
	}
	return s.String()
}

// SignalNamed returns the signal of a name, in capital letters or not, with or
// without SIG.
func SignalNamed(name string) (syscall.Signal, bool) {
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	s, ok := signals[name]
	return s, ok
}

// SignalNames returns the names of the signals, sorted.
func SignalNames() []string { return slices.Sorted(maps.Keys(signals)) }
