package main

// row is one kind of harm and the test that does it.
type row struct {
	what     string
	pkg, run string // of go test
	name     string // of the number that the test asks for
	full     int    // that number at scale 1
	found    string // what is true when the test passes
}

// rows are the table of docs/reliability.mdx, in its order.
var rows = []row{
	{
		"random lives of a log on a disk that fails, fills up, and loses what was not synced at power cuts",
		"./runtime/journal", "^TestModel$", "LIVES", 10_000,
		"nothing promised was lost, no number given twice, no loss untold",
	},
	{
		"random damage of a log: read, repaired, read again",
		"./runtime/journal", "^TestDamage_Random$", "DAMAGES", 10_000,
		"nothing undamaged was lost, all that was lost was told",
	},
	{
		"pieces of a log's file are gone: read, verified, repaired, repaired from a copy",
		"./runtime/journal", "^TestDamage_PiecesAreGone$", "CUTS", 1_000,
		"each entry that was missing was named, and with a copy all were there again",
	},
	{
		"random sequences of events in the life of a session",
		"./runtime", "^TestLife_RandomSequences$", "SEQUENCES", 100_000,
		"every request was answered once, nothing stayed open, no process without a session",
	},
	{
		"SIGKILL at random moments while sessions work, ask and run tools",
		"./cmd/sandbox-agent", "^TestChaos_NothingStaysOpen$", "ROUNDS", 1_500,
		"no call and no request stayed open, each session went on",
	},
	{
		"the gateway ended by each signal, amid agents that ignore theirs and leave children",
		"./cmd/sandbox-agent", "^TestChaos_NothingIsLeftAndEveryRequestIsAnswered$", "ENDS", 40,
		"no process was left, every request was answered, every session was there",
	},
	{
		"SIGKILL of the gateway in the middle of a stream",
		"./cmd/sandbox-agent", "^TestKill_NothingSeenIsLost$", "KILLS", 50,
		"all that a client had seen was there, no number given twice",
	},
	{
		"connections cut in the middle of a stream, and taken up again",
		"./cmd/sandbox-agent", "^TestStream_ReconnectByResumeAfter$", "TURNS", 34,
		"each update arrived once, in order",
	},
	{
		"sessions made and deleted on one connection",
		"./cmd/sandbox-agent", "^TestFlat_SessionsMadeAndDeleted$", "SESSIONS", 100_000,
		"memory and descriptors stayed as they were after a quarter of them",
	},
}
