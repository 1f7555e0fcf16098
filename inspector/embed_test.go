package inspector

import (
	"io/fs"
	"regexp"
	"testing"
)

// external finds references that a browser would load from another place.
var external = regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?\s*(https?:)?//|@import|url\(\s*["']?\s*(https?:)?//`)

func TestDist_IsSelfContained(t *testing.T) {
	page, err := fs.ReadFile(Dist(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	if m := external.Find(page); m != nil {
		t.Errorf("index.html loads something from elsewhere: %s", m)
	}
}
