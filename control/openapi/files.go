package openapi

import (
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fs"
)

// pathProblems are those of every operation that is given a path.
var pathProblems = []problem.Kind{
	problem.InvalidRequest, problem.SessionNotFound, problem.NotFound, problem.PathEscapes, problem.NotADirectory, problem.NotAFile, problem.NotSupported,
}

// fileOperations describe the file service.
func fileOperations() []operation {
	const rule = " Absolute, or relative to the session's directory, else to the server's root or home directory. Bytes that are not UTF-8 are sent percent-encoded as they are."
	pathOf := func(name, description string) *openapi3.Parameter {
		return query(name, description+rule, openapi3.NewStringSchema().WithMinLength(1)).WithRequired(true)
	}
	path := pathOf("path", "A path.")
	paths := query("path", "A path; may be repeated."+rule, openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema().WithMinLength(1)).WithMinItems(1)).WithRequired(true)
	session := query("sessionId", "The session whose directory relative paths belong to.", openapi3.NewStringSchema())
	flag := func(name, description string) *openapi3.Parameter {
		return query(name, description, openapi3.NewBoolSchema().WithDefault(false))
	}
	mode := query("mode", "Permissions in octal, such as 0644.", openapi3.NewStringSchema().WithPattern("^[0-7]{1,4}$"))
	parents := flag("parents", "Make missing folders.")
	overwrite := flag("overwrite", "Replace what is there, a folder with all that is in it.")
	binary := func(description string, types ...string) *openapi3.Response {
		return openapi3.NewResponse().WithDescription(description).
			WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), types))
	}
	upload := func(description string, types ...string) *openapi3.RequestBody {
		return openapi3.NewRequestBody().WithDescription(description).WithRequired(true).
			WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), types))
	}
	entry := func(description string) map[int]*openapi3.Response {
		return one(200, jsonResponse(description, "FileEntry"))
	}
	with := func(more ...problem.Kind) []problem.Kind {
		return append(append([]problem.Kind{}, pathProblems...), more...)
	}
	params := func(p ...*openapi3.Parameter) []*openapi3.Parameter { return append(p, session) }
	archive := []string{"application/x-tar", "application/gzip", "application/zstd"}
	ops := []operation{
		{
			method: http.MethodGet, path: "/v2/fs/file", id: "getFile", summary: "Read a file",
			description: "Answers ranges, If-None-Match, If-Match and If-Range.",
			params:      params(path, header("Range", "Parts of the file."), header("If-None-Match", "ETags that the client has."), header("If-Match", "ETags that the file must have."), header("If-Range", "The ETag that the range belongs to.")),
			responses: map[int]*openapi3.Response{
				200: binary("The file.", "*/*"), 206: binary("Parts of it.", "*/*"), 304: openapi3.NewResponse().WithDescription("It has not changed."),
			},
			problems: with(problem.PreconditionFailed, problem.RangeNotSatisfiable, problem.TooManyRequests),
		},
		{
			method: http.MethodPut, path: "/v2/fs/file", id: "putFile", summary: "Write a file",
			description: "The file takes its place when all of it has arrived; until then, and when the upload breaks off, the old one stays. Of several uploads the last to finish wins. A file that is replaced gives its permissions to the new one. A symbolic link is followed.",
			params: params(path, mode, parents, flag("sync", "Force the content to disk before it takes its place."),
				header("If-Match", "ETags that the old file must have."), header("If-None-Match", "ETags that the old file must not have; * for no old file.")),
			body: upload("The content.", "*/*"),
			responses: map[int]*openapi3.Response{
				200: jsonResponse("The file was replaced.", "FileEntry"), 201: jsonResponse("The file is new.", "FileEntry"),
			},
			problems: with(problem.AlreadyExists, problem.PreconditionFailed, problem.PayloadTooLarge, problem.TooManyRequests, problem.InsufficientStorage),
		},
		{
			method: http.MethodGet, path: "/v2/fs/entries", id: "listEntries", summary: "What is in a folder",
			params: params(path, flag("recursive", "Also what is in folders below, without following symbolic links. In the order of names only."),
				flag("hidden", "Also names that begin with a dot."),
				query("sort", "Of entries that are alike the names decide.", openapi3.NewStringSchema().WithEnum(string(fs.ByName), string(fs.BySize), string(fs.ByModified)).WithDefault(string(fs.ByName))),
				query("order", "Of sort.", openapi3.NewStringSchema().WithEnum("asc", "desc").WithDefault("asc")),
				query("cursor", "nextCursor of the page before.", openapi3.NewStringSchema()), pageSize()),
			responses: one(200, jsonResponse("A page of entries.", "FilePage")), problems: with(),
		},
		{
			method: http.MethodGet, path: "/v2/fs/stat", id: "statEntry", summary: "Describe a file or folder",
			params: params(path, flag("follow", "Describe what a symbolic link leads to, instead of the link.")), responses: entry("What is there."), problems: with(),
		},
		{
			method: http.MethodPost, path: "/v2/fs/mkdir", id: "makeDirectory", summary: "Make a folder",
			params: params(path, mode, flag("parents", "Make missing folders, and be content with one that is there.")), responses: entry("The folder."), problems: with(problem.AlreadyExists, problem.InsufficientStorage),
		},
		{
			method: http.MethodPost, path: "/v2/fs/move", id: "moveEntry", summary: "Move a file or folder", description: "Also to another file system.",
			params: params(pathOf("from", "What to move."), pathOf("to", "Its new path."), overwrite, parents), responses: entry("It, at its new path."), problems: with(problem.AlreadyExists, problem.InsufficientStorage, problem.PayloadTooLarge),
		},
		{
			method: http.MethodPost, path: "/v2/fs/copy", id: "copyEntry", summary: "Copy a file or folder", description: "A copy appears when it is whole. Symbolic links are copied as such.",
			params: params(pathOf("from", "What to copy."), pathOf("to", "The path of the copy."), overwrite, parents), responses: entry("The copy."), problems: with(problem.AlreadyExists, problem.InsufficientStorage, problem.PayloadTooLarge),
		},
		{
			method: http.MethodDelete, path: "/v2/fs/entry", id: "deleteEntry", summary: "Delete a file or folder", description: "A symbolic link itself is deleted.",
			params: params(path, flag("recursive", "Also a folder that is not empty.")), responses: one(204, openapi3.NewResponse().WithDescription("Done.")), problems: with(problem.DirectoryNotEmpty),
		},
		{
			method: http.MethodPost, path: "/v2/fs/upload-batch", id: "uploadBatch", summary: "Unpack a tar archive into a folder",
			description: "The folder is made if it is not there. Nothing is ever written outside of it: entries with absolute names or with .., devices, pipes, and links that lead out end the upload. What was unpacked before stays; the member written of the problem says what that is.",
			params:      params(pathOf("path", "The folder.")), body: upload("A tar archive, plain, gzip or zstd; its first bytes tell which.", archive...),
			responses: one(200, jsonResponse("What was unpacked.", "FileUpload")),
			problems:  with(problem.AlreadyExists, problem.ArchiveRefused, problem.PayloadTooLarge, problem.UnsupportedMediaType, problem.TooManyRequests, problem.InsufficientStorage),
		},
		{
			method: http.MethodGet, path: "/v2/fs/checksums", id: "getChecksums", summary: "The SHA-256 of files, for an export that leaves them out",
			description: "Of each file that would travel with a session of the folder, as `sha256sum -z` writes it: the checksum, two spaces, the path below the folder, and a zero byte. When something cannot be read, the connection is cut, so that the list does not look whole.",
			params:      params(pathOf("path", "The folder.")), responses: one(200, binary("The checksums.", "application/octet-stream")), problems: with(problem.TooManyRequests, problem.PayloadTooLarge, problem.Timeout),
		},
		{
			method: http.MethodGet, path: "/v2/fs/download-batch", id: "downloadBatch", summary: "Pack files and folders into a tar archive",
			description: "Each path is in the archive under its last part. Symbolic links are packed as such; devices, pipes and sockets are left out. When something cannot be read, the connection is cut, so that the archive does not look whole.",
			params:      params(paths), responses: one(200, binary("The archive.", "application/x-tar")), problems: with(problem.TooManyRequests),
		},
	}
	return append(ops, findOperations(path, session)...)
}

