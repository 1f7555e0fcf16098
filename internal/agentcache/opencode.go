package agentcache

import _ "embed" // of the catalogue

// OpenCode is the newest version of OpenCode that all tests passed with.
const OpenCode = "1.18.33"

// OpenCodeModels is a catalogue of models for OPENCODE_MODELS_PATH, in the form of
// the one in its program. That one has some thousand models, which OpenCode reads
// again for each folder: more than a second of processor time. TestLive_ServerDies
// reads the whole one.
//
//go:embed opencode_models.json
var OpenCodeModels string
