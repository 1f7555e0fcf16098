package codex

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// changed shows changes of files. The files themselves are not read: when a
// change is announced they may hold the old text, the new one, or nothing.
func changed(list []change) (content []schema.ToolCallContent, at []schema.ToolCallLocation) {
	for _, c := range list {
		switch c.Kind.Type {
		case "add":
			content = append(content, bridge.DiffContent(c.Path, nil, c.Diff)...)
			at = append(at, bridge.At(c.Path, 0)...)
		case "delete":
			content = append(content, bridge.DiffContent(c.Path, &c.Diff, "")...)
			at = append(at, bridge.At(c.Path, 0)...)
		default:
			path, diff := c.Path, c.Diff
			if c.Kind.Move != "" {
				diff = strings.TrimSuffix(diff, "\n\nMoved to: "+c.Kind.Move)
				path = c.Kind.Move
				at = append(at, bridge.At(c.Path, 0)...)
				content = append(content, bridge.TextContent("Moved "+c.Path+" to "+c.Kind.Move)...)
			}
			hunks := bridge.Hunks(diff)
			line := uint32(0)
			for i, h := range hunks {
				if i == 0 {
					line = h.Line
				}
				content = append(content, bridge.DiffContent(path, &h.Before, h.After)...)
			}
			at = append(at, bridge.At(path, line)...)
		}
	}
	return content, at
}