// findOperations describe search, watch and git.
func findOperations(path, session *openapi3.Parameter) []operation {
	flag := func(name, description string) *openapi3.Parameter {
		return query(name, description, openapi3.NewBoolSchema().WithDefault(false))
	}
	word := func(name, description string) *openapi3.Parameter {
		return query(name, description, openapi3.NewStringSchema())
	}
	params := func(p ...*openapi3.Parameter) []*openapi3.Parameter { return append(p, session) }
	with := func(more ...problem.Kind) []problem.Kind {
		return append(append([]problem.Kind{}, pathProblems...), more...)
	}
	changes := openapi3.NewResponse().WithDescription("An event named ready, then one named change for each change, with a FileChange; an event named error has a Problem and is the last. The stream ends when the folder is gone. A client that does not keep up is told so by a change of type overflow.").
		WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{sse.ContentType}))
	patch := openapi3.NewResponse().WithDescription("A patch. With the header Sandbox-Agent-Truncated it was longer.").
		WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), []string{"text/x-diff"}))
	patch.Headers = openapi3.Headers{"Sandbox-Agent-Truncated": {Value: &openapi3.Header{Parameter: openapi3.Parameter{Description: "true when the patch was cut.", Schema: openapi3.NewStringSchema().NewRef()}}}}
	return []operation{
		{
			method: http.MethodGet, path: "/v2/fs/search", id: "searchFiles", summary: "Find names, or lines of files",
			description: "Below a folder, in the order of names, without following symbolic links and without what git ignores. A search that reaches a limit of matches, entries or time answers with what it has; cursor continues it.",
			params: params(path, word("name", "A part of a name or, with any of *?[, a pattern for all of it; a pattern with a slash is for the path below the folder."),
				word("content", "What a line contains."), flag("regexp", "content is a regular expression (RE2)."), flag("ignoreCase", "Capital and small letters are alike."),
				flag("hidden", "Also names that begin with a dot."), flag("ignored", "Also what git ignores."), word("cursor", "nextCursor of the answer before."), pageSize()),
			responses: one(200, jsonResponse("What was found.", "FileSearch")), problems: with(),
		},
		{
			method: http.MethodGet, path: "/v2/fs/watch", id: "watchFiles", summary: "Changes in a folder, as an event stream",
			params:    params(path, flag("recursive", "Also in folders below."), flag("hidden", "Also names that begin with a dot.")),
			responses: one(200, changes), problems: with(problem.PayloadTooLarge, problem.TooManyRequests),
		},
		{
			method: http.MethodGet, path: "/v2/fs/git/status", id: "getGitStatus", summary: "What differs from what was committed, below a folder",
			description: "Programs that the repository's own configuration names are not run.",
			params:      params(path, flag("recent", "Also name commits by which another repository finds what this one has.")), responses: one(200, jsonResponse("The state of the work tree.", "GitStatus")), problems: with(problem.NotARepository, problem.Timeout),
		},
		{
			method: http.MethodGet, path: "/v2/fs/git/diff", id: "getGitDiff", summary: "What differs, as a patch", description: "Of a folder or a file, against the index. Files that git does not know and does not ignore are in it, as new ones.",
			params:    params(path, flag("staged", "What is in the index, against the last commit."), word("base", "A commit to compare with instead."), flag("binary", "The content of files that are no text, too, as git apply takes it. Without it they are only named.")),
			responses: one(200, patch), problems: with(problem.NotARepository, problem.Timeout, problem.TooManyRequests),
		},
	}
}

