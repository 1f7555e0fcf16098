// Package process runs child processes that leave nothing behind.
//
// # Guarantees
//
// A process has its own process group and, on Linux, is killed when the
// gateway dies. Whatever it starts carries a marker in its environment, so a
// child that left the group, or whose parent is gone, is found and ended too.
// [Process.Stop] returns in bounded time, after stdin was closed, then SIGTERM,
// then SIGKILL, and waits for the exit and never for a fixed time. When a process
// exits by itself, what it left running is ended at once. When the gateway is
// killed, a guard process ends everything that carries its marker; should the
// guard be killed too, the next gateway on the data directory does, by [TakeOver].
package process
