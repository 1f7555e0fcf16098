package control

import (
	_ "embed"

	"github.com/labstack/echo/v4"
)

//go:generate go test -run ^TestOpenAPI_Committed$ -update .

// document is what package control/openapi makes of the API. docs/openapi.json
// is the same file.
//
//go:embed openapi_gen.json
var document []byte

var queries = NewQueries(document)

func (s *Server) getOpenAPI(c echo.Context) error {
	return writeDocument(c, document)
}