// fileSchemas are the types of those operations.
func fileSchemas() openapi3.Schemas {
	const none = ""
	entry := func() fields {
		return fields{
			"path": text("Absolute. Bytes that are not UTF-8 are shown as U+FFFD."), "name": text("The last part of the path."),
			"rawPath": described(openapi3.NewBytesSchema(), "The bytes of a path that is not UTF-8, in base64."),
			"type":    enum(none, fs.File, fs.Directory, fs.Symlink, fs.Other), "size": number("Bytes of a file; 0 for everything else."),
			"mode": text("Permissions in octal."), "modifiedAt": date(), "target": text("Where a symbolic link leads, as it stands there."), "etag": text("Of a file."),
		}
	}
	optional := []string{"rawPath", "target", "etag"}
	listed := entry()
	listed["error"] = text("Why what is in this folder is missing from the list.")
	return openapi3.Schemas{
		"FileEntry":  {Value: object(entry(), optional...)},
		"FileListed": {Value: object(listed, append(optional, "error")...)},
		"FilePage":   {Value: object(fields{"entries": list("FileListed"), "nextCursor": text("Asks for the next page; absent on the last.")}, "nextCursor")},
		"FileUpload": {Value: object(fields{
			"paths": texts("Absolute; the first 1024."), "truncated": described(openapi3.NewBoolSchema(), "There are more paths."),
			"files": number(none), "bytes": number("Of files."),
		})},
		"FileSearch": {Value: object(fields{
			"matches": list("FileMatch"), "nextCursor": text("Continues the search; absent when it is complete."),
			"stopped": enum("Which limit stopped it.", "matches", "files", "time"), "files": number("Entries that were looked at."),
			"skipped": number("What is too large, is no text, or cannot be read."),
		}, "nextCursor", "stopped")},
		"FileMatch": {Value: object(fields{
			"path": text(none), "rawPath": entry()["rawPath"], "type": entry()["type"],
			"line": number("From 1; absent for names."), "column": number("From 1, in bytes."), "text": text("Of the line, at most 512 bytes."),
		}, "rawPath", "line", "column", "text")},
		"FileChange": {Value: object(fields{
			"type": enum("overflow: changes were lost, look at the folder anew.", fs.Created, fs.Modified, fs.Removed, fs.Renamed, fs.Overflow),
			"path": text(none), "rawPath": entry()["rawPath"], "from": text("The old path of what was renamed."), "folder": boolean(),
		}, "path", "rawPath", "from", "folder")},
		"GitStatus": {Value: object(fields{
			"root": text("Of the work tree."), "branch": text("Absent when none is checked out."), "commit": text("Absent before the first."), "upstream": text(none),
			"ahead": number(none), "behind": number(none), "files": list("GitFile"), "truncated": boolean(),
			"recent": described(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()), "Commits of branches, and some of those before the last; only with recent."),
		}, "branch", "commit", "upstream", "recent")},
		"GitFile": {Value: object(fields{
			"path": text("Absolute."), "rawPath": entry()["rawPath"], "index": text("M, A, D, R, C, T, U, ?, or . for no difference."), "workTree": text("As index."),
			"from": text("The old path of what was renamed or copied."),
		}, "rawPath", "from")},
	}
}
