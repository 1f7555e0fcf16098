// Package docs_test keeps the documentation true: pages and links exist, what is
// shown was run, what is generated is up to date, and every operation of the
// HTTP API is explained.
//
// A line before a code block says what is done with it, as a comment of MDX or,
// in Markdown, of HTML:
//
//	{/* run */}              run in the page's shell, against a gateway
//	{/* run: background */}  the same, left running; waited for until it prints an address
//	{/* not run: REASON */}  only its syntax is checked
//	{/* file: NAME */}       of a guide: the reader copies it into this file, and so does the test
//	{/* from: FILE */}       a part of a program of this repository, word by word
//	{/* output */}           lines that the block before has printed; "..." stands for anything
//
// Every block of shell code needs one of the first three.
package docs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite generated pages")

// page is one file of documentation.
type page struct {
	name   string // file name; README.md is the repository's
	text   string
	blocks []block
	prose  string // the text without its code blocks and comments
}

// block is one fenced code block.
type block struct {
	line       int // of its fence, from 1
	lang, mark string
	text       string
}

func (b block) where(p page) string { return fmt.Sprintf("%s:%d", p.name, b.line) }

// pages returns all pages, and the README.
func pages(t testing.TB) []page {
	t.Helper()
	names, err := filepath.Glob("*.md*")
	if err != nil {
		t.Fatal(err)
	}
	var all []page
	for _, name := range append(names, "../README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parse(filepath.Base(name), string(b)))
	}
	if len(all) < 25 {
		t.Fatalf("%d pages, want at least 25", len(all))
	}
	return all
}

var (
	fence   = regexp.MustCompile("^(\\s*)```(\\w*)")
	comment = regexp.MustCompile(`^\s*(?:\{/\*|<!--)\s*(.*?)\s*(?:\*/\}|-->)\s*$`)
)

func parse(name, text string) page {
	p := page{name: name, text: text}
	var prose strings.Builder
	var open *block
	mark, n := "", 0
	for line := range strings.Lines(text) {
		n++
		switch m := fence.FindStringSubmatch(line); {
		case m != nil && open == nil:
			open = &block{line: n, lang: m[2], mark: mark}
			mark = ""
		case m != nil:
			p.blocks = append(p.blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		default:
			if c := comment.FindStringSubmatch(line); c != nil {
				mark = c[1]
				continue
			}
			if strings.TrimSpace(line) != "" {
				mark = ""
			}
			prose.WriteString(line)
		}
	}
	p.prose = prose.String()
	return p
}

func TestParse(t *testing.T) {
	p := parse("x", "a\n\n{/* run */}\n\n```sh\necho\n```\nb {/* c */}\n```json\n{}\n```\n")
	want := []block{{5, "sh", "run", "echo\n"}, {9, "json", "", "{}\n"}}
	if !slices.Equal(p.blocks, want) {
		t.Errorf("blocks %+v, want %+v", p.blocks, want)
	}
}

var image = regexp.MustCompile(`src="/(images/[^"]+)" alt="[^"]+"`)

// Pictures that pages show are there, small enough to be kept, and all are shown.
func TestImages(t *testing.T) {
	shown := map[string]bool{}
	for _, p := range pages(t) {
		found := image.FindAllStringSubmatch(p.text, -1)
		if n := strings.Count(p.text, "<img "); n != len(found) {
			t.Errorf("%s has %d pictures, of which %d have the form src=\"/images/...\" alt=\"...\"", p.name, n, len(found))
		}
		for _, m := range found {
			shown[m[1]] = true
			if info, err := os.Stat(m[1]); err != nil || info.Size() > 100<<10 || info.Size() < 1<<10 {
				t.Errorf("%s: %s is no picture of up to 100 KiB: %v", p.name, m[1], err)
			}
		}
	}
	files, err := filepath.Glob("images/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !shown[filepath.ToSlash(f)] {
			t.Errorf("no page shows %s", f)
		}
	}
	if len(files) == 0 {
		t.Error("there are no pictures")
	}
}

func TestNavigation(t *testing.T) {
	b, err := os.ReadFile("docs.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Navigation struct {
			Groups []struct{ Pages []string }
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, g := range doc.Navigation.Groups {
		for _, name := range g.Pages {
			if listed[name] {
				t.Errorf("docs.json lists %s twice", name)
			}
			listed[name] = true
		}
	}
	for _, p := range pages(t) {
		name, _, _ := strings.Cut(p.name, ".")
		switch {
		case p.name == "README.md":
		case !listed[name]:
			t.Errorf("docs.json does not list %s", name)
		case !strings.HasPrefix(p.text, "---\ntitle: ") || !strings.Contains(p.text, "\ndescription: "):
			t.Errorf("%s does not begin with a title and a description", p.name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("docs.json lists %s, which does not exist", name)
	}
}

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)|href="([^"]+)"`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	inline  = regexp.MustCompile("`[^`]*`")
)

// slug is the anchor of a heading.
func slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}

func TestLinks(t *testing.T) {
	all := pages(t)
	anchors := map[string]map[string]bool{}
	for _, p := range all {
		name, _, _ := strings.Cut(p.name, ".")
		anchors[name] = map[string]bool{"": true}
		for _, m := range heading.FindAllStringSubmatch(p.prose, -1) {
			anchors[name][slug(m[1])] = true
		}
	}
	for _, p := range all {
		own, _, _ := strings.Cut(p.name, ".")
		for _, m := range link.FindAllStringSubmatch(inline.ReplaceAllString(p.prose, "``"), -1) {
			target := m[1] + m[2]
			u, err := url.Parse(target)
			if err != nil {
				t.Errorf("%s: %s: %v", p.name, target, err)
				continue
			}
			switch {
			case u.Scheme != "":
				if u.Scheme != "https" || u.Host == "" {
					t.Errorf("%s: %s is not an https address", p.name, target)
				}
				continue
			case p.name == "README.md":
				if _, err := os.Stat(filepath.Join("..", u.Path)); err != nil {
					t.Errorf("%s: %s: %v", p.name, target, err)
				}
				continue
			case u.Path == "":
				u.Path = "/" + own
			case !strings.HasPrefix(u.Path, "/"):
				t.Errorf("%s: %s does not begin with /", p.name, target)
				continue
			}
			name := strings.TrimPrefix(u.Path, "/")
			if at, ok := anchors[name]; !ok || !at[u.Fragment] {
				t.Errorf("%s: %s leads nowhere", p.name, target)
			}
		}
	}
}
