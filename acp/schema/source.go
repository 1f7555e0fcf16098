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

// Two is the schema of version 2 of the protocol, with the drafts.
//
//go:embed v2.unstable.json
var Two []byte

// Version names the package the files came from, its version, and their
// checksums, one per line.
//
//go:embed VERSION
var Version string
