package fs

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxPlaces bounds the snapshots that travel with a workspace; of more the oldest go.
const maxPlaces = 8

// Places says of a workspace that goes from place to place what each place had in common
// with it last. It travels with the session, also where its files do not: what a place and
// the workspace have changed since they met is what differs from that. The zero value knows
// of no place.
type Places struct {
	met []meeting // the oldest first
}

// meeting is what several places have in common.
type meeting struct {
	places   []string
	snapshot *Snapshot
}

// At returns what a place had in common with the workspace last, nil for a place where it
// was not.
func (p *Places) At(place string) *Snapshot {
	for _, m := range p.met {
		if slices.Contains(m.places, place) {
			return m.snapshot
		}
	}
	return nil
}

// Meet notes what some places now have in common.
func (p *Places) Meet(s *Snapshot, places ...string) {
	for i := range p.met {
		p.met[i].places = slices.DeleteFunc(p.met[i].places, func(one string) bool { return slices.Contains(places, one) })
	}
	p.met = append(p.met, meeting{slices.DeleteFunc(slices.Clone(places), func(one string) bool { return one == "" }), s})
	p.met = slices.DeleteFunc(p.met, func(m meeting) bool { return len(m.places) == 0 })
	p.met = p.met[max(0, len(p.met)-maxPlaces):]
}

// without leaves out files that are in a folder still and were not taken along: they were
// not removed.
func (p *Places) without(top *os.Root, taken map[string]bool) {
	for _, m := range p.met {
		m.snapshot.without(top, taken)
	}
}

const (
	placesBegin   = "sandbox-agent places 1\x00"
	maxPlacesHead = 1 << 20
)

// placesHead says how long the snapshots are that follow it.
type placesHead struct {
	Places []string `json:"places"`
	Bytes  int      `json:"bytes"`
}

// Text returns the places as [ParsePlaces] reads them, the newest as far as they are not
// larger than MaxSnapshot altogether; nil for none.
func (p *Places) Text() ([]byte, error) {
	var heads []placesHead
	var texts [][]byte
	total := 0
	for _, m := range slices.Backward(p.met) {
		b, err := m.snapshot.Text()
		if err != nil {
			return nil, err
		}
		if total += len(b); b == nil || total > MaxSnapshot {
			break
		}
		heads, texts = append(heads, placesHead{m.places, len(b)}), append(texts, b)
	}
	if len(heads) == 0 {
		return nil, nil
	}
	head, err := json.Marshal(heads)
	if err != nil {
		return nil, err
	}
	return slices.Concat(append([][]byte{[]byte(placesBegin), head, {0}}, texts...)...), nil
}

// plainPlaces reports whether all of some names can be those of places.
func plainPlaces(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		return name == "" || len(name) > 128 || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\n")
	})
}

// ParsePlaces reads the text of places; nil is that of none.
func ParsePlaces(b []byte) (*Places, error) {
	p := new(Places)
	if b == nil {
		return p, nil
	}
	rest, ok := bytes.CutPrefix(b, []byte(placesBegin))
	head, rest, whole := bytes.Cut(rest, []byte{0})
	var heads []placesHead
	if !ok || !whole || json.Unmarshal(head, &heads) != nil || len(heads) > maxPlaces {
		return nil, failf(Refused, "what the workspace was at other places cannot be read")
	}
	for _, h := range heads {
		if h.Bytes < 0 || h.Bytes > len(rest) || len(h.Places) == 0 || !plainPlaces(h.Places) {
			return nil, failf(Refused, "what the workspace was at other places cannot be read")
		}
		s, err := ParseSnapshot(rest[:h.Bytes])
		if err != nil {
			return nil, err
		}
		p.met, rest = append(p.met, meeting{h.Places, s}), rest[h.Bytes:]
	}
	if len(rest) > 0 {
		return nil, failf(Refused, "what the workspace was at other places has something behind it")
	}
	slices.Reverse(p.met)
	return p, nil
}
