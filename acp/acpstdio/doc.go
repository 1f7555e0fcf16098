// Package acpstdio serves ACP over standard streams, one JSON object per line, as
// editors talk to the agents that they start.
//
// # Guarantees
//
// The connection ends with the input: that is how editors end agents. What is
// ready then is written, what runs is not waited for. A line that is no message
// is answered with an error and ends nothing, however long it is. Only messages
// are written, and what cannot be written holds the connection up.
package acpstdio
