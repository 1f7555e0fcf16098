package acp

import "strconv"

// ID is the raw JSON text of a JSON-RPC id, so value and type survive any
// number of rewrites. The zero value means that the member is absent; a null
// id is [NullID]. IDs are comparable and serve as map keys.
type ID string

// NullID is the id of a response to a frame whose own id could not be read.
const NullID ID = "null"

// maxIDLen bounds an id: longer ones are refused when parsed.
const maxIDLen = 1024

// IntID returns the id written as a number.
func IntID(n int64) ID { return ID(strconv.FormatInt(n, 10)) }

// Int returns the id's value when it is written as a plain integer.
func (id ID) Int() (int64, bool) {
	if id == "" || id[0] == '"' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// IsNull reports whether the id is absent or null.
func (id ID) IsNull() bool { return id == "" || id == NullID }
