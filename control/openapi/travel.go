package openapi

import (
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/control/transcript"
)

// sessionFile is the content of a session's file.
func sessionFile() openapi3.Content {
	return openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), []string{parcel.ContentType})
}

func exportOperation(session *openapi3.Parameter) operation {
	off := openapi3.NewBoolSchema().WithDefault(false)
	patterns := openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()).WithMaxItems(transcript.MaxPatterns)
	return operation{
		method: http.MethodGet, path: "/v2/sessions/{id}/export", id: "exportSession", summary: "All of a session in one file, for another gateway",
		description: "A tar archive, compressed with Zstandard: the session's record, its log, and what the agent itself keeps of it. Credentials and the values of variables and headers are not in it, and what looks like a key is taken out. The session is closed while it is read, if open does not say otherwise, and refused while it works. A body that is cut is not a whole file.",
		params: []*openapi3.Parameter{
			session,
			query("redact", "A regular expression of what is taken out, too. May be repeated.", patterns),
			query("keepSecrets", "Leave in what looks like a key.", off),
			query("workspace", "Take along the files of the session's directory: of a git repository the history of what is checked out, the index and the files that are not ignored.", off),
			query("open", "Leave the session open while it is read. One that goes on meanwhile is refused: try again.", off),
			query("log", "Whether the log is in the file. One without it cannot be imported: a hub makes a whole one of it.", openapi3.NewBoolSchema().WithDefault(true)),
			query("have", "A commit that the other side has: what it reaches is not sent again. May be repeated.", openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()).WithMaxItems(256)),
		},
		responses: one(200, exported()),
		problems:  []problem.Kind{problem.InvalidRequest, problem.SessionNotFound, problem.Conflict, problem.AgentNotInstalled, problem.AgentError, problem.TooManyRequests, problem.NotSupported, problem.PayloadTooLarge},
	}
}

// exportLackingOperation is exportOperation with what the other side has.
func exportLackingOperation(session *openapi3.Parameter) operation {
	o := exportOperation(session)
	o.method, o.id, o.summary = http.MethodPost, "exportSessionLacking", "All of a session that another gateway does not have"
	o.description = "An export without the content of those files of the workspace that the other gateway has. Such a file can be imported there only. A body that is cut is not a whole file."
	o.body = openapi3.NewRequestBody().WithDescription("Checksums as `GET /v2/fs/checksums` of the other gateway gives them.").WithRequired(true).
		WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), []string{"application/octet-stream"}))
	return o
}

// exported is the answer with a session's file.
func exported() *openapi3.Response {
	r := openapi3.NewResponse().WithDescription("The file. The header Sandbox-Agent-Bytes says about how many bytes it holds.").WithContent(sessionFile())
	r.Headers = openapi3.Headers{"Sandbox-Agent-Bytes": {Value: &openapi3.Header{Parameter: openapi3.Parameter{Description: "About how many bytes the file holds when it is unpacked.", Schema: openapi3.NewInt64Schema().NewRef()}}}}
	return r
}

func importOperation() operation {
	off := openapi3.NewBoolSchema().WithDefault(false)
	return operation{
		method: http.MethodPost, path: "/v2/sessions/import", id: "importSession", summary: "Make a session of a file of another gateway",
		description: "The session keeps its id and its events. Paths of the other machine are replaced by those of this one in what the agent keeps. The file is checked as a whole before anything of it is used.",
		params: []*openapi3.Parameter{
			query("cwd", "The session's directory here, an absolute path; the one that it had, if it is not given.", openapi3.NewStringSchema()),
			query("workspace", "Make the workspace of the file in cwd, which must be empty or not there. Files of a workspace can tell agents what to run.", off),
			query("merge", "Put the workspace together with files that are in cwd: what only one side has changed since the two were the same is taken from that side. When both have changed the same, the problem conflict names it in conflicts, and nothing is touched.", off),
			query("closed", "The session arrives closed: session/load or session/resume opens it.", off),
			query("replace", "Take the place of the session of this id that was left here closed when it went to another gateway, if it is the beginning of the one that comes, or went to another node of a hub.", off),
			query("trust", "Take over settings that can run programs, or allow something: MCP servers, skills, permission modes and the like.", off),
		},
		body:      openapi3.NewRequestBody().WithDescription("The file.").WithRequired(true).WithContent(sessionFile()),
		responses: one(201, jsonResponse("The session.", "ImportedSession")),
		problems: []problem.Kind{
			problem.InvalidRequest, problem.ArchiveRefused, problem.SessionAlreadyExists, problem.AlreadyExists, problem.Conflict, problem.PreconditionFailed, problem.UnsupportedAgent, problem.AgentNotInstalled,
			problem.InsufficientStorage, problem.TooManyRequests, problem.NotSupported, problem.Unavailable, problem.DirectoryNotEmpty, problem.PathEscapes, problem.PayloadTooLarge,
		},
	}
}
