package replica

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// leastRead is how much is read at once at least.
const leastRead = 32 << 10 // bytes

// values reads the values of a JSON text as they come, each once it is whole. Of what was read
// only the value that is read now is kept.
type values struct {
	r   io.Reader
	buf []byte // read
	at  int    // of it is used
	// wrong is why what is left cannot be the beginning of a value.
	wrong error
}

// more reads on. A value that is not whole yet is looked at again from its beginning, so the longer it is,
// the more is read.
func (v *values) more() error {
	unread := v.buf[v.at:]
	rest := len(unread)
	want := max(leastRead, rest/8)
	if v.at = 0; cap(v.buf) < rest+want {
		v.buf = append(make([]byte, 0, 2*rest+want), unread...)
	} else {
		v.buf = v.buf[:copy(v.buf, unread)]
	}
	least := 1
	if rest >= leastRead {
		least = want
	}
	n, err := io.ReadAtLeast(v.r, v.buf[rest:rest+want], least)
	v.buf = v.buf[:rest+n]
	switch {
	case n > 0: // what is wrong is said the next time
		return nil
	case errors.Is(err, io.EOF):
		if v.wrong != nil {
			return badAnswer("%v", v.wrong)
		}
		return fmt.Errorf("%w: a page of events was cut off", errLost)
	case errors.Is(err, errLarge):
		return err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// next returns the next byte that is no space.
func (v *values) next() (byte, error) {
	for {
		for ; v.at < len(v.buf); v.at++ {
			if c := v.buf[v.at]; !rawjson.IsSpace(c) {
				return c, nil
			}
		}
		if err := v.more(); err != nil {
			return 0, err
		}
	}
}

// mark reads a mark between values.
func (v *values) mark(want byte) error {
	c, err := v.next()
	if err != nil {
		return err
	}
	if c != want {
		return badAnswer("a page of events has %q where %q should be", c, want)
	}
	v.at++
	return nil
}

// list reads what stands between two marks, apart by commas, each with one.
func (v *values) list(begin, end byte, one func() error) error {
	if err := v.mark(begin); err != nil {
		return err
	}
	for first := true; ; first = false {
		c, err := v.next()
		if err != nil {
			return err
		}
		if c == end {
			v.at++
			return nil
		}
		if !first {
			if err := v.mark(','); err != nil {
				return err
			}
		}
		if err := one(); err != nil {
			return err
		}
	}
}

// value reads a value, which is there until the next one is read. It has no line breaks.
func (v *values) value() ([]byte, error) {
	if _, err := v.next(); err != nil {
		return nil, err
	}
	for {
		scan := rawjson.NewScanner(v.buf[v.at:])
		end := scan.Value(0, 1)
		if end > 0 && v.at+end < len(v.buf) { // something stands behind it: a number does not go on
			raw := v.buf[v.at : v.at+end]
			v.at += end
			if !scan.Breaks() {
				return raw, nil
			}
			var line bytes.Buffer
			err := json.Compact(&line, raw)
			return line.Bytes(), err
		}
		// It is not whole, or none, which shows when there is no more.
		v.wrong = nil
		if syntax := new(rawjson.SyntaxError); end < 0 && errors.As(scan.Err(), &syntax) && !cut(v.buf[v.at:][syntax.At:]) {
			v.wrong = syntax
		}
		if err := v.more(); err != nil {
			return nil, err
		}
	}
}

// cut reports whether the text from where its syntax failed may have been cut off: before what has
// to follow, or within a text, a number or a word.
func cut(rest []byte) bool {
	if len(rest) == 0 || rest[0] == '"' {
		return true
	}
	return len(rest) < len("false") && bytes.IndexByte([]byte("-+.eE0123456789tfn"), rest[0]) >= 0
}
