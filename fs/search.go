package fs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// SearchLimits bound one search. A search that reaches one answers with what it
// has, and can be continued.
type SearchLimits struct {
	Time  time.Duration // 10 s
	Files int           // entries that are looked at: 200,000
	Size  int64         // of a file whose content is searched: 16 MiB
}

func (l SearchLimits) withDefaults() SearchLimits {
	if l.Time <= 0 {
		l.Time = 10 * time.Second
	}
	if l.Files <= 0 {
		l.Files = 200_000
	}
	if l.Size <= 0 {
		l.Size = 16 << 20
	}
	return l
}

// SearchOptions say what is searched for. One of Name and Content is needed;
// with both the content of files with such names is searched.
type SearchOptions struct {
	// Name is a part of a name or, with any of *?[, a pattern for all of it; a
	// pattern with a slash is for the path below the folder.
	Name string
	// Content is what a line contains: text or, with Regexp, a regular
	// expression of the kind that takes linear time (RE2).
	Content    string
	Regexp     bool
	IgnoreCase bool
	Hidden     bool // also names that begin with a dot
	Ignored    bool // also what git ignores
	Limit      int  // of matches; more than 0
	Cursor     string
}

// Found is what a search found.
type Found struct {
	Matches []Match `json:"matches"`
	// NextCursor continues the search where it stopped; "" when it is complete.
	NextCursor string `json:"nextCursor,omitempty"`
	// Stopped says why it is not: matches, files or time.
	Stopped string `json:"stopped,omitempty"`
	Files   int    `json:"files"` // entries that were looked at
	// Skipped counts files that are larger than what is searched, that are not
	// text, and files and folders that cannot be read.
	Skipped int `json:"skipped"`
}

// Match is one name or one line.
type Match struct {
	Path    string `json:"path"`
	RawPath []byte `json:"rawPath,omitempty"` // as of Entry
	Type    Type   `json:"type"`
	Line    int    `json:"line,omitempty"`   // from 1; absent for names
	Column  int    `json:"column,omitempty"` // from 1, in bytes
	Text    string `json:"text,omitempty"`   // of the line, at most 512 bytes of it
}

// shownLine bounds what is shown of a line.
const shownLine = 512

// Search looks for names or content below the folder at path, in the order of
// names. Symbolic links are not followed.
func (s *Service) Search(ctx context.Context, path string, o SearchOptions) (Found, error) {
	name, err := s.name(path)
	if err != nil {
		return Found{}, err
	}
	q := search{s: s, path: path, o: o, found: Found{Matches: []Match{}}}
	if err := q.prepare(); err != nil {
		return Found{}, err
	}
	dir, err := s.folder(name)
	if err != nil {
		return Found{}, explain(err, "open %s", path)
	}
	defer dir.Close()
	if !o.Ignored {
		q.rules = s.rulesAbove(path)
	}
	limited, cancel := context.WithTimeout(ctx, s.o.Search.Time)
	defer cancel()
	w := walk{s: s, enter: q.enter, leave: q.leave, failed: func(rel string, err error) error {
		if rel == "" {
			return err
		}
		q.found.Skipped++
		return nil
	}}
	w.visit = func(f found) (bool, error) { return q.visit(limited, f) }
	err = w.below(limited, dir, "")
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		q.stop("time", q.done)
		err = nil
	}
	if err != nil {
		return Found{}, explain(err, "search %s", path)
	}
	return q.found, nil
}

// position is where a search stands: behind a line of a file, or behind all of
// it. The zero position is before everything.
type position struct {
	rel  string
	line int // wholeFile for all of it
}

const wholeFile = -1

type search struct {
	s     *Service
	path  string
	o     SearchOptions
	names func(rel, base string) bool
	lines func(line []byte) int // column from 0, -1 for no match

	rules *rules
	stack []*rules // of the folders above the present one
	after position // where to continue
	done  position // what has been searched
	found Found
}

func (q *search) prepare() error {
	flags := ""
	if q.o.IgnoreCase {
		flags = "i"
	}
	switch {
	case q.o.Name == "" && q.o.Content == "":
		return failf(Invalid, "nothing is searched for: give a name or content")
	case q.o.Name == "":
		q.names = func(string, string) bool { return true }
	case strings.ContainsAny(q.o.Name, "*?["):
		re, ok := glob(q.o.Name, flags)
		if !ok {
			return failf(Invalid, "the pattern %q matches nothing: a [ has no ], or it ends in a backslash", q.o.Name)
		}
		whole := strings.Contains(q.o.Name, "/")
		q.names = func(rel, base string) bool {
			if whole {
				return re.MatchString(rel)
			}
			return re.MatchString(base)
		}
	default:
		part := q.o.Name
		if q.o.IgnoreCase {
			part = strings.ToLower(part)
		}
		q.names = func(_, base string) bool {
			if q.o.IgnoreCase {
				base = strings.ToLower(base)
			}
			return strings.Contains(base, part)
		}
	}
	if q.o.Content != "" {
		if err := q.prepareLines(flags); err != nil {
			return err
		}
	}
	if q.o.Cursor == "" {
		return nil
	}
	b, err := base64.RawURLEncoding.DecodeString(q.o.Cursor)
	line, rel, ok := strings.Cut(string(b), "/")
	n, nerr := strconv.Atoi(line)
	if err != nil || !ok || nerr != nil {
		return failf(Invalid, "the cursor is not one: use nextCursor of the answer before")
	}
	q.after = position{rel, n}
	q.done = q.after
	return nil
}

