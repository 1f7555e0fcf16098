package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fs"
)

// Files are the files that a server gives access to. Paths are absolute, or
// belong to the session's directory, else to the server's root or home
// directory.
type Files struct {
	c       *Client
	session string
}

// Files returns the server's files; session may be "".
func (c *Client) Files(session string) Files { return Files{c, session} }

func (f Files) query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" && pairs[i+1] != "false" {
			q.Add(pairs[i], pairs[i+1])
		}
	}
	if f.session != "" {
		q.Set("sessionId", f.session)
	}
	return q
}

// Content is a file that is being received.
type Content struct {
	io.ReadCloser
	From int64 // where in the file it begins
	Size int64 // of the whole file
	ETag string
}

// Get receives a file from an offset, if it still has the ETag, and else from
// its beginning.
func (f Files) Get(ctx context.Context, path string, from int64, etag string) (Content, error) {
	resp, err := f.c.send(ctx, call{
		method: http.MethodGet, path: []string{"v2", "fs", "file"}, query: f.query("path", path), accept: "*/*",
		prepare: func(r *http.Request) {
			if from > 0 && etag != "" {
				r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
				r.Header.Set("If-Range", etag)
			}
		},
	})
	if err != nil {
		return Content{}, err
	}
	got := Content{ReadCloser: resp.Body, Size: resp.ContentLength, ETag: resp.Header.Get("ETag")}
	if resp.StatusCode == http.StatusPartialContent {
		got.From, got.Size = from, from+resp.ContentLength
	}
	return got, nil
}

// PutOptions say how a file is written.
type PutOptions struct {
	Mode    string // octal; "" leaves it to the server
	Parents bool   // make missing folders
	IfMatch string // the ETag that the old file must have
	New     bool   // there must be no old file
	Size    int64  // of the content; -1 when it is not known
}

// Put writes a file.
func (f Files) Put(ctx context.Context, path string, content io.Reader, o PutOptions) (fs.Entry, error) {
	var e fs.Entry
	resp, err := f.c.send(ctx, call{
		method: http.MethodPut, path: []string{"v2", "fs", "file"}, accept: "application/json",
		query: f.query("path", path, "mode", o.Mode, "parents", strconv.FormatBool(o.Parents)),
		prepare: func(r *http.Request) {
			upload(r, content, o.Size, "application/octet-stream")
			if o.IfMatch != "" {
				r.Header.Set("If-Match", o.IfMatch)
			}
			if o.New {
				r.Header.Set("If-None-Match", "*")
			}
		},
	})
	if err != nil {
		return e, err
	}
	return e, decode(resp, &e)
}

// upload gives a request a body. The server is asked first whether it wants it.
func upload(r *http.Request, content io.Reader, size int64, media string) {
	r.Body, r.ContentLength = io.NopCloser(content), size
	if size == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set("Content-Type", media)
	r.Header.Set("Expect", "100-continue")
}

// Stat describes an entry; with follow, what a symbolic link leads to.
func (f Files) Stat(ctx context.Context, path string, follow bool) (fs.Entry, error) {
	return get[fs.Entry](ctx, f.c, f.query("path", path, "follow", strconv.FormatBool(follow)), "v2", "fs", "stat")
}

// List returns a page of what is in a folder.
func (f Files) List(ctx context.Context, path string, o fs.ListOptions) (fs.Page, error) {
	order := ""
	if o.Descending {
		order = "desc"
	}
	q := f.query("path", path, "recursive", strconv.FormatBool(o.Recursive), "hidden", strconv.FormatBool(o.Hidden),
		"sort", string(o.Sort), "order", order, "cursor", o.Cursor)
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return get[fs.Page](ctx, f.c, q, "v2", "fs", "entries")
}

// Mkdir makes a folder.
func (f Files) Mkdir(ctx context.Context, path, mode string, parents bool) (fs.Entry, error) {
	return f.post(ctx, "mkdir", f.query("path", path, "mode", mode, "parents", strconv.FormatBool(parents)))
}

// Move gives something a new path.
func (f Files) Move(ctx context.Context, from, to string, o fs.PlaceOptions) (fs.Entry, error) {
	return f.post(ctx, "move", f.placing(from, to, o))
}

// Copy copies something to a new path.
func (f Files) Copy(ctx context.Context, from, to string, o fs.PlaceOptions) (fs.Entry, error) {
	return f.post(ctx, "copy", f.placing(from, to, o))
}

func (f Files) placing(from, to string, o fs.PlaceOptions) url.Values {
	return f.query("from", from, "to", to, "overwrite", strconv.FormatBool(o.Overwrite), "parents", strconv.FormatBool(o.Parents))
}

func (f Files) post(ctx context.Context, what string, q url.Values) (e fs.Entry, err error) {
	err = f.c.do(ctx, http.MethodPost, q, &e, "v2", "fs", what)
	return e, err
}

