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
