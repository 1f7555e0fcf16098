package socket

// SmallWrite is what a socket or a pipe that takes anything takes at once, in bytes.
const SmallWrite = 4096
