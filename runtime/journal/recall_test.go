package journal

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// A log in memory has the entries of another one, with their numbers and times, also where
// numbers are missing, and goes on behind them.
func TestLog_Recall(t *testing.T) {
	from, err := Open("", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	seqs := []uint64{3, 4, 9, 10}
	lines := func() func() (Entry, error) {
		i := 0
		return func() (Entry, error) {
			if i == len(seqs) {
				return Entry{}, io.EOF
			}
			e, ok := parseLine(fmt.Appendf(nil, `{"seq":%d,"time":%d,"kind":"u","to":0,"message":{"n":%d}}`, seqs[i], 1700000000000+i, i))
			if !ok {
				t.Fatal("the line is no entry")
			}
			i++
			return e, nil
		}
	}
	if err := from.Recall(0, lines()); err != nil {
		t.Fatal(err)
	}
	if next := from.Append(Update, Everyone, []byte(`{"n":4}`)); next != 11 {
		t.Errorf("it goes on with number %d", next)
	}
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
	for after := range uint64(11) {
		got, err := from.Cursor(max(after, 2)).Next(nil, 1<<20)
		if err != nil {
			t.Fatalf("behind %d: %v", after, err)
		}
		var want []uint64
		for _, seq := range append(seqs, 11) {
			if seq > after {
				want = append(want, seq)
			}
		}
		if len(got) != len(want) {
			t.Fatalf("behind %d there are %d entries, want %d", after, len(got), len(want))
		}
		for i, e := range got {
			if e.Seq != want[i] || e.Seq < 11 && e.Time().UnixMilli()-1700000000000 > 3 {
				t.Errorf("behind %d: entry %d at %s, want %d", after, e.Seq, e.Time(), want[i])
			}
		}
	}
	if err := from.Recall(0, lines()); err == nil {
		t.Error("a log with entries was filled")
	}
}

// Entries that are lost were not let go: who begins in front of them is given what there is.
func TestLog_Recall_WhatWasLetGo(t *testing.T) {
	for oldest, want := range map[uint64]uint64{0: 3, 1: 1, 2: 2, 3: 3} {
		l, err := Open("", Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, _ := parseLine([]byte(`{"seq":3,"time":1700000000000,"kind":"u","to":0,"message":{}}`))
		left := []Entry{e}
		err = l.Recall(oldest, func() (Entry, error) {
			if len(left) == 0 {
				return Entry{}, io.EOF
			}
			e := left[0]
			left = left[1:]
			return e, nil
		})
		if err != nil || l.Oldest() != want {
			t.Errorf("with %d as the oldest it is %d, %v", oldest, l.Oldest(), err)
		}
		for after := range uint64(3) {
			got, err := l.Cursor(after).Next(nil, 1<<20)
			if gone := after+1 < want; errors.Is(err, ErrTruncated) != gone || !gone && (len(got) != 1 || got[0].Seq != 3) {
				t.Errorf("behind %d of a log whose oldest is %d: %d entries, %v", after, want, len(got), err)
			}
		}
		_ = l.Close()
	}
}
