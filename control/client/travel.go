package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// ExportOptions say what is taken out of a session that is exported.
type ExportOptions struct {
	Redact      []string // regular expressions, beside what looks like a key
	KeepSecrets bool     // leave in what looks like a key
	Workspace   bool     // take along the files of the session's directory
	Open        bool     // leave the session open; one that goes on meanwhile is refused with a conflict
	WithoutLog  bool     // leave out the log: such a file is for a hub, which has it
	Have        []string // commits that the other side has: what they reach is left out
	// Checksums are files that the other side has, as Files.Checksums returns them: their
	// content is left out. Such a file can be imported there only. nil for none.
	Checksums io.Reader
	// Begun is told about how many bytes the file has when it is unpacked, as parcel.Passing
	// counts them; may be nil.
	Begun func(bytes int64)
}

// ExportSession returns all of a session as one file, for ImportSession of another
// gateway. It is closed while it is read, if the options do not say otherwise. The caller closes the file; one that ends with
// an error is not whole.
func (c *Client) ExportSession(ctx context.Context, id string, o ExportOptions) (io.ReadCloser, error) {
	q := url.Values{"redact": o.Redact, "keepSecrets": {strconv.FormatBool(o.KeepSecrets)}, "workspace": {strconv.FormatBool(o.Workspace)}, "have": o.Have}
	if o.Open {
		q.Set("open", "true")
	}
	if o.WithoutLog {
		q.Set("log", "false")
	}
	out := call{method: http.MethodGet, path: []string{"v2", "sessions", id, "export"}, query: q, accept: "*/*"}
	if o.Checksums != nil {
		out.method = http.MethodPost
		out.prepare = func(r *http.Request) { upload(r, o.Checksums, -1, "application/octet-stream") }
	}
	resp, err := c.send(ctx, out)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Sandbox-Agent-Bytes"), 10, 64); err == nil && o.Begun != nil {
		o.Begun(n)
	}
	return resp.Body, nil
}

// ImportOptions say how a session is imported.
type ImportOptions struct {
	Cwd  string // the session's directory at the gateway; "" is the one that it had
	Size int64  // of the file; 0 or less when it is not known
	// Trust takes over the settings that can run programs, or allow something: for files
	// of one's own.
	Trust bool
	// Workspace makes the workspace of the file in Cwd, which must be empty or not there.
	Workspace bool
	// Merge puts the workspace together with files that are in Cwd. What both sides have
	// changed is named by a problem of the kind conflict, and nothing is touched.
	Merge bool
	// Closed has the session arrive closed: whoever goes on with it opens it.
	Closed bool
	// Replace takes the place of what a move has left at the gateway.
	Replace bool
}

// ImportSession makes a session of a file of ExportSession.
func (c *Client) ImportSession(ctx context.Context, file io.Reader, o ImportOptions) (runtime.Imported, error) {
	q := url.Values{"trust": {strconv.FormatBool(o.Trust)}, "workspace": {strconv.FormatBool(o.Workspace)}}
	for name, on := range map[string]bool{"merge": o.Merge, "closed": o.Closed, "replace": o.Replace} {
		if on {
			q.Set(name, "true")
		}
	}
	if o.Cwd != "" {
		q.Set("cwd", o.Cwd)
	}
	if o.Size <= 0 {
		o.Size = -1
	}
	resp, err := c.send(ctx, call{
		method: http.MethodPost, path: []string{"v2", "sessions", "import"}, query: q, accept: "application/json",
		prepare: func(r *http.Request) { upload(r, file, o.Size, parcel.ContentType) },
	})
	if err != nil {
		return runtime.Imported{}, err
	}
	var got runtime.Imported
	return got, decode(resp, &got)
}

// DepartSession closes a session that goes on at the gateway at to, and notes that in its
// metadata. It is refused when the session works, has events behind last, or was edited since it had so many edits, where
// those are given.
func (c *Client) DepartSession(ctx context.Context, id string, last uint64, edits *uint64, to string) error {
	q := url.Values{"movedTo": {to}, "lastSeq": {strconv.FormatUint(last, 10)}}
	if edits != nil {
		q.Set("edits", strconv.FormatUint(*edits, 10))
	}
	err := c.do(ctx, http.MethodPost, q, nil, "v2", "sessions", id, "close")
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.InvalidRequest && p.Extensions["parameter"] == "edits" {
		q.Del("edits") // a gateway of an earlier version
		err = c.do(ctx, http.MethodPost, q, nil, "v2", "sessions", id, "close")
	}
	return err
}
