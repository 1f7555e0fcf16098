// Package schema has the types of ACP version 1, their codec, and the official
// JSON Schema they are generated from, so that all of it works offline. Of version 2
// it has the schema alone.
//
// The codec loses nothing: a member that the schema does not know is kept in
// Extra, a variant that it does not know in Raw. What is only passed on is not
// decoded at all; see package acp.
//
// The schema files are as published in the package and version that the file
// VERSION names, with the checksums recorded there. "go run ../internal/gen
// -update" in this directory refreshes them.
package schema
