package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// twenty makes the log of 20 entries, and returns its file's bytes, and where each block ends.
func twenty(t *testing.T) (path string, data []byte, ends []int64) {
	t.Helper()
	l, path := open(t, 0)
	for i := 1; i <= 20; i++ {
		fill(t, l, i, i)
		ends = append(ends, l.Size())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	data = mustRead(t, path)
	return path, data, append(ends, int64(len(data)))
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// lostIn returns what a log in another run of the machine tells readers to be lost, when one more entry was appended.
func lostIn(t *testing.T, path string, reached uint64) (told []string) {
	t.Helper()
	l := openTrimmed(t, path, Options{Reached: reached, disk: bootDisk{boot: 77}})
	if seq, err := l.AppendFlush(Update, Everyone, []byte(`{"n":"later"}`)); err != nil || seq <= reached {
		t.Errorf("entry %d, %v", seq, err)
	}
	for _, e := range readAllKinds(t, l) {
		if e.Kind == Damage {
			told = append(told, string(e.Frame))
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return told
}

// A file that is whole stays as it is, also when the copy has lost its own end, and has noted that.
func TestRepair_TheCopyHasLostItsEnd(t *testing.T) {
	for name, note := range map[string]func(copied string) error{
		"it was opened":   func(copied string) error { return openTrimmed(t, copied, Options{Reached: 20}).Close() },
		"it was repaired": func(copied string) error { _, err := Repair(copied, "", 20); return err },
		"of garbage": func(copied string) error {
			b := mustRead(t, copied)
			put(t, copied, append(b, make([]byte, 300)...))
			_, err := Repair(copied, "", 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, data, ends := twenty(t)
			copied := filepath.Join(t.TempDir(), "copy")
			put(t, copied, data[:ends[13]])
			if err := note(copied); err != nil {
				t.Fatal(err)
			}
			if rep, err := Verify(copied, 0); err != nil || len(rep.Lost) != 1 {
				t.Fatalf("the copy: %+v, %v", rep, err)
			}
			did, err := Repair(path, copied, 20)
			if err != nil || did != (Repaired{}) || !bytes.Equal(mustRead(t, path), data) {
				t.Errorf("%+v, %v", did, err)
			}
		})
	}
}

// What is behind the last entry is damaged, and no entry: nothing is lost, before and after it goes on.
func TestRepair_OnlyTheClosingMark(t *testing.T) {
	for _, from := range []bool{false, true} {
		for _, entries := range []int{0, 3} { // that are damaged, too
			if entries > 0 && !from {
				continue
			}
			t.Run(fmt.Sprintf("a copy: %v, and %d entries", from, entries), func(t *testing.T) {
				path, data, ends := twenty(t)
				copied := ""
				if from {
					copied = filepath.Join(t.TempDir(), "copy")
					put(t, copied, data)
				}
				b := bytes.Clone(data)
				for i := 19 - entries; i < 20; i++ {
					b[ends[i]+9] ^= 1
				}
				put(t, path, b)
				if did, err := Repair(path, copied, 20); err != nil || !did.Done || did.Taken != entries {
					t.Fatalf("%+v, %v", did, err)
				}
				rep, err := Verify(path, 20)
				if err != nil || rep.Entries != 20 || len(rep.Damage)+len(rep.Lost) > 0 || !rep.Closed {
					t.Errorf("%+v, %v", rep, err)
				}
				if told := lostIn(t, path, 20); len(told) > 0 {
					t.Errorf("it tells of %v", told)
				}
			})
		}
	}
	// Of the mark behind skipped numbers, only what it says of the next one.
	path, data, ends := twenty(t)
	put(t, path, data[:ends[19]])
	if err := openTrimmed(t, path, Options{}).Close(); err != nil {
		t.Fatal(err)
	}
	b := mustRead(t, path)
	if len(b) != int(ends[19])+longestMark {
		t.Fatalf("the mark has %d bytes", len(b)-int(ends[19]))
	}
	b[len(b)-1] ^= 1
	put(t, path, b)
	if did, err := Repair(path, "", 20); err != nil || !did.Done {
		t.Fatalf("%+v, %v", did, err)
	}
	if rep, err := Verify(path, 20); err != nil || len(rep.Damage)+len(rep.Lost) > 0 || !rep.Closed {
		t.Errorf("%+v, %v", rep, err)
	}
	if told := lostIn(t, path, 20); len(told) > 0 {
		t.Errorf("it tells of %v", told)
	}
	// Where it is not known how far readers came, there may have been more.
	path, data, _ = twenty(t)
	data[len(data)-1] ^= 1
	put(t, path, data)
	if _, err := Repair(path, "", 0); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(path, 0); err != nil || len(rep.Lost) != 1 || rep.Lost[0].First != 21 {
		t.Errorf("%+v, %v", rep, err)
	}
}

// asBefore makes a file as earlier versions wrote it: behind what is lost its numbers count as skipped.
func asBefore(data []byte) []byte {
	data = bytes.Clone(data)
	n := uint64(0)
	w := &walk{f: bytes.NewReader(bytes.Clone(data)), off: int64(len(versionLine)), end: int64(len(data))}
	for p, err := w.next(); err == nil; p, err = w.next() {
		p.skipped += n
		p.put(data[p.off:])
		if p.kind == lost {
			n += p.bound - p.first + 1
		}
	}
	return data
}

// Blocks that are cut out directly behind a note of what is lost are named, and none where nothing is cut out.
func TestDamage_CutOutBehindWhatIsLost(t *testing.T) {
	path, _, _ := twenty(t)
	l := openTrimmed(t, path, Options{Reached: 26})
	if seq := l.Given(); seq != 26 {
		t.Fatalf("%d were given", seq)
	}
	begins := l.Size()
	var ends []int64
	for i := 27; i <= 60; i++ {
		fill(t, l, i, i)
		ends = append(ends, l.Size())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"now": mustRead(t, path), "as before": asBefore(mustRead(t, path))} {
		t.Run(name, func(t *testing.T) {
			for gone := range 20 {
				if name == "as before" && gone == 6 {
					continue // as many as were lost: that cannot be told from a file as it is written now
				}
				b := bytes.Clone(data[:begins])
				want := `[{"damaged":{"first":21,"last":26}}`
				if gone == 0 {
					b = append(b, data[begins:]...)
				} else {
					b = append(b, data[ends[gone-1]:]...)
					want += fmt.Sprintf(` {"damaged":{"first":27,"last":%d}}`, 26+gone)
				}
				put(t, path, b)
				rep, err := Verify(path, 60)
				if err != nil || len(rep.Lost) != 1 || len(rep.Damage) != min(gone, 1) || gone > 0 && (rep.Damage[0].First != 27 || rep.Damage[0].Last != 26+uint64(gone)) {
					t.Fatalf("%d are gone: %+v, %v", gone, rep, err)
				}
				if told := fmt.Sprint(lostIn(t, path, 60)); told != want+"]" {
					t.Errorf("%d are gone: %s, want %s", gone, told, want)
				}
			}
		})
	}
}

// A file that was repaired says by one count which numbers no entry has, whoever wrote what of it: what is cut out of it later is named.
func TestRepair_CountsAnew(t *testing.T) {
	path, data, ends := twenty(t)
	copied := filepath.Join(t.TempDir(), "copy")
	put(t, copied, data)
	for name, as := range map[string]func([]byte) []byte{"now": bytes.Clone, "as before": asBefore} {
		t.Run(name, func(t *testing.T) {
			put(t, path, data[:ends[9]])
			l := openTrimmed(t, path, Options{Reached: 20})
			first := l.Given() + 1
			for i := range 20 {
				fill(t, l, int(first)+i, int(first)+i)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			put(t, path, as(mustRead(t, path)))
			last := first + 19
			if did, err := Repair(path, copied, last); err != nil || did.Taken != 10 {
				t.Fatalf("%+v, %v", did, err)
			}
			if rep, err := Verify(path, last); err != nil || len(rep.Damage) > 0 || rep.Entries != 40 {
				t.Fatalf("%+v, %v", rep, err)
			}
			b := mustRead(t, path)
			var offs []int64
			w := &walk{f: bytes.NewReader(b), off: int64(len(versionLine)), end: int64(len(b))}
			for p, err := w.next(); err == nil; p, err = w.next() {
				if p.kind == entries && p.first >= first {
					offs = append(offs, p.off)
				}
			}
			put(t, path, append(bytes.Clone(b[:offs[0]]), b[offs[3]:]...))
			rep, err := Verify(path, last)
			if err != nil || len(rep.Damage) != 1 || rep.Damage[0].Last != first+2 {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}

// What a power cut took, and a log has gone on behind, is named and healed as clients are told of it.
func TestRepair_BehindAPowerCut(t *testing.T) {
	path, _, ends := twenty(t)
	data := mustRead(t, path)
	copied := filepath.Join(t.TempDir(), "copy")
	put(t, copied, data)
	put(t, path, data[:ends[9]])
	told := fmt.Sprint(lostIn(t, path, 5))
	rep, err := Verify(path, 0)
	if err != nil || len(rep.Damage) != 1 || rep.Damage[0].First != 11 {
		t.Fatalf("%+v, %v", rep, err)
	}
	if want := fmt.Sprintf(`[{"damaged":{"first":11,"last":%d}}]`, rep.Damage[0].Last); told != want {
		t.Errorf("it tells of %s, want %s", told, want)
	}
	did, err := Repair(path, copied, 0)
	if err != nil || did.Taken != 10 {
		t.Errorf("%+v, %v", did, err)
	}
	again, err := Verify(path, 0)
	if err != nil || len(again.Damage) > 0 || again.Entries != 21 || len(again.Lost) != 1 || again.Lost[0].First != 21 {
		t.Errorf("%+v, %v", again, err)
	}
}

// A copy is read once, whatever the size of its blocks.
func TestRepair_ReadsTheCopyOnce(t *testing.T) {
	l, path := open(t, 0)
	for i := range 2000 {
		fill(t, l, i+1, i+1)
	}
	data := mustRead(t, path)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	put(t, copied, data)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if did, err := Repair(path, copied, 2000); err != nil || did.Done {
		t.Fatalf("%+v, %v", did, err)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 20*uint64(len(data)) {
		t.Errorf("for a file of %d bytes it has made buffers of %d", len(data), took)
	}
}

// A repaired log tells no less of what a power cut took than one that goes on as it is, and gives no number a second time.
func TestRepair_HidesNothingOfAPowerCut(t *testing.T) {
	for name, row := range map[string]struct {
		behind int    // bytes of zeros behind entry 10
		upTo   uint64 // the newest entry that the session's record knows of
		copied int    // entries of the copy, 0 for none
		first  uint64 // of what is told
	}{
		"the file ends early":                  {upTo: 15, first: 11},
		"zeros at the end":                     {behind: 300, upTo: 15, first: 11},
		"as many as a header has":              {behind: headerSize, upTo: 10, first: 11},
		"fewer":                                {behind: 40, upTo: 10, first: 11},
		"a copy that goes on":                  {upTo: 12, copied: 15, first: 16},
		"a copy that goes on, behind the zero": {behind: 300, upTo: 12, copied: 15, first: 16},
	} {
		t.Run(name, func(t *testing.T) {
			told := func(repair bool) (first, last, next uint64) {
				path, data, ends := twenty(t)
				copied := ""
				if row.copied > 0 {
					copied = filepath.Join(t.TempDir(), "copy")
					put(t, copied, data[:ends[row.copied-1]])
				}
				put(t, path, append(data[:ends[9]:ends[9]], make([]byte, row.behind)...))
				if repair {
					if _, err := Repair(path, copied, row.upTo); err != nil {
						t.Fatal(err)
					}
				}
				l := openTrimmed(t, path, Options{Reached: row.upTo, Bound: 1025, disk: bootDisk{boot: 77}})
				defer l.Close()
				next, err := l.AppendFlush(Update, Everyone, []byte(`{"n":"later"}`))
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range readAllKinds(t, l) {
					if e.Kind == Damage {
						var d struct{ Damaged struct{ First, Last uint64 } }
						if err := json.Unmarshal(e.Frame, &d); err != nil {
							t.Fatal(err)
						}
						if first == 0 {
							first = d.Damaged.First
						}
						last = d.Damaged.Last
					}
				}
				return first, last, next
			}
			_, _, before := told(false)
			first, last, next := told(true)
			if first != row.first || last+1 != next || next+1 < before { // garbage at the end may count as one entry more
				t.Errorf("repaired it tells of %d to %d and goes on with %d, where it went on with %d", first, last, next, before)
			}
		})
	}
}

// Of a damaged block it is known which numbers were reserved: a log without its session's record gives none of them again.
func TestRepair_KeepsWhatWasReserved(t *testing.T) {
	for _, from := range []bool{false, true} {
		path, data, ends := twenty(t)
		copied := ""
		if from {
			copied = filepath.Join(t.TempDir(), "copy")
			put(t, copied, data[:ends[9]])
		}
		b := bytes.Clone(data[:ends[9]])
		b[len(b)-3] ^= 1
		put(t, path, b)
		if did, err := Repair(path, copied, 10); err != nil || !did.Done {
			t.Fatalf("%+v, %v", did, err)
		}
		l := openTrimmed(t, path, Options{Reached: 10, disk: bootDisk{boot: 77}})
		if given := l.Given(); given < 1025 {
			t.Errorf("a copy: %v: numbers up to %d are reserved", from, given)
		}
		_ = l.Close()
	}
}
