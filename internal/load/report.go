package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report prints what was measured: a line for each run, as benchmarks of Go do, and a table of
// medians at the end.
type report struct {
	out     io.Writer
	history io.Writer // nil for none

	rows []*row
}

// row is one figure of a scenario.
type row struct {
	scenario, unit string
	of             map[string][]float64 // by target
}

// begin prints what benchstat tells runs apart by.
func (r *report) begin() {
	commit, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	processor := "unknown"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(b), "model name\t: ")
		processor, _, _ = strings.Cut(rest, "\n")
	}
	r.print(fmt.Sprintf("goos: %s\ngoarch: %s\npkg: sandboxagent.dev/sandbox-agent/internal/load\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, processor))
	if r.history != nil {
		_, _ = fmt.Fprintf(r.history, "commit: %s\ntime: %s\n", strings.TrimSpace(string(commit)), time.Now().UTC().Format(time.RFC3339))
	}
}

func (r *report) print(line string) {
	_, _ = io.WriteString(r.out, line)
	if r.history != nil {
		_, _ = io.WriteString(r.history, line)
	}
}

func (r *report) note(scenario, target string, figures []figure) {
	line := fmt.Sprintf("Benchmark%s/%s-%d\t1", scenario, target, runtime.NumCPU())
	for _, f := range figures {
		line += fmt.Sprintf("\t%.4g %s", f.value, f.unit)
		i := slices.IndexFunc(r.rows, func(w *row) bool { return w.scenario == scenario && w.unit == f.unit })
		if i < 0 {
			i, r.rows = len(r.rows), append(r.rows, &row{scenario, f.unit, map[string][]float64{}})
		}
		r.rows[i].of[target] = append(r.rows[i].of[target], f.value)
	}
	r.print(line + "\n")
}

// table prints medians, and how they relate to what they are compared with.
func (r *report) table() {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nscenario\t\tbridge-http\thttp\tratio\tbefore\thub\tbefore\tnode\tbefore\tbridge-ws\tws\tratio\tbefore\thub\tbefore\tnode\tbefore\t")
	for _, row := range r.rows {
		line := row.scenario + "\t" + row.unit
		for _, way := range []string{"http", "ws"} {
			bridge, own := median(row.of["bridge-"+way]), median(row.of[way])
			for _, v := range []float64{bridge, own, own / bridge, median(row.of["before-"+way]), median(row.of["hub-"+way]), median(row.of["before-hub-"+way]), median(row.of["node-"+way]), median(row.of["before-node-"+way])} {
				line += "\t" + number(v)
			}
		}
		_, _ = fmt.Fprintln(w, line+"\t")
	}
	_ = w.Flush()
}

// peers prints medians of the gateway beside those of each adapter.
func (r *report) peers() {
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\nagent\t\tadapter\tits\tgateway\tratio\t")
	for _, row := range r.rows {
		own := median(row.of[gatewaySide])
		for _, name := range slices.Sorted(maps.Keys(row.of)) {
			if its := median(row.of[name]); name != gatewaySide {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", row.scenario, row.unit, name, number(its), number(own), number(own/its))
			}
		}
	}
	_ = w.Flush()
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func number(v float64) string {
	switch {
	case v == 0 || v != v || v > 1e300:
		return "-"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
