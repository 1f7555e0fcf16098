package openapi

import (
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/process"
)

// processOperations describe processes and terminals.
func processOperations() []operation {
	const get, post = http.MethodGet, http.MethodPost
	id := inPath("id", "The process's id.")
	body := func(schema string) *openapi3.RequestBody {
		return openapi3.NewRequestBody().WithRequired(true).WithJSONSchemaRef(ref(schema))
	}
	start := []problem.Kind{
		problem.InvalidRequest, problem.SessionNotFound, problem.NotFound, problem.PathEscapes, problem.NotADirectory,
		problem.PayloadTooLarge, problem.UnsupportedMediaType, problem.TooManyRequests, problem.NotSupported, problem.Unavailable,
	}
	with := func(more ...problem.Kind) []problem.Kind {
		return append([]problem.Kind{problem.NotFound, problem.NotSupported}, more...)
	}
	info := func(description string) map[int]*openapi3.Response {
		return one(200, jsonResponse(description, "HostProcess"))
	}
	done := one(204, openapi3.NewResponse().WithDescription("Done."))
	after := query("after", "The position to continue behind.", openapi3.NewInt64Schema().WithMin(0).WithDefault(0))
	logs := openapi3.NewResponse().WithDescription("About 1 MiB of output or, to who accepts text/event-stream, a stream of it until the process has ended. Each event of the stream is named message, has a ProcessOutput as its data and the position behind it as its id; one named missed, with the member bytes, says how much was let go before the client took it; one named exit has the HostProcess and is the last.").
		WithContent(openapi3.Content{
			"application/json": openapi3.NewMediaType().WithSchemaRef(ref("ProcessLog")),
			sse.ContentType:    openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema()),
		})
	created := jsonResponse("It runs.", "HostProcess")
	created.Headers = openapi3.Headers{"Location": {Value: &openapi3.Header{Parameter: openapi3.Parameter{Description: "Its address.", Schema: openapi3.NewStringSchema().NewRef()}}}}
	input := openapi3.NewRequestBody().WithDescription("The bytes.").
		WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema().WithFormat("binary"), []string{"*/*"}))
	return []operation{
		{
			method: post, path: "/v2/processes/run", id: "runProcess", summary: "Run a program to its end",
			description: "Answers when the program and all that it started have ended. When its time is over it is killed, and so when the client leaves. The beginning of each output is kept. There is no shell: for a command line run sh with the arguments -c and the line.",
			body:        body("ProcessRun"), responses: one(200, jsonResponse("How it ended, also when it failed or was killed.", "ProcessResult")), problems: start,
		},
		{
			method: post, path: "/v2/processes", id: "startProcess", summary: "Start a program in the background",
			description: "With tty it gets a terminal. It ends with the server at the latest.",
			body:        body("ProcessStart"), responses: map[int]*openapi3.Response{201: created}, problems: start,
		},
		{
			method: get, path: "/v2/processes", id: "listProcesses", summary: "The processes that clients started", description: "In the order in which they were started. Of those that have ended, only a few are kept, for some time.",
			responses: one(200, jsonResponse("All of them.", "ProcessList")), problems: []problem.Kind{problem.NotSupported},
		},
		{method: get, path: "/v2/processes/config", id: "getProcessLimits", summary: "The limits of processes", responses: one(200, jsonResponse("The limits.", "ProcessLimits")), problems: []problem.Kind{problem.NotSupported}},
		{
			method: http.MethodPut, path: "/v2/processes/config", id: "setProcessLimits", summary: "Change limits of processes", description: "Members that the body does not have stay as they are. They are those of before when the server starts again.",
			body: body("ProcessLimitsChange"), responses: one(200, jsonResponse("All limits as they are now.", "ProcessLimits")),
			problems: []problem.Kind{problem.InvalidRequest, problem.PayloadTooLarge, problem.UnsupportedMediaType, problem.NotSupported},
		},
		{method: get, path: "/v2/processes/{id}", id: "getProcess", summary: "One process", params: []*openapi3.Parameter{id}, responses: info("The process."), problems: with()},
		{
			method: http.MethodDelete, path: "/v2/processes/{id}", id: "deleteProcess", summary: "End a process, if it runs, and forget it",
			description: "Answers when nothing of it is left.", params: []*openapi3.Parameter{id}, responses: done, problems: with(),
		},
		{
			method: get, path: "/v2/processes/{id}/logs", id: "getProcessLogs", summary: "What a process wrote",
			description: "Positions count the bytes of all streams. The log keeps the end of the output.",
			params: []*openapi3.Parameter{
				id, query("stream", "Only one of the streams.", openapi3.NewStringSchema().WithEnum("combined", string(process.Stdout), string(process.Stderr), string(process.PTY)).WithDefault("combined")),
				after, query("tail", "Only the last lines.", openapi3.NewInt64Schema().WithMin(0)), query("since", "Only what was written at or after this time. What was written within the 50 milliseconds before may be there, too.", openapi3.NewDateTimeSchema()),
				header("Last-Event-ID", "The same as after, for event streams; it wins."),
			},
			responses: one(200, logs), problems: with(problem.InvalidRequest),
		},
		{
			method: post, path: "/v2/processes/{id}/stdin", id: "writeProcess", summary: "Give a process input",
			description: "Answers when the process, or the system in its place, has taken all of it. The member written of a problem says how much was taken.",
			params:      []*openapi3.Parameter{id, query("close", "Then end the input; on a terminal, by Ctrl-D.", openapi3.NewBoolSchema().WithDefault(false))},
			body:        input, responses: one(200, jsonResponse("All was taken.", "ProcessWritten")), problems: with(problem.InvalidRequest, problem.Conflict, problem.PayloadTooLarge, problem.Timeout, problem.TooManyRequests),
		},
		{
			method: post, path: "/v2/processes/{id}/signal", id: "signalProcess", summary: "Send a signal to a process and its group",
			params: []*openapi3.Parameter{id}, body: body("ProcessSignal"), responses: done, problems: with(problem.InvalidRequest, problem.Conflict, problem.PayloadTooLarge, problem.UnsupportedMediaType),
		},
		{
			method: post, path: "/v2/processes/{id}/stop", id: "stopProcess", summary: "End a process and all that it started",
			description: "Its input is closed, it gets SIGTERM, its terminal is hung up, and when its time is over it is killed. Answers when nothing of it is left.",
			params:      []*openapi3.Parameter{id, query("patienceMs", "How long it has; 0 kills it at once. The limit stopMs is the default.", openapi3.NewInt64Schema().WithMin(0).WithMax(60_000))},
			responses:   info("How it ended, also when it had ended before."), problems: with(problem.InvalidRequest),
		},
		{
			method: get, path: "/v2/processes/{id}/terminal", id: "viewTerminal", summary: "View a terminal over a WebSocket",
			description: "Binary messages are output, and from the client input. Text messages are TerminalFrames: the server sends ready first, missed when the client was too slow for what the log keeps, error when it could not do what was asked, and exit as the last; the client sends input, resize and signal, which goes to what is in the foreground. Several clients may view one terminal; the last to resize decides its size. A client that leaves changes nothing. Browsers present the token as the subprotocol bearer.TOKEN, in base64url, and offer terminal.sandboxagent.dev beside it.",
			params:      []*openapi3.Parameter{id, after},
			responses:   map[int]*openapi3.Response{101: openapi3.NewResponse().WithDescription("The connection is a WebSocket.")},
			problems:    with(problem.InvalidRequest, problem.Conflict, problem.TooManyRequests, problem.UpgradeRequired, problem.Unavailable),
		},
	}
}

