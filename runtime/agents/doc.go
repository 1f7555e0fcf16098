// Package agents owns the processes of agents: it starts them, gives them to those
// who need one, and ends them.
//
// # A process
//
// Every [Process] belongs to its [Agent], which has it in its table from the
// decision to start it until nothing of it is left. It is in one state:
//
//	starting ──▶ running ──▶ ending ──▶ ended
//	    └────────────────────▲
//
//	state     what it is                          leaves it when
//	starting  waits out a delay, is installed,    it has answered initialize: running;
//	          opened and asked to initialize      any of that failed, or Close: ending
//	running   can be held, takes requests         its output ended, nobody has held it
//	                                              for a while, or Close: ending
//	ending    nothing is sent, nobody can hold    reader and writer have returned: ended
//	          it; all that waited was answered
//	ended     nothing of it is left
//
// Those who need the same share a process ([Needs]); a start is made once for all
// who wait for it. A process that somebody holds, or that serves a session, is not
// ended as unused. Deaths and failed starts delay the next start ([Backoff]).
//
// # Locks
//
// Order: Agent.mu, Process.mu, outbox.mu. Process.wmu is held while the agent's
// input is written, and nobody waits for it who holds another one. No lock is held
// while somebody else's function is called.
package agents