// Delete removes an entry; with recursive, a folder with all that is in it.
func (f Files) Delete(ctx context.Context, path string, recursive bool) error {
	return f.c.do(ctx, http.MethodDelete, f.query("path", path, "recursive", strconv.FormatBool(recursive)), nil, "v2", "fs", "entry")
}

// Upload unpacks a tar archive, plain, gzip or zstd, into a folder.
func (f Files) Upload(ctx context.Context, path string, archive io.Reader) (fs.Unpacked, error) {
	var u fs.Unpacked
	resp, err := f.c.send(ctx, call{
		method: http.MethodPost, path: []string{"v2", "fs", "upload-batch"}, query: f.query("path", path), accept: "application/json",
		prepare: func(r *http.Request) { upload(r, archive, -1, "application/x-tar") },
	})
	if err != nil {
		return u, err
	}
	return u, decode(resp, &u)
}

// Download returns a tar archive of paths. The caller closes it.
func (f Files) Download(ctx context.Context, paths ...string) (io.ReadCloser, error) {
	q := f.query()
	q["path"] = paths
	resp, err := f.c.send(ctx, call{method: http.MethodGet, path: []string{"v2", "fs", "download-batch"}, query: q, accept: "application/x-tar"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Search finds names or lines.
func (f Files) Search(ctx context.Context, path string, o fs.SearchOptions) (fs.Found, error) {
	q := f.query("path", path, "name", o.Name, "content", o.Content, "regexp", strconv.FormatBool(o.Regexp), "ignoreCase", strconv.FormatBool(o.IgnoreCase),
		"hidden", strconv.FormatBool(o.Hidden), "ignored", strconv.FormatBool(o.Ignored), "cursor", o.Cursor)
	if o.Limit > 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	return get[fs.Found](ctx, f.c, q, "v2", "fs", "search")
}

// Watch yields the changes in a folder. It ends without an error when the
// folder is gone or the server ends the stream; a pair with an error is the
// last. ready, if not nil, is called when every later change will be told.
func (f Files) Watch(ctx context.Context, path string, o fs.WatchOptions, ready func()) iter.Seq2[fs.Change, error] {
	return func(yield func(fs.Change, error) bool) {
		if err := f.watch(ctx, path, o, ready, yield); err != nil {
			yield(fs.Change{}, err)
		}
	}
}

func (f Files) watch(ctx context.Context, path string, o fs.WatchOptions, ready func(), yield func(fs.Change, error) bool) error {
	resp, err := f.c.send(ctx, call{
		method: http.MethodGet, path: []string{"v2", "fs", "watch"}, accept: sse.ContentType,
		query: f.query("path", path, "recursive", strconv.FormatBool(o.Recursive), "hidden", strconv.FormatBool(o.Hidden)),
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := sse.NewDecoder(resp.Body, maxEvent)
	for {
		ev, err := dec.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		switch ev.Type {
		case "ready":
			if ready != nil {
				ready()
			}
		case "change":
			var c fs.Change
			if err := json.Unmarshal(ev.Data, &c); err != nil {
				return fmt.Errorf("read changes: %w", err)
			}
			if !yield(c, nil) {
				return nil
			}
		case "error":
			if p := acphttp.DecodeProblem(ev.Data); p != nil {
				return p
			}
			return fmt.Errorf("read changes: the server ended the stream: %s", ev.Data)
		}
	}
}

// GitStatus says what differs from what was committed, below a folder.
func (f Files) GitStatus(ctx context.Context, path string) (fs.GitStatus, error) {
	return get[fs.GitStatus](ctx, f.c, f.query("path", path), "v2", "fs", "git", "status")
}

// GitRecent is GitStatus with commits by which another repository finds what this one has.
func (f Files) GitRecent(ctx context.Context, path string) (fs.GitStatus, error) {
	q := f.query("path", path)
	q.Set("recent", "true")
	return get[fs.GitStatus](ctx, f.c, q, "v2", "fs", "git", "status")
}

// Checksums returns the SHA-256 and the path of each file that would travel with a session
// of a folder, as "sha256sum -z" writes them, for ExportOptions. The caller closes it; one
// that ends with an error is not whole.
func (f Files) Checksums(ctx context.Context, path string) (io.ReadCloser, error) {
	resp, err := f.c.send(ctx, call{method: http.MethodGet, path: []string{"v2", "fs", "checksums"}, query: f.query("path", path), accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// GitDiff returns a patch. cut says that it was longer.
func (f Files) GitDiff(ctx context.Context, path string, o fs.DiffOptions) (patch []byte, cut bool, err error) {
	resp, err := f.c.send(ctx, call{
		method: http.MethodGet, path: []string{"v2", "fs", "git", "diff"}, accept: "text/x-diff",
		query: f.query("path", path, "staged", strconv.FormatBool(o.Staged), "base", o.Base, "binary", strconv.FormatBool(o.Binary)),
	})
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	if patch, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return nil, false, fmt.Errorf("read the patch: %w", err)
	}
	return patch, resp.Header.Get("Sandbox-Agent-Truncated") != "", nil
}
