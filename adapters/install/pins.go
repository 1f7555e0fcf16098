package install

import (
	_ "embed"
	"encoding/json"
)

// pins.json holds the digests of the packages that the tests of this release
// ran with, as the registry gave them: NAME@VERSION to integrity. It is made by
// `go test ./adapters/install -run TestPins -update`.
//
//go:embed pins.json
var pinsJSON []byte

func pinnedDigests() map[string]string {
	var pins map[string]string
	if err := json.Unmarshal(pinsJSON, &pins); err != nil {
		panic("read pins.json: " + err.Error()) // it is part of this program, and a test reads it
	}
	return pins
}
