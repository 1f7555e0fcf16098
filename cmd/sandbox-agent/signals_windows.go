package main

import "os"

// notifyResized does nothing: the size is what it was when the program began.
func notifyResized(chan<- os.Signal) {}

// signalNumber returns the number that a signal has where gateways mostly run, on Linux;
// 0 if there is none of that name.
func signalNumber(name string) int {
	return map[string]int{"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGABRT": 6, "SIGKILL": 9, "SIGSEGV": 11, "SIGPIPE": 13, "SIGTERM": 15}[name]
}
