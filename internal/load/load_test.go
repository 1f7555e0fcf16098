package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	switch args := os.Args; {
	case len(args) == 2 && args[1] == agentArgument:
		if runAgent(os.Stdin) != nil {
			os.Exit(1)
		}
	case len(args) == 3 && args[1] == bridgeArgument:
		if runBridge(args[2], []string{args[0], agentArgument}) != nil {
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// A client sees each update of an agent behind a bridge, in order, whatever carries it, and
// notices when one is missing.
func TestClient_OfABridge(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range targetsOf(self, "", "", "", "") {
		if !b.bridge {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			if err := b.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := b.stop(); err != nil {
					t.Error(err)
				}
			}()
			all, closeAll, err := open(b, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll()
			if _, late, err := streamOnce(all, 300, 70<<10, 0); err != nil || len(late) != 600 {
				t.Errorf("%d updates, %v, want 600", len(late), err)
			}
			if answer, err := all[0].prompt(all[0].session, "ask"); err != nil || !bytes.Contains(answer, []byte(`"askedNs":`)) {
				t.Errorf("a permission: %s, %v", answer, err)
			}
			if u := b.usage(); u.cpu <= 0 || u.memory < 1<<20 {
				t.Errorf("the bridge has used %v", u)
			}
		})
	}
	s := &session{}
	s.expect(2)
	line := []byte(`{"text":"` + strings.Repeat(" ", stampSize) + `"}`)
	stamp(line[9:], 1, 1)
	if s.update(line); s.wrong.Load() != 1 {
		t.Error("an update is missing, and nobody has noticed")
	}
}

// The report has a line for each run, as benchmarks have, and the ratio of medians.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	for _, v := range []float64{5, 2, 3} {
		r.note("Echo", "http", []figure{{2 * v, "p50-µs"}})
		r.note("Echo", "bridge-http", []figure{{v, "p50-µs"}})
	}
	r.table()
	got := out.String()
	for _, want := range []string{"BenchmarkEcho/http-", "\t1\t4 p50-µs\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, got)
		}
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if last := strings.Fields(lines[len(lines)-1]); len(last) != 18 || last[2] != "3" || last[3] != "6" || last[4] != "2" {
		t.Errorf("the table's row is %q", last)
	}
}
