// Package schema holds the official JSON Schema of ACP version 1, as published
// in the package and version that the file VERSION names, with the checksums
// recorded there. The types of package acp are generated from these files and
// package acptest validates frames against them, so both work offline.
// "go run ./internal/gen -update" in the acp directory refreshes them.
package schema

import _ "embed" // the schema files

// Stable is the schema of what every implementation may rely on.
//
//go:embed v1.json
var Stable []byte

// Unstable is a superset of [Stable] with the drafts.
//
//go:embed v1.unstable.json
var Unstable []byte

// Version names the package the files came from, its version, and their
// checksums, one per line.
//
//go:embed VERSION
var Version string
