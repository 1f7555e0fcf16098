package secret

import (
	"net/url"
	"strings"
)

// Address returns an address, also one that is wrong, without what stands in it before an @: a password, or a token in
// place of the user's name. A text with more in it than one address is for [Cleaner].
func Address(address string) string {
	begin := 0
	if scheme, _, ok := strings.Cut(address, "//"); ok && (scheme == "" || strings.IndexAny(scheme, ":@ ") == len(scheme)-1 && scheme[len(scheme)-1] == ':') {
		begin = len(scheme) + len("//")
	}
	end := len(address)
	// An @ of its path is not taken for this one, where it is plain which is the path. A host has no =, which two
	// addresses have between them.
	if u, err := url.Parse(address); err == nil && u.Host != "" && !strings.Contains(u.Host, "=") {
		if i := strings.IndexAny(address[begin:], "/?#"); i >= 0 {
			end = begin + i
		}
	}
	at := strings.LastIndexByte(address[begin:end], '@')
	if at < 0 {
		return address
	}
	return address[:begin] + Removed + address[begin+at:]
}
