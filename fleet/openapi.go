package fleet

import (
	_ "embed"
	"net/http"

	"sandboxagent.dev/sandbox-agent/control"
)

// document is what package control/openapi makes of the hub's API; go generate ./control writes
// it. docs/hub-openapi.json is the same file.
//
//go:embed openapi_gen.json
var document []byte

var queries = control.NewQueries(document)

func (h *Hub) getOpenAPI(w http.ResponseWriter, _ *http.Request, _ call) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(document) // a client that is gone needs no answer
	return nil
}
