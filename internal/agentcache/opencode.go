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

// OpenCodeEnv makes the program of OpenCode cheaper and changes nothing of what it
// does. Malloc leaves memory to the C library: its runtime gives what is free back to
// the system, a page or four at a time, and takes it again. The others leave out
// the compilers that optimise and the threads that collect garbage, which pay only in
// processes that live longer than those of tests.
var OpenCodeEnv = []string{"Malloc=1", "BUN_JSC_useDFGJIT=0", "BUN_JSC_useConcurrentGC=0", "BUN_JSC_numberOfGCMarkers=1"}
