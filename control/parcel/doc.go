// Package parcel is the file in which a session travels: a tar archive, compressed with
// Zstandard. docs/travel.mdx describes it.
//
// The first entry is manifest.json, with the version of all of it. The last is checksums,
// with the SHA-256 of every other one, in the form of sha256sum: a file without it is not
// whole. [Writer] and [Unpack] stream; neither holds more than a part of an entry in
// memory.
//
// [Unpack] takes files from strangers. It writes into a folder of its own, below which
// everything stays, and looks at names, kinds, sizes and sums before anybody uses what it
// has written.
package parcel
