// Package telemetry shows how the gateway is doing: metrics for Prometheus and
// traces for OpenTelemetry. It is told of sessions as a [observe.Observer] and of
// requests as a [control.Observer]; neither of them knows it.
//
// Labels and attributes hold names that the gateway's user gave, words of the
// protocols and numbers; ids of sessions are in traces only. Payloads, paths of
// files, queries and secrets are in none of them.
//
// What is not wanted costs nothing: without metrics there is no registry, and
// without an endpoint for traces no goroutine.
package telemetry
