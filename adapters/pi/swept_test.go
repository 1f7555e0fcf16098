package pi

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestOpen_RemovesWhatAKilledGatewayLeft(t *testing.T) { bridgetest.LeftBehind(t, New()) }
