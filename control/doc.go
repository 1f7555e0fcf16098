// Package control serves the HTTP API beside the agent protocol: health,
// agents, sessions and their events, and the OpenAPI document of all that.
//
// # Guarantees
//
// Every request, also one for the agent protocol's own endpoint, passes the
// [Guard] first: Host and Origin, then the token. Every answer that is an error
// is a problem document from package problem. A panic in a handler becomes such
// a document and never shows its cause to the client.
//
// The agent protocol's endpoint is handed to its handler without the web
// framework in between. The OpenAPI document is built when it is first asked
// for.
package control
