// Package journal is the ordered, replayable log of one session.
//
// # Guarantees
//
// Sequence numbers start at 1 and grow. They never repeat, not even after the
// machine lost its power: numbers are reserved in the file before they are
// given, and after an end that was not in good order those that may have been
// given are skipped. Otherwise they grow by one.
//
// Readers see an entry only when the file has it; those of a log that is held, when
// [Log.Confirm] has said that another place has it, too. [Log.Whole] reads all that the
// file has. While the file takes nothing
// the log keeps what is appended, tries again each second, and [Log.Room] holds
// back whoever appends; nothing is shown meanwhile. A log never turns to memory
// by itself. Appending never waits for readers, but see [Log.Room]: a reader is a [Cursor], a
// position that lags or does not, and holds no queue. What has left memory is
// read from the file; a log without a file says [ErrTruncated] for what it no
// longer has, never nothing.
//
// Damage costs the block that it is in. Readers are given one entry of the kind
// [Damage] in the place of those that are lost, and the bytes stay in the file
// until [Repair] puts them aside. A file that is not understood is refused and
// never changed.
//
// # File
//
// The line "sandbox-agent journal 2", then blocks. A block is a header of 56
// bytes and a payload:
//
//	mark      4 bytes  00 6a 32 0a, which no JSON text has within a line
//	kind      1        e entries, h about the session, c closed, g entries were lost
//	codec     1        0 as it is, 1 S2
//	          2        0
//	first     8        number of the first entry; of the next one if there is none
//	count     4        entries
//	raw       4        bytes of the payload before compression
//	stored    4        bytes of the payload in the file
//	sum       4        CRC-32C of the payload in the file
//	bound     8        numbers up to it are reserved; of kind g the last that is lost
//	skipped   8        numbers before first that no entry had, not those of entries that are lost
//	boot      4        names the run of the machine
//	check     4        CRC-32C of the header
//
// Numbers are little-endian. Each flush writes one block, compressed if it is long and
// repeats itself; when the log is given back, blocks are put together and compressed. The payload of
// entries is one line for each, in this order and without blanks:
//
//	{"seq":1,"time":1700000000000,"kind":"u","to":0,"message":{...}}
//
// time is in milliseconds since 1970, to is a [Recipient], kind a [Kind]. One
// that shows a prompt to others has {"prompt":SEQ,"block":N} for a message, and readers
// are given the block in its place. The block h has what is needed to make the session's record again. A block of kind
// c says that nothing is lost before it. At the end it says that no number is skipped; where some are, because who wrote the
// file was killed, its payload is the number of the next entry, in 8 bytes. Half a
// block at the end was seen by nobody, and is written over. Positions are found
// by bisection, so opening a log costs the same whatever its size.
//
// Files of the first format had only the lines. They are written anew when their
// log is opened.
package journal
