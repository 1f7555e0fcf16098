package process

import "syscall"

// signals are those that group.signal knows.
var signals = map[string]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL, "SIGTERM": syscall.SIGTERM,
}

// ChildEnded is a signal that never comes.
const ChildEnded = syscall.Signal(-1)
