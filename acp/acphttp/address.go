package acphttp

import (
	"net/url"
	"strings"
)

// Address returns the address of what is under base, where each name is one segment of the path,
// whatever it is. Names that lead out of the path, as .. does, or that are escapes themselves, are
// names, too: what a person types for an id must not become the address of something else.
func Address(base *url.URL, names ...string) *url.URL {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = url.PathEscape(name)
		if name == "." || name == ".." {
			escaped[i] = strings.ReplaceAll(name, ".", "%2E")
		}
	}
	return base.JoinPath(escaped...)
}
