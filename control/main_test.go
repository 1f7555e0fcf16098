package control

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite generated files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