func processSchemas() openapi3.Schemas {
	const none = ""
	encoding := enum("How stdin is, and the outputs will be, written here. In utf8, which is the default, bytes that are no text become U+FFFD.", "utf8", "base64")
	variables := openapi3.NewObjectSchema().WithAdditionalProperties(openapi3.NewStringSchema())
	start := func() fields {
		return fields{
			"command": text("A path, or a name that is looked up in PATH."), "args": texts(none),
			"cwd":       text("Absolute, or relative to the session's directory, else to the server's root or home directory, which is also the default. Under a root of files it lies in that; the program itself is confined to nothing."),
			"sessionId": text("The session whose directory cwd is relative to."),
			"env":       described(variables, "Added to the server's own environment; an empty value takes a variable away."),
		}
	}
	startOptional := []string{"args", "cwd", "sessionId", "env"}
	background, run := start(), start()
	background["tty"] = described(openapi3.NewBoolSchema(), "Give it a terminal.")
	background["cols"], background["rows"] = number("Of the terminal; 80 by default."), number("Of the terminal; 24 by default.")
	run["stdin"] = text("All of its input.")
	run["timeoutMs"] = number("The limit runMs is the default, maxRunMs the most.")
	run["maxOutputBytes"] = number("Of each output. The limit runBytes is the default, maxRunBytes the most.")
	run["combined"] = described(openapi3.NewBoolSchema(), "Also answer with both outputs in the order in which they came.")
	run["encoding"] = encoding
	limits := func() fields {
		return fields{
			"running": number("Processes at one time, runs included."), "ended": number("Processes that are kept when they have ended, and as many of agents' commands; the oldest leaves."),
			"endedMs": number("How long one is kept."), "logBytes": number("Output that is kept of a process, about; the oldest leaves."),
			"runMs": number("The time of a run that names none."), "maxRunMs": number("The most that one may name."),
			"runBytes": number("What a run that names no number answers of each output."), "maxRunBytes": number("The most that one may name."),
			"inputBytes": number("Input in one request."), "stopMs": number("How long a process that is stopped has to end by itself."),
		}
	}
	var names []string
	for name := range limits() {
		names = append(names, name)
	}
	exit := func() *openapi3.SchemaRef {
		return described(openapi3.NewIntegerSchema(), "Absent when a signal ended it, or it runs.")
	}
	return openapi3.Schemas{
		"ProcessStart": {Value: object(background, append(startOptional, "tty", "cols", "rows")...)},
		"ProcessRun":   {Value: object(run, append(startOptional, "stdin", "timeoutMs", "maxOutputBytes", "combined", "encoding")...)},
		"ProcessResult": {Value: object(fields{
			"exitCode": exit(), "signal": text("The signal that ended it."), "timedOut": described(openapi3.NewBoolSchema(), "It was killed because its time was over."),
			"durationMs": number(none), "stdout": ref("ProcessCaptured"), "stderr": ref("ProcessCaptured"), "combined": ref("ProcessCaptured"),
		}, "exitCode", "signal", "combined")},
		"ProcessCaptured": {Value: object(fields{
			"data": text("The beginning of the output."), "bytes": number("Of the whole output."), "truncated": described(openapi3.NewBoolSchema(), "The output was longer than data."),
		})},
		"HostProcess": {Value: object(fields{
			"id": text(none), "command": text(none), "args": texts(none), "cwd": text(none), "pid": number(none),
			"state": enum(none, process.Running, process.Exited), "exitCode": exit(), "signal": text("The signal that ended it."),
			"startedAt": date(), "endedAt": date(), "tty": boolean(), "cols": number("Of the terminal."), "rows": number("Of the terminal."),
			"stdinOpen": boolean(), "viewers": number("Of the terminal."),
			"outputBytes": number("What it wrote."), "droppedBytes": number("What of that the log has let go."),
		}, "exitCode", "signal", "endedAt", "cols", "rows")},
		"ProcessList": {Value: object(fields{"processes": list("HostProcess")})},
		"ProcessLog": {Value: object(fields{
			"chunks": list("ProcessOutput"), "missed": number("Bytes of all streams, between after and the first chunk, that the log has let go."),
			"next": number("The position to continue behind."), "hasMore": boolean(), "ended": described(openapi3.NewBoolSchema(), "The process has ended, and this is the last of its output."),
		})},
		"ProcessOutput": {Value: object(fields{
			"position": number("Of the first byte."), "time": date(), "stream": enum(none, process.Stdout, process.Stderr, process.PTY),
			"data": described(openapi3.NewBytesSchema(), "In base64."),
		})},
		"ProcessWritten":      {Value: object(fields{"written": number("Bytes.")})},
		"ProcessSignal":       {Value: object(fields{"signal": text("Its name, such as SIGINT.")})},
		"ProcessLimits":       {Value: object(limits())},
		"ProcessLimitsChange": {Value: object(limits(), names...)},
		"TerminalFrame": {Value: object(fields{
			"type":     enum("Which of the members it has.", "ready", "missed", "exit", "error", "input", "resize", "signal"),
			"position": number("Of ready: that of the first byte that follows. A client that counts can come back with it."),
			"shown":    number("Of ready: where that ends which some viewer has been shown already. A screen that shows it again does not answer it."),
			"cols":     number("Of ready and resize."), "rows": number("Of ready and resize."), "bytes": number("Of missed: how many are not shown."),
			"exitCode": exit(), "signal": text("Of exit: what ended it. Of signal: the name."), "problem": ref("Problem"),
			"data": text("Of input."), "encoding": enum("Of input.", "utf8", "base64"),
		}, "position", "shown", "cols", "rows", "bytes", "exitCode", "signal", "problem", "data", "encoding")},
	}
}
