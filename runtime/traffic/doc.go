// Package traffic records what the gateway and one agent process say to each other in the
// agent's own language, beside a session's log, for bug reports.
//
// # Guarantees
//
// Whoever tells a [Recording] of a line never waits for it: a queue of [maxQueued] bytes
// stands between them. What does not fit is left out, and the recording says how much.
// What looks like a key, and the values that it was made with, are taken out before anything
// reaches the disk. A recording is two files that take turns, of [maxFile] bytes each: when
// the newer one is full the older one goes, and the new one begins with how much has gone.
// When writing fails, as on a full disk, the recording ends and tells its owner why; nothing
// else does. After a kill -9 every line that is there is whole, but for the last.
package traffic
