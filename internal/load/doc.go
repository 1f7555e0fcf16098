// Command load measures a gateway from outside: it starts the program, a minimal bridge to
// compare it with, and an agent that answers at once, and prints what each of them takes.
//
//	go run ./internal/load                              every scenario, three times
//	go run ./internal/load -only 'Echo|Stream' -count 5
//	go run ./internal/load -before ../old/sandbox-agent  the same with an older program beside it
//
// Its lines are those of Go's benchmarks, so that benchstat compares two runs. Below them stands
// a table of medians, and of ratios to the bridge that carries the same kind of connection. All that is compared runs by turns
// in one run, since machines are not equally fast at all times.
package main