func (q *search) prepareLines(flags string) error {
	if !q.o.Regexp && !q.o.IgnoreCase {
		text := []byte(q.o.Content)
		q.lines = func(line []byte) int { return bytes.Index(line, text) }
		return nil
	}
	expr := q.o.Content
	if !q.o.Regexp {
		expr = regexp.QuoteMeta(expr)
	}
	if flags != "" {
		expr = "(?" + flags + ")" + expr
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return failf(Invalid, "the regular expression cannot be read: %s", err)
	}
	q.lines = func(line []byte) int {
		if at := re.FindIndex(line); at != nil {
			return at[0]
		}
		return -1
	}
	return nil
}

func (q *search) enter(dir *os.Root, rel string) error {
	q.stack = append(q.stack, q.rules)
	if !q.o.Ignored {
		if next := rulesOf(dir, ".gitignore", q.rules); next != q.rules {
			next.dir = rel
			q.rules = next
		}
	}
	return nil
}

func (q *search) leave() {
	q.rules = q.stack[len(q.stack)-1]
	q.stack = q.stack[:len(q.stack)-1]
}

// stop ends the search behind a position.
func (q *search) stop(why string, at position) {
	q.found.Stopped = why
	q.found.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(at.line) + "/" + at.rel))
}

func (q *search) visit(ctx context.Context, f found) (into bool, err error) {
	folder := f.info.IsDir()
	if !q.o.Hidden && f.name[0] == '.' || !q.o.Ignored && (f.name == ".git" || q.rules.ignores(f.rel, folder)) {
		return false, nil
	}
	from := 0
	if q.after.rel != "" {
		switch c := order(f.rel, q.after.rel); {
		case c < 0, c == 0 && q.after.line == wholeFile:
			return within(q.after.rel, f.rel), nil
		case c == 0:
			from = q.after.line
		}
	}
	if q.found.Files == q.s.o.Search.Files {
		q.stop("files", q.done)
		return false, errStop
	}
	q.found.Files++
	if q.names(f.rel, f.name) {
		switch {
		case q.lines == nil:
			if err := q.add(f, Match{}, q.done); err != nil {
				return false, err
			}
		case f.info.Mode().IsRegular():
			if err := q.content(ctx, f, from); err != nil {
				return false, err
			}
		}
	}
	q.done = position{f.rel, wholeFile}
	return true, nil
}

// add adds a match, or stops the search behind before.
func (q *search) add(f found, m Match, before position) error {
	if len(q.found.Matches) == q.o.Limit {
		q.stop("matches", before)
		return errStop
	}
	m.Path, m.Type = filepath.Join(q.path, filepath.FromSlash(f.rel)), typeOf(f.info.Mode())
	if !utf8.ValidString(m.Path) {
		m.RawPath = []byte(m.Path)
	}
	q.found.Matches = append(q.found.Matches, m)
	return nil
}

// content searches the lines of a file behind a line.
func (q *search) content(ctx context.Context, f found, from int) error {
	if f.info.Size() > q.s.o.Search.Size {
		q.found.Skipped++
		return nil
	}
	file, err := f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		q.found.Skipped++
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || q.s.confined() && inProc(file) {
		q.found.Skipped++
		return nil
	}
	r := bufio.NewReaderSize(file, 64<<10)
	if head, _ := r.Peek(8 << 10); bytes.IndexByte(head, 0) >= 0 {
		q.found.Skipped++ // as git, take it for no text
		return nil
	}
	offset := 0 // of the piece in its line; lines longer than the buffer come in pieces
	for line, matched := 1, false; ; {
		piece, err := r.ReadSlice('\n')
		if len(piece) > 0 && line > from && !matched {
			if at := q.lines(bytes.TrimSuffix(bytes.TrimSuffix(piece, []byte("\n")), []byte("\r"))); at >= 0 {
				matched = true
				m := Match{Line: line, Column: offset + at + 1, Text: excerpt(piece, at)}
				if err := q.add(f, m, q.done); err != nil {
					return err
				}
				q.done = position{f.rel, line}
			}
		}
		switch {
		case err == nil:
			line, matched, offset = line+1, false, 0
		case errors.Is(err, bufio.ErrBufferFull):
			offset += len(piece)
		default:
			return nil // the end; what cannot be read has none
		}
		// A line behind where the search was continued has been looked at, so that it
		// comes further, however little time there is.
		if line%1024 == 0 && line-1 > from && ctx.Err() != nil {
			if q.done != (position{f.rel, line}) { // there is no match in the piece before
				q.done = position{f.rel, line - 1}
			}
			return ctx.Err()
		}
	}
}

// excerpt is what is shown of a line with a match.
func excerpt(line []byte, at int) string {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) > shownLine {
		begin := max(0, min(at-shownLine/4, len(line)-shownLine))
		line = line[begin : begin+shownLine]
	}
	return strings.ToValidUTF8(string(line), "\ufffd")
}
