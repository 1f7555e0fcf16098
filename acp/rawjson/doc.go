// Package rawjson reads and edits JSON without decoding it: what is not touched
// keeps its bytes, key order, number forms, escapes and white space included.
package rawjson
