// Package inspector holds the web page that the gateway serves to browsers.
// The files are part of the binary and load nothing from elsewhere.
package inspector

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Dist returns the files to serve; index.html is at its root.
func Dist() fs.FS {
	sub, err := fs.Sub(dist, "dist")
	if err != nil {
		panic("inspector: " + err.Error()) // the name is a constant and valid
	}
	return sub
}
