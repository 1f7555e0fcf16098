package agentcache

import (
	"flag"
	"testing"
)

// A sequence that has failed without the race detector is there with it for a -run that names it.
func TestSequences_OneThatIsNamed(t *testing.T) {
	run := flag.Lookup("test.run").Value
	was := run.String()
	defer func() { _ = run.Set(was) }()
	if err := run.Set("TestConn_RandomSessions/version_1,_37"); err != nil {
		t.Fatal(err)
	}
	if n := Sequences(40); n != 40 {
		t.Errorf("%d of 40 are played", n)
	}
}
