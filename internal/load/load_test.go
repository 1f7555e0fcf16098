package main

import (
	"bytes"
	"os"
	"path/filepath"
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
	case len(args) > 3 && args[1] == tapArgument:
		if runTap(args[2], args[3:], os.Stdin, os.Stdout) != nil {
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

// What an agent behind an adapter says is seen in order, by the client and by the tap, prompt after prompt.
func TestPeer(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{name: "load", agent: []string{self, agentArgument}, files: map[string]string{"said": "{model}"}}
	s := side{name: "itself", command: []string{"{home}/" + agentScript}}
	got, err := p.run(t.Context(), self, s, func(l *life) ([]figure, error) {
		if said, err := os.ReadFile(filepath.Join(l.home, "said")); err != nil || !bytes.HasPrefix(said, []byte("http://127.0.0.1:")) {
			t.Errorf("a file of the agent says %q, %v", said, err)
		}
		for _, count := range []int{1, 700} {
			if took, err := l.stream(l.session, count, 0); err != nil || took <= 0 || len(l.deltas.late()) != count {
				t.Errorf("%d deltas took %s, %v", len(l.deltas.late()), took, err)
			}
		}
		if err := l.more(2); err != nil {
			t.Error(err)
		}
		written, err := readTap(l.tap)
		if last, ok := written[700]; err != nil || !ok || last.After(l.deltas.came[699]) {
			t.Errorf("the tap has seen %d deltas, %v, the last one at %s", len(written), err, last)
		}
		u := l.usage()
		if u.own.cpu <= 0 || len(u.each) < 2 || u.tree.memory <= u.own.memory {
			t.Errorf("it took %v", u)
		}
		return []figure{{1, "s"}}, nil
	}, true)
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

// Several deltas may come in one update; one that is missing, and one that comes twice, is noticed.
func TestDeltas(t *testing.T) {
	said := func(numbers ...int) []byte {
		frame := []byte(`{"text":"mail to a@b.c, `)
		for _, n := range numbers {
			b := make([]byte, stampSize)
			stamp(b, 1, n)
			frame = append(append(frame, b...), " and so on"...)
		}
		return append(frame, `"}`...)
	}
	for name, tt := range map[string]struct {
		frames         [][]byte
		wrong, updates int
	}{
		"together": {[][]byte{said(0, 1), said(), said(2)}, 0, 2},
		"missing":  {[][]byte{said(0), said(2)}, 1, 1},
		"twice":    {[][]byte{said(0), said(0, 1), said(2), said(2)}, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := &deltas{}
			d.expect(3)
			for _, frame := range tt.frames {
				d.take(frame)
			}
			if d.wrong != tt.wrong || d.updates != tt.updates {
				t.Errorf("%d wrong in %d updates, want %d in %d", d.wrong, d.updates, tt.wrong, tt.updates)
			}
		})
	}
}

// The table has the gateway beside each adapter.
func TestReport_Peers(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	r.note("Peer/a", gatewaySide, []figure{{3, "MiB"}})
	r.note("Peer/a", "a-acp", []figure{{12, "MiB"}})
	r.peers()
	if row := strings.Join(strings.Fields(out.String()[strings.LastIndex(out.String(), "Peer/a"):]), " "); row != "Peer/a MiB a-acp 12 3 0.25" {
		t.Errorf("the row is %q", row)
	}
}
