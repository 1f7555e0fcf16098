// Package scratch keeps the temporary files of tests in memory.
//
// Tests make and remove very many small files. On a disk that takes much of their processor time: ext4, for one,
// looks at each file that was removed within the last minutes before it makes another.
package scratch
