package socket

// SmallWrite is what a socket or a pipe that takes anything takes at once, in bytes.
const SmallWrite = 4096

// Roomy is a connection that knows itself whether a write of n bytes certainly does not wait.
type Roomy interface{ RoomFor(n int) bool }
