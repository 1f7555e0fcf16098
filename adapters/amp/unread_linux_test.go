package amp

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestUnread(t *testing.T) {
	bridgetest.DiesUnread(t, func(t *testing.T) *bridgetest.World {
		return program(t, help+initLine+"\nread line\n").World
	}, "", map[string]string{})
}
