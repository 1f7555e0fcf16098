package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// deltas are the model's chunks as they come to a client, in updates of one or several. Numbers
// go on from prompt to prompt. The reader of the connection calls take; the rest is for who
// prompts, between prompts.
type deltas struct {
	from    int // number of the first one
	want    int
	updates int // that had some of them
	wrong   int // that were not the next one
	sent    []time.Time
	came    []time.Time
	all     chan struct{} // closed when as many have come as are expected
}

// expect begins to count anew.
func (d *deltas) expect(count int) {
	*d = deltas{from: d.from + d.want, want: count, all: make(chan struct{})}
}

func (d *deltas) take(frame []byte) {
	now, before := time.Now(), len(d.came)
	eachStamp(frame, func(at time.Time, number int) {
		if len(d.came) == d.want || number != d.from+len(d.came) {
			d.wrong++
			return
		}
		d.sent, d.came = append(d.sent, at), append(d.came, now)
	})
	if len(d.came) == before {
		return
	}
	if d.updates++; len(d.came) == d.want {
		close(d.all)
	}
}

// late returns how old each was when it came.
func (d *deltas) late() []time.Duration {
	var all []time.Duration
	for i, at := range d.came {
		all = append(all, at.Sub(d.sent[i]))
	}
	return all
}

// eachStamp calls f for the stamps in b, and returns the end of b that may be the begin of one.
func eachStamp(b []byte, f func(at time.Time, number int)) (rest []byte) {
	for {
		i := bytes.IndexByte(b, '@')
		if i < 0 {
			return nil
		}
		if len(b) < i+stampSize {
			return b[i:]
		}
		ns, err := strconv.ParseInt(string(b[i+1:i+20]), 10, 64)
		n, err2 := strconv.Atoi(string(b[i+21 : i+30]))
		if b[i+20] != '#' || b[i+30] != ';' || err != nil || err2 != nil {
			b = b[i+1:]
			continue
		}
		f(time.Unix(0, ns), n)
		b = b[i+stampSize:]
	}
}

// runTap runs a command, passes on what it writes, and notes in a file when it wrote which delta
// for the first time. The time is taken before the bytes are passed on.
func runTap(file string, command []string, in *os.File, out io.Writer) error {
	notes, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = notes.Close() }()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	next := 0
	var held, note []byte // held is what may be the begin of a stamp
	for buffer := make([]byte, 256<<10); ; {
		n, err := pipe.Read(buffer)
		now := time.Now().UnixNano()
		if n > 0 {
			if _, err := out.Write(buffer[:n]); err != nil {
				break
			}
			note = note[:0]
			rest := eachStamp(append(held, buffer[:n]...), func(_ time.Time, number int) {
				if number >= next {
					next, note = number+1, fmt.Appendf(note, "%d %d\n", number, now)
				}
			})
			held = append(held[:0], rest...)
			if _, err := notes.Write(note); err != nil {
				return err
			}
		}
		if err != nil {
			break
		}
	}
	return cmd.Wait()
}

// readTap returns when each delta was written, by number.
func readTap(file string) (map[int]time.Time, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	written := map[int]time.Time{}
	in := bufio.NewScanner(f)
	for in.Scan() {
		var number int
		var ns int64
		if _, err := fmt.Sscanf(in.Text(), "%d %d", &number, &ns); err != nil {
			return nil, err
		}
		written[number] = time.Unix(0, ns)
	}
	return written, in.Err()
}
