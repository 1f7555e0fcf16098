package control

import "strings"

// route says which part of the server a path belongs to. The guard and the
// server ask the same function, so a path cannot be open to one and something
// else to the other.
type route int

const (
	routeAPI route = iota // the web framework's
	routeRPC
	routeHealth // part of the API, open without token
	routeUI     // static files, open without token
	routeToUI   // redirects to the static files
	routeV1
	routeOpencode
)

func routeOf(path string) route {
	switch {
	case path == "/v2/rpc":
		return routeRPC
	case path == "/v2/health":
		return routeHealth
	case strings.HasPrefix(path, "/ui/"):
		return routeUI
	case path == "/ui" || path == "/":
		return routeToUI
	case path == "/v1" || strings.HasPrefix(path, "/v1/"):
		return routeV1
	case path == "/opencode" || strings.HasPrefix(path, "/opencode/"):
		return routeOpencode
	}
	return routeAPI
}

// open reports whether the route needs no token.
func (r route) open() bool { return r == routeHealth || r == routeUI || r == routeToUI }
