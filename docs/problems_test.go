package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

func TestProblems_AllExplained(t *testing.T) {
	b, err := os.ReadFile("troubleshooting.mdx")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, k := range problem.Kinds() {
		if begin := fmt.Sprintf("\n| `%s` | %d | ", k, k.Status()); !strings.Contains(text, begin) {
			t.Errorf("troubleshooting.mdx lacks a row that begins with %q", begin[1:])
		}
	}
	_, table, _ := strings.Cut(text, "| type | status |")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("the row has %d cells: %s", len(cells), line)
		}
		if kind := problem.Kind(strings.Trim(cells[0], " `")); kind.Status() == 0 {
			t.Errorf("there is no problem %s", kind)
		}
	}
}
