package acp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A cancel names prompts by a list of ids, of which few and short ones count. Without one, or with null, it is for all.
func TestPromptIDs(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat(`"a",`, 1000), ",")
	for _, c := range []struct {
		list  string
		want  int
		named bool
	}{
		{`["a","b"]`, 2, true},
		{`[]`, 0, true},
		{`["",7,null,{"a":1},"b"]`, 1, true},
		{`["` + strings.Repeat("a", 2000) + `","b"]`, 1, true},
		{`[` + many + `]`, 256, true},
		{`["a",` + strings.Repeat(" ", 2<<20) + `"b"]`, 0, true},
		{`null`, 0, false},
		{`"a"`, 0, true},
	} {
		m := acp.NewNotification(acp.MethodSessionCancel, fmt.Appendf(nil, `{"sessionId":"s","_meta":{"sandboxagent.dev":{"promptIds":%s}}}`, c.list))
		if ids, named := acp.PromptIDs(&m); len(ids) != c.want || named != c.named {
			t.Errorf("%.40s: %d ids, named %t", c.list, len(ids), named)
		}
	}
	m := acp.CancelOf("s", []string{"a", `"b`})
	if ids, named := acp.PromptIDs(&m); !named || m.Session() != "s" || cmp.Diff([]string{"a", `"b`}, ids) != "" {
		t.Errorf("%q, %t, %s", ids, named, m.Frame())
	}
	plain := acp.NewNotification(acp.MethodSessionCancel, []byte(`{"sessionId":"s"}`))
	if _, named := acp.PromptIDs(&plain); named {
		t.Error("a cancel without names names some")
	}
}
