package telemetry

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "../../docs/observability.mdx"

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(sandbox_agent_\\w+)` \\| (\\w+) \\|([^|]*)\\|")
	quoted    = regexp.MustCompile("`(\\w+)`")
	inQuery   = regexp.MustCompile(`sandbox_agent_\w+`)
)

// The page lists every metric with its type and labels, and nothing else.
func TestDocs_Metrics(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var documented, real []string
	for _, row := range metricRow.FindAllStringSubmatch(string(b), -1) {
		var labels []string
		for _, l := range quoted.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, l[1])
		}
		documented = append(documented, fmt.Sprint(row[1], " ", row[2], " ", labels))
	}
	names := map[string]bool{}
	for _, f := range newMetrics("test").families {
		real = append(real, fmt.Sprint(f.name, " ", f.kind, " ", f.labels))
		names[f.name] = true
	}
	slices.Sort(documented)
	slices.Sort(real)
	if diff := cmp.Diff(documented, real); diff != "" {
		t.Errorf("%s and the metrics differ (-page +metrics):\n%s", page, diff)
	}
	// Queries use what there is.
	for part := range strings.SplitSeq(string(b), "```promql") {
		query, _, found := strings.Cut(part, "```")
		if !found || strings.HasPrefix(part, "---") {
			continue
		}
		for _, name := range inQuery.FindAllString(query, -1) {
			if base := strings.TrimSuffix(name, "_bucket"); !names[base] {
				t.Errorf("a query uses %s, which is no metric", name)
			}
		}
	}
}

// What the page says of variables is what the code reads.
func TestDocs_Variables(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"traces.go", "sender.go"} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`"(OTEL_\w+)"`).FindAllStringSubmatch(string(src), -1) {
			general := strings.Replace(name[1], "OTLP_TRACES_", "OTLP_", 1)
			short := "..." + strings.TrimPrefix(general, "OTEL_EXPORTER_OTLP")
			if !strings.Contains(string(b), "`"+general+"`") && !strings.Contains(string(b), "`"+short+"`") {
				t.Errorf("the page does not tell of %s", general)
			}
		}
	}
}
