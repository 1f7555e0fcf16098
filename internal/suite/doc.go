// Command suite runs all tests and tells what ran: so many of each kind, and how
// often real agents were started. It fails when a test fails, when one is skipped
// that may not be (with CI=true), and when fewer tests of a kind ran than
// floors.txt says, so that none stops running without notice.
//
//	go run ./internal/suite            what ./task test runs
//	go run ./internal/suite -long      all versions and combinations, all with the race detector
//	go run ./internal/suite -check     the short tests of what has changed
package main
