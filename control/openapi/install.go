package openapi

import (
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// installOperations describe the installation of agents' programs.
func installOperations() []operation {
	const path = "/v2/agents/{agent}/install"
	agent := inPath("agent", "The agent's id. Agents of the ACP registry have theirs from there.")
	result := openapi3.NewResponse().WithDescription("What is installed now or, to who accepts text/event-stream, a stream of events: progress, each with an InstallProgress, and last either result, with an InstallResult, or error, with a Problem. What fails before anything was done is an ordinary error answer.").
		WithContent(openapi3.Content{
			"application/json": openapi3.NewMediaType().WithSchemaRef(ref("InstallResult")),
			sse.ContentType:    openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema()),
		})
	body := openapi3.NewRequestBody().WithDescription("May be left out.").WithJSONSchemaRef(ref("InstallRequest"))
	return []operation{
		{
			method: http.MethodPost, path: path, id: "installAgent", summary: "Make sure that an agent's program is installed",
			description: "Requests that ask for the same at the same time share one installation. It ends early when nobody waits for it any more. When it fails, what was installed before is still there, and the member sources of the problem lists what each source answered.",
			params:      []*openapi3.Parameter{agent}, body: body, responses: one(200, result),
			problems: []problem.Kind{problem.InvalidRequest, problem.NotFound, problem.AgentNotInstalled, problem.PayloadTooLarge, problem.UnsupportedMediaType, problem.InstallFailed, problem.NotSupported, problem.Unavailable},
		},
		{
			method: http.MethodGet, path: path, id: "getAgentInstall", summary: "What of an agent is on the server's machine, and where it came from",
			params: []*openapi3.Parameter{agent}, responses: one(200, jsonResponse("All of it.", "InstallStatus")),
			problems: []problem.Kind{problem.InvalidRequest, problem.NotFound, problem.NotSupported},
		},
		{
			method: http.MethodDelete, path: path, id: "removeAgentInstall", summary: "Remove every installed version of an agent's program",
			description: "Programs in the server's PATH stay, and so do processes that run.",
			params:      []*openapi3.Parameter{agent}, responses: one(204, openapi3.NewResponse().WithDescription("Done.")),
			problems: []problem.Kind{problem.InvalidRequest, problem.NotFound, problem.AgentNotInstalled, problem.InstallFailed, problem.NotSupported},
		},
	}
}

func doctorOperation() operation {
	agents := query("agent", "An agent that must work; may be repeated. Without it, those that are installed must.", openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()))
	return operation{
		method: http.MethodGet, path: "/v2/doctor", id: "getDoctor", summary: "Check the server's machine, the sources of programs, and agents",
		description: "Runs the agents' programs and asks the network, so it takes some seconds.",
		params:      []*openapi3.Parameter{agents}, responses: one(200, jsonResponse("What was found, also when something is wrong.", "Report")),
		problems: []problem.Kind{problem.InvalidRequest, problem.UnsupportedAgent, problem.InstallFailed, problem.NotSupported, problem.Unavailable},
	}
}

// installSchemas are the types of those operations.
func installSchemas() openapi3.Schemas {
	const none = ""
	sources := install.AllSources()
	source := func() *openapi3.SchemaRef {
		return enum("Where it comes from; path is a program that was there, builtin one that is part of the server.", append(sources, install.BuiltIn)...)
	}
	asked := openapi3.NewArraySchema()
	asked.Items, asked.Description = enum(none, sources...), "The sources to ask, in order, instead of the server's."
	acpArgs := openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()).WithNullable()
	acpArgs.Description = "What starts it as an ACP agent; null when it is not known to be one."
	installation := func() fields {
		return fields{
			"agent": text(none), "version": text("Empty for a program in PATH that was not asked."), "source": source(),
			"program": text("What is started."), "args": texts("Come before all other arguments."), "env": texts("Additions to the environment, NAME=value."),
			"acpArgs": acpArgs.NewRef(), "platform": text(none), "installedAt": date(), "reported": text("What the program said of itself."),
			"handshake": enum("How the program was proved.", install.HandshakeVersion, install.HandshakeInitialize),
			"verified":  described(openapi3.NewBoolSchema(), "Every download was checked in some way; verification says how."), "verification": ref("Verification"), "artifacts": list("Artifact"), "downloads": list("Download"), "packages": texts("Of npm or uv, with versions."),
			"dir": text("Where it is installed; absent when it is somebody else's."), "current": boolean(),
		}
	}
	optional := []string{"args", "env", "installedAt", "reported", "handshake", "downloads", "packages", "dir"}
	result := installation()
	result["already"], result["attempts"], result["newer"] = boolean(), list("Attempt"), ref("NewerVersion")
	return openapi3.Schemas{
		"InstallRequest": {Value: object(fields{
			"agentVersion": text("Exact, or latest; without it, whatever is installed, and the newest if nothing is."),
			"reinstall":    boolean(), "sources": asked.NewRef(),
		}, "agentVersion", "reinstall", "sources").WithoutAdditionalProperties()},
		"Installation":  {Value: object(installation(), optional...)},
		"InstallResult": {Value: object(result, append(optional, "attempts", "newer")...)},
		"NewerVersion":  {Value: object(fields{"version": text("The newest version that the source has."), "reason": text("Why it cannot be installed, and an older one was.")})},
		"InstallStatus": {Value: object(fields{"agent": text(none), "inUse": ref("Installation"), "installed": list("Installation")}, "inUse")},
		"InstallProgress": {Value: object(fields{
			"agent": text(none), "source": enum("The source that is at work.", sources...),
			"step":   enum("What is being done.", install.StepWait, install.StepResolve, install.StepDownload, install.StepUnpack, install.StepPackage, install.StepVerify, install.StepProve, install.StepLand),
			"detail": text("A URL or a package."), "done": number("Bytes."), "total": number("Bytes; 0 when unknown."),
		}, "source", "detail")},
		"Verification": {Value: object(fields{
			"how":  enum("digest-pinned: the server's release holds its digest. signature: somebody whom it knows signed it. checksum-only: it is what its server says it is. unverified: nobody told what it should be, or it was on the machine already. builtin: it is part of the server.", install.AllHow()...),
			"by":   text("Whose signature, or whose checksum."),
			"note": text("Why it is not more, and what is more of some of its parts."),
		}, "by", "note")},
		"Attempt":  {Value: object(fields{"source": enum(none, sources...), "answer": text("Why it could not.")})},
		"Artifact": {Value: object(fields{"kind": enum(none, install.KindProgram, install.KindHelper), "path": text(none), "version": text(none), "source": source(), "verified": boolean(), "sha256": text(none)}, "sha256")},
		"Download": {Value: object(fields{"url": text(none), "bytes": number(none), "sha256": text(none), "verified": boolean()})},
		"Report":   {Value: object(fields{"ok": boolean(), "platform": text(none), "checks": list("Check")})},
		"Check": {Value: object(fields{
			"name": text(none), "agent": text("Absent for the machine."), "found": text("What is the case."), "remedy": text("What to do; there unless the status is ok."),
			"status": enum("absent is what is not there and nobody asked for.", install.CheckOK, install.CheckAbsent, install.CheckWarning, install.CheckFailed),
		}, "agent", "remedy")},
	}
}

// texts is a list of strings.
func texts(description string) *openapi3.SchemaRef {
	return described(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()), description)
}
