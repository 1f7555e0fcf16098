// Package inspector holds the web page that the gateway serves to browsers.
// The files are part of the binary and load nothing from elsewhere.
package inspector

import (
	"embed"
	"errors"
	"io/fs"
)

// dist is what `./task inspector:build` makes out of src. It is not committed:
// a program that was built without it has the page in unbuilt instead.
//
//go:embed all:dist
var dist embed.FS

//go:embed unbuilt
var unbuilt embed.FS

// Dist returns the files to serve; index.html is at its root.
func Dist() fs.FS { return site(sub(dist, "dist"), sub(unbuilt, "unbuilt")) }

// site returns built, or instead if nothing was built.
func site(built, instead fs.FS) fs.FS {
	if hasPage(built) {
		return built
	}
	return instead
}

func hasPage(files fs.FS) bool {
	_, err := fs.Stat(files, "index.html")
	return !errors.Is(err, fs.ErrNotExist)
}

func sub(files fs.FS, dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic("inspector: " + err.Error()) // the name is a constant and valid
	}
	return f
}
