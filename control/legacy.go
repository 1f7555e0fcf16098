package control

import (
	"net/http"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// serveV1 answers clients of the API before this one.
func serveV1(w http.ResponseWriter, _ *http.Request) {
	problem.Write(w, problem.New(problem.V1Removed, "version 1 of the API was removed: sessions speak ACP at /v2/rpc, everything else is in /v2/openapi.json"))
}

// serveOpencode answers clients of the OpenCode compatibility API.
func serveOpencode(w http.ResponseWriter, _ *http.Request) {
	problem.Write(w, problem.New(problem.OpencodeDisabled, "the OpenCode compatibility API is not available: sessions speak ACP at /v2/rpc"))
}
