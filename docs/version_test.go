package docs_test

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/version"
)

// The tables of the page are those by which the gateway translates.
func TestGenerated_Versions(t *testing.T) {
	raised, lowered := version.Table()
	table := func(from, to string, rows []version.Row) string {
		var b strings.Builder
		b.WriteString("| " + from + " | " + to + " | |\n|---|---|---|\n")
		for _, r := range rows {
			target := "—"
			if r.To != "" {
				target = "`" + strings.ReplaceAll(r.To, ", ", "`, `") + "`"
			}
			b.WriteString("| `" + strings.ReplaceAll(r.From, ", ", "`, `") + "` | " + target + " | " + r.Note + " |\n")
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	generated(t, "acp-v2.mdx", "raised", table("version 1", "version 2", raised))
	generated(t, "acp-v2.mdx", "lowered", table("version 2", "version 1", lowered))
	said, asked := version.AgentTable()
	generated(t, "acp-v2.mdx", "said", table("version 2", "version 1", said))
	generated(t, "acp-v2.mdx", "asked", table("version 1", "version 2", asked))
}
