package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxEnclosure bounds one attachment, so that a wrong name does not fill the
// memory. What a gateway takes is less: its --max-body.
const maxEnclosure = 256 << 20

// enclosure is an attachment: something that goes along with a prompt.
type enclosure struct {
	name string // as it was given
	uri  string
	mime string
	link bool // only the address goes along
	data []byte
}

// readEnclosure reads what an argument of --attach names: a file, - for the
// input, or an address with http or https, which is not fetched.
func readEnclosure(name string, in io.Reader) (enclosure, error) {
	if u, err := url.Parse(name); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		short := path.Base(u.Path)
		if short == "." || short == "/" {
			short = u.Host
		}
		return enclosure{name: short, uri: name, link: true}, nil
	}
	a := enclosure{name: name}
	if name == "-" {
		a.name, a.uri = "standard input", "file:///dev/stdin"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return a, fmt.Errorf("attach: %w", err)
		}
		defer f.Close()
		abs, err := filepath.Abs(name)
		if err != nil {
			return a, fmt.Errorf("attach %s: %w", name, err)
		}
		in, a.uri = f, fileURI(abs)
	}
	var err error
	if a.data, err = io.ReadAll(io.LimitReader(in, maxEnclosure+1)); err != nil {
		return a, fmt.Errorf("attach: %w", err)
	}
	if len(a.data) > maxEnclosure {
		return a, fmt.Errorf("attach %s: it is larger than %d MiB", a.name, maxEnclosure>>20)
	}
	a.mime, _, _ = strings.Cut(mime.TypeByExtension(filepath.Ext(name)), ";")
	if detected := http.DetectContentType(a.data); a.mime == "" || strings.HasPrefix(detected, "image/") {
		a.mime, _, _ = strings.Cut(detected, ";")
	}
	// Systems know go.mod as music, and TypeScript as film.
	if kind, _, _ := strings.Cut(a.mime, "/"); a.text() && (kind == "audio" || kind == "video") {
		a.mime = "text/plain"
	}
	return a, nil
}

// refusedEnclosure says what is wrong with a name that can be no attachment; "" for others.
func refusedEnclosure(name string) string {
	scheme, _, address := strings.Cut(name, "://")
	switch {
	case name == "-":
		return ""
	case address && scheme != "http" && scheme != "https":
		return "addresses begin with http or https"
	case address:
		if u, err := url.Parse(name); err != nil || u.Host == "" {
			return "an address has a host, as https://example.com/page"
		}
		return ""
	}
	return refusedFile(name)
}

// refusedFile says what is wrong with a name that is not that of a file; "" for others.
func refusedFile(name string) string {
	_, err := os.Stat(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "there is no such file"
	case isFolder(name):
		return "it is a folder: name a file"
	}
	return ""
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func fileURI(abs string) string {
	p := filepath.ToSlash(abs)
	if !strings.HasPrefix(p, "/") {
		p = "/" + p // a drive
	}
	return (&url.URL{Scheme: "file", Path: p}).String()
}

// text reports whether the attachment is something to read.
func (a enclosure) text() bool {
	return utf8.Valid(a.data) && bytes.IndexByte(a.data, 0) < 0
}

// block returns the attachment as a part of a prompt, for an agent that takes this in
// prompts. Text that cannot go along as a file goes as text.
func (a enclosure) block(takes map[string]bool) (any, error) {
	kind, _, _ := strings.Cut(a.mime, "/")
	embedded := takes["embeddedContext"]
	switch {
	case a.link:
		return object{"type": "resource_link", "uri": a.uri, "name": a.name}, nil
	case a.text() && embedded:
		return object{"type": "resource", "resource": object{"uri": a.uri, "mimeType": a.mime, "text": string(a.data)}}, nil
	case a.text():
		return object{"type": "text", "text": a.name + ":\n\n" + string(a.data)}, nil
	case (kind == "image" || kind == "audio") && takes[kind]:
		return object{"type": kind, "mimeType": a.mime, "data": base64.StdEncoding.EncodeToString(a.data)}, nil
	case kind == "image" || kind == "audio" || !embedded:
		return nil, fmt.Errorf("attach %s: this agent takes no %s in prompts; let it read the file itself, or choose another agent", a.name, a.mime)
	}
	return object{"type": "resource", "resource": object{"uri": a.uri, "mimeType": a.mime, "blob": base64.StdEncoding.EncodeToString(a.data)}}, nil
}
