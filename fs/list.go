package fs

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sort is an order of entries.
type Sort string

// The orders of entries; ties are in the order of names.
const (
	ByName     Sort = "name"
	BySize     Sort = "size"
	ByModified Sort = "modified"
)

// ListOptions say what of a folder is listed.
type ListOptions struct {
	Recursive  bool // also what is in folders below; in the order of names only
	Hidden     bool // also names that begin with a dot
	Sort       Sort // "" is ByName
	Descending bool
	Limit      int    // of a page; more than 0
	Cursor     string // NextCursor of the page before
}

// Page is a page of entries.
type Page struct {
	Entries    []Listed `json:"entries"`
	NextCursor string   `json:"nextCursor,omitempty"`
}

// Listed is an entry of a list.
type Listed struct {
	Entry
	// Error says why what is in a folder is missing from a recursive list.
	Error string `json:"error,omitempty"`
}

// List returns a page of what is in the folder at path. Entries that come or go
// between pages may be in or not; all others are in exactly one page.
func (s *Service) List(ctx context.Context, path string, o ListOptions) (Page, error) {
	if o.Sort == "" {
		o.Sort = ByName
	}
	switch {
	case !slices.Contains([]Sort{ByName, BySize, ByModified}, o.Sort):
		return Page{}, failf(Invalid, "sort %q is unknown: use name, size or modified", o.Sort)
	case o.Recursive && (o.Sort != ByName || o.Descending):
		return Page{}, failf(Invalid, "a recursive list is in the order of names only: leave sort and order out")
	}
	after, err := base64.RawURLEncoding.DecodeString(o.Cursor)
	if err != nil {
		return Page{}, failf(Invalid, "the cursor is not one: use nextCursor of the page before")
	}
	name, err := s.name(path)
	if err != nil {
		return Page{}, err
	}
	dir, err := s.folder(name)
	if err != nil {
		return Page{}, explain(err, "open %s", path)
	}
	defer dir.Close()
	l := listing{s: s, path: path, o: o, after: string(after), page: Page{Entries: []Listed{}}}
	if o.Recursive || o.Sort == ByName && !o.Descending {
		err = l.walk(ctx, dir)
	} else {
		err = l.sorted(ctx, dir)
	}
	if err != nil {
		return Page{}, explain(err, "list %s", path)
	}
	return l.page, nil
}

type listing struct {
	s     *Service
	path  string
	o     ListOptions
	after string
	page  Page
}

func (l *listing) add(f found) {
	e := Listed{Entry: entryOf(filepath.Join(l.path, filepath.FromSlash(f.rel)), f.info)}
	if e.Type == Symlink {
		e.Target, _ = f.dir.Readlink(f.name) // it may be gone by now
	}
	l.page.Entries = append(l.page.Entries, e)
}

// more says that there are entries behind the last of the page.
func (l *listing) more(key string) {
	l.page.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(key))
}

// walk lists in the order of names, page by page without looking at what is on
// other pages.
func (l *listing) walk(ctx context.Context, dir *os.Root) error {
	last := ""
	w := walk{s: l.s, visit: func(f found) (bool, error) {
		if !l.o.Hidden && f.name[0] == '.' {
			return false, nil
		}
		if l.after != "" && order(f.rel, l.after) <= 0 {
			return l.o.Recursive && within(l.after, f.rel), nil
		}
		if len(l.page.Entries) == l.o.Limit {
			l.more(last)
			return false, errStop
		}
		last = f.rel
		l.add(f)
		return l.o.Recursive, nil
	}, failed: func(rel string, err error) error {
		if rel == "" {
			return err
		}
		if n := len(l.page.Entries); n > 0 && last == rel {
			l.page.Entries[n-1].Error = cause(err).Error()
		}
		return nil
	}}
	return w.below(ctx, dir, "")
}

// sorted lists in another order, for which all of the folder must be looked at.
func (l *listing) sorted(ctx context.Context, dir *os.Root) error {
	names, err := l.s.names(dir)
	if err != nil {
		return err
	}
	type item struct {
		found
		key int64
	}
	compare := func(a, b item) int {
		c := cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.name, b.name))
		if l.o.Descending {
			return -c
		}
		return c
	}
	var all []item
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !l.o.Hidden && name[0] == '.' {
			continue
		}
		info, err := dir.Lstat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		it := item{found: found{dir, name, name, info}}
		switch l.o.Sort {
		case BySize:
			if info.Mode().IsRegular() {
				it.key = info.Size()
			}
		case ByModified:
			it.key = info.ModTime().UnixNano()
		}
		all = append(all, it)
	}
	slices.SortFunc(all, compare)
	if l.after != "" {
		key, name, ok := strings.Cut(l.after, "/")
		n, err := strconv.ParseInt(key, 10, 64)
		if !ok || err != nil {
			return failf(Invalid, "the cursor is not one: use nextCursor of the page before, with the same sort")
		}
		last := item{found: found{name: name}, key: n}
		all = slices.DeleteFunc(all, func(it item) bool { return compare(it, last) <= 0 })
	}
	for i, it := range all {
		if i == l.o.Limit {
			last := all[i-1]
			l.more(strconv.FormatInt(last.key, 10) + "/" + last.name)
			break
		}
		l.add(it.found)
	}
	return nil
}
