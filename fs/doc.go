// Package fs is the file service: it stats, lists, reads, writes, moves, copies
// and deletes files, packs and unpacks tar archives, searches, watches, and
// shows what git says of a workspace. It knows no HTTP.
//
// # Guarantees
//
// A [Service] with a root touches nothing outside that root: names are resolved
// by [os.Root], also while somebody else swaps folders for symbolic links, and
// the process file system is refused. Without a root the machine is the
// boundary, and symbolic links lead wherever they lead.
//
// A file is replaced by renaming a whole one over it. Whoever reads the path
// sees the old content or the new one; of several writers the last to finish
// wins. A write that fails leaves the old file and nothing else.
//
// An archive never writes outside the folder that it is unpacked into, with a
// root or without, and leaves no link behind that leads out of it.
//
// Content is streamed: what a transfer keeps in memory does not depend on the
// size of the file.
//
// Every error is an [*Error] with a [Code] to branch on, cancelled contexts and
// errors of the caller's own readers and writers excepted.
package fs
