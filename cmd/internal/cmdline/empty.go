package cmdline

import (
	"os"
	"strings"
)

// UnsetEmpty has flags go by their defaults where the variables that stand for them are set to nothing: that is how
// compose files and CI pass on what nobody has set. Prefix begins the names of the variables.
func UnsetEmpty(prefix string) {
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); value == "" && strings.HasPrefix(name, prefix) {
			_ = os.Unsetenv(name) // it is there
		}
	}
}
