package bridge

import (
	"net/url"
	"os"
)

// LocalFile is the path of a file: URI; ok says that something is there.
func LocalFile(uri string) (path string, ok bool) {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Path == "" {
		return "", false
	}
	_, err = os.Stat(u.Path)
	return u.Path, err == nil
}
