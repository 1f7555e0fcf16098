// Package bridgetest is what the tests of bridges share: a [World] in which the
// real program of an agent talks to a scripted model, a [Client] that stands
// where the gateway stands, and the golden files of translations.
//
// Starting the program is what costs. Tests that need nothing of their own are
// parts of one test, TestLive_Shared, and share its programs: see [World.Part]. A
// test has a World of its own when it needs another configuration, ends the
// program or looks at the next one.
//
// A [Stage] plays random sequences of events between a client and a [Puppet], a
// process that says what the test wants in the place of the agent's program.
//
// It knows no agent. What an agent's tests need besides, such as the
// configuration that leads its program to the model, they add to the World.
package bridgetest
