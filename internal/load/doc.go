// Command load measures a gateway from outside: it starts the program, a minimal bridge to
// compare it with, and an agent that answers at once, and prints what each of them takes.
//
//	go run ./internal/load                              every scenario, three times
//	go run ./internal/load -only 'Echo|Stream' -count 5
//	go run ./internal/load -before ../old/sandbox-agent  the same with an older program beside it
//	go run ./internal/load -peers                        real agents, beside the adapters of others
//
// Its lines are those of Go's benchmarks, so that benchstat compares two runs. Below them stands
// a table of medians, and of ratios to the bridge that carries the same kind of connection. All that is compared runs by turns
// in one run, since machines are not equally fast at all times.
//
// With -peers the scripted model on loopback streams numbered deltas to a real agent, which the gateway has on standard
// streams, or another's ACP adapter. Agents, adapters and Node.js come from npm, into the folder of the tests. Figures of
// Peer/AGENT are:
//
//	new-ms                       from the start of the process to the answer of session/new
//	first-ms, warm-first-ms      from a prompt to its first update: the first prompt, and later ones
//	paced-p50-µs                 from the model to the client, of one delta each 4 ms
//	paced-cpu-µs/delta           processor time of the gateway or adapter; tree-cpu is that with the agent's processes
//	burst-cpu-µs/delta           the same when the model says them as fast as the agent takes them
//	busy-MiB, idle-MiB           resident memory right after that, and when nothing has gone on for a while
//	MiB/session                  what more sessions add, pages of files aside
//
// In Peer/AGENT/added a tap stands between the agent and who reads it: the time is that from the agent's line to the client.
package main
