package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fs"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	// rpcContent bounds what one method carries of a file. Larger files go in
	// parts, or over the HTTP routes.
	rpcContent = 8 << 20
	// rpcCalls bounds the methods that are carried out at one time; more wait.
	rpcCalls = 16
)

// FileMethods gives clients of the agent protocol the file service, for those
// that reach nothing else. It is safe for concurrent use.
type FileMethods struct {
	fs   *fs.Service
	busy chan struct{} // holds one for each call under way
}

var _ runtime.Files = (*FileMethods)(nil)

// NewFileMethods returns the methods of a file service.
func NewFileMethods(files *fs.Service) *FileMethods {
	return &FileMethods{files, make(chan struct{}, rpcCalls)}
}

// fileParams are the parameters of all methods.
type fileParams struct {
	Path      string `json:"path"`
	From      string `json:"from"`
	To        string `json:"to"`
	Content   []byte `json:"content"`
	Offset    int64  `json:"offset"`
	Length    int64  `json:"length"`
	Mode      string `json:"mode"`
	Parents   bool   `json:"parents"`
	Overwrite bool   `json:"overwrite"`
	Recursive bool   `json:"recursive"`
	Follow    bool   `json:"follow"`
	Hidden    bool   `json:"hidden"`
	Sort      string `json:"sort"`
	Order     string `json:"order"`
	Cursor    string `json:"cursor"`
	Limit     int    `json:"limit"`
	IfMatch   string `json:"ifMatch"`
	New       bool   `json:"new"`
}

type fileMethod func(ctx context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error)

const filePrefix = "_sandboxagent/fs/"

var fileMethods = map[string]fileMethod{
	filePrefix + "stat": func(_ context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		return f.Stat(at(p.Path), p.Follow)
	},
	filePrefix + "list_entries": func(ctx context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		if p.Limit == 0 {
			p.Limit = defaultPage
		}
		if p.Limit < 1 || p.Limit > maxPage {
			return nil, problem.New(problem.InvalidRequest, "limit must be between 1 and %d", maxPage)
		}
		down, err := descending(p.Order)
		if err != nil {
			return nil, err
		}
		o := fs.ListOptions{Recursive: p.Recursive, Hidden: p.Hidden, Sort: fs.Sort(p.Sort), Descending: down, Limit: p.Limit, Cursor: p.Cursor}
		return f.List(ctx, at(p.Path), o)
	},
	filePrefix + "read_file": readPart,
	filePrefix + "write_file": func(_ context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		mode, err := p.mode()
		if err != nil {
			return nil, err
		}
		path := at(p.Path)
		e, _, err := f.Write(path, bytes.NewReader(p.Content), fs.WriteOptions{
			Mode: mode, Parents: p.Parents, New: p.New,
			Check: func(etag string) error { return checkETag(path, etag, p.IfMatch, "") },
		})
		return e, err
	},
	filePrefix + "delete_entry": func(_ context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		return struct{}{}, f.Delete(at(p.Path), p.Recursive)
	},
	filePrefix + "mkdir": func(_ context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		mode, err := p.mode()
		if err != nil {
			return nil, err
		}
		perm := fs.NewDirectory
		if mode != nil {
			perm = *mode
		}
		return f.Mkdir(at(p.Path), perm, p.Parents)
	},
	filePrefix + "move": func(ctx context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		return f.Move(ctx, at(p.From), at(p.To), fs.PlaceOptions{Overwrite: p.Overwrite, Parents: p.Parents})
	},
	filePrefix + "upload_batch": func(ctx context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
		in := bytes.NewReader(p.Content)
		body, consumed, end, err := decompress(in, func() int64 { return in.Size() - int64(in.Len()) })
		if err != nil {
			return nil, err
		}
		defer end()
		return f.Unpack(ctx, at(p.Path), body, consumed)
	},
}

// filePart is a part of a file.
type filePart struct {
	Content []byte `json:"content"` // base64
	Offset  int64  `json:"offset"`
	Size    int64  `json:"size"` // of the whole file
	EOF     bool   `json:"eof"`  // nothing follows
	ETag    string `json:"etag"`
}

// readPart reads a part of a file.
func readPart(_ context.Context, f *fs.Service, p fileParams, at func(string) string) (any, error) {
	if p.Offset < 0 || p.Length < 0 || p.Length > rpcContent {
		return nil, problem.New(problem.InvalidRequest, "offset must not be negative, and length must be between 1 and %d", rpcContent)
	}
	if p.Length == 0 {
		p.Length = rpcContent
	}
	file, e, err := f.Open(at(p.Path))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b := make([]byte, max(0, min(p.Length, e.Size-p.Offset)))
	n, err := file.ReadAt(b, p.Offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", e.Path, err)
	}
	return filePart{Content: b[:n], Offset: p.Offset, Size: e.Size, EOF: p.Offset+int64(n) >= e.Size, ETag: e.ETag}, nil
}

func (p *fileParams) mode() (*os.FileMode, error) {
	if p.Mode == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(p.Mode, 8, 12)
	if err != nil || n > 0o777 {
		return nil, problem.New(problem.InvalidRequest, "mode must be permissions in octal, such as 0644, not %q", p.Mode)
	}
	mode := os.FileMode(n)
	return &mode, nil
}

// Methods implements runtime.Files.
func (m *FileMethods) Methods() []string {
	names := make([]string, 0, len(fileMethods))
	for name := range fileMethods {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Call implements runtime.Files.
func (m *FileMethods) Call(ctx context.Context, method, cwd string, params json.RawMessage) (any, error) {
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	case <-ctx.Done():
		return nil, errStopping()
	}
	call := fileMethods[method]
	if call == nil {
		return nil, problem.New(problem.NotSupported, "there is no method %s", method)
	}
	var p fileParams
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, problem.Wrap(problem.InvalidRequest, problem.InJSON(err), "the params of %s cannot be read", method)
	}
	if len(p.Content) > rpcContent {
		return nil, problem.New(problem.PayloadTooLarge, "content has %d bytes, at most %d: use PUT /v2/fs/file or POST /v2/fs/upload-batch", len(p.Content), rpcContent)
	}
	// Which of the paths a method has, it knows itself; the others are not asked for.
	var bad error
	at := func(path string) string {
		abs, err := m.fs.Resolve(path, cwd)
		if err != nil && bad == nil {
			bad = err
		}
		return abs
	}
	result, err := call(ctx, m.fs, p, at)
	if bad != nil {
		err = bad
	}
	if err != nil {
		return nil, fileProblem(err)
	}
	return result, nil
}
