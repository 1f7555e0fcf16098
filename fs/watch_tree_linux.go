package fs

import "iter"

// watchTree is where the watched folders were at the time of the event in hand. That may be long ago: what a folder is
// found to be is true from the end of the queue on, and the events up to there are of the time before.
type watchTree struct {
	folders map[int32]*watchedFolder // by watch descriptor
	top     *watchedFolder
	coming  []arrival // by their places in the queue
}

// watchedFolder is a folder that the kernel watches, whatever it is called.
type watchedFolder struct {
	id    int32
	in    *watchedFolder // nil for the top, and for one that is not there yet
	name  string
	below map[string]*watchedFolder
	// unseen are folders in it that were not looked at, because it had another path by then. There are no more than it has.
	unseen []unseen
	due    int // arrivals of it that are still to come
}

type unseen struct {
	name string
	tell bool // what is in it
}

// arrival says that a folder is at a name in another one from a place in the queue on.
type arrival struct {
	f, in *watchedFolder
	name  string
	from  int64
}

// folder returns the folder with a watch descriptor, which may be new.
func (t *watchTree) folder(id int32) *watchedFolder {
	f := t.folders[id]
	if f == nil {
		f = &watchedFolder{id: id}
		t.folders[id] = f
	}
	return f
}

// path returns the path of a folder from where the watch began, and whether it is there.
func (t *watchTree) path(f *watchedFolder) (rel string, ok bool) {
	for ; f != nil; f = f.in {
		if f == t.top {
			return rel, true
		}
		if rel == "" {
			rel = f.name
		} else {
			rel = join(f.name, rel)
		}
	}
	return "", false
}

// expect notes that a folder arrives. Those that arrive later are noted later.
func (t *watchTree) expect(a arrival) {
	a.f.due++
	t.coming = append(t.coming, a)
}

// arrive puts the folders in their places that have arrived where the queue is read, and yields each. leave is told of
// folders that are no more.
func (t *watchTree) arrive(at int64, leave func(id int32)) iter.Seq[*watchedFolder] {
	return func(yield func(*watchedFolder) bool) {
		for len(t.coming) > 0 && t.coming[0].from <= at {
			a := t.coming[0]
			t.coming = t.coming[1:]
			a.f.due--
			if before := a.in.below[a.name]; before != nil && before != a.f {
				t.remove(before, leave)
			}
			if t.folders[a.in.id] != a.in { // it went with what it was in
				t.remove(a.f, leave)
				continue
			}
			t.place(a.f, a.in, a.name)
			if !yield(a.f) {
				return
			}
		}
	}
}

// place puts a folder at a name in another one, which is not below it.
func (t *watchTree) place(f, in *watchedFolder, name string) {
	f.detach()
	if in.within(f) {
		return
	}
	if in.below == nil {
		in.below = map[string]*watchedFolder{}
	}
	f.in, f.name, in.below[name] = in, name, f
}

// remove takes a folder out, with those below it. One that is still to arrive stays watched.
func (t *watchTree) remove(f *watchedFolder, leave func(id int32)) {
	f.detach()
	if f.due > 0 {
		return
	}
	for _, below := range f.below {
		t.remove(below, leave)
	}
	if t.folders[f.id] == f {
		delete(t.folders, f.id)
		leave(f.id)
	}
}

func (f *watchedFolder) detach() {
	if f.in != nil && f.in.below[f.name] == f {
		delete(f.in.below, f.name)
	}
	f.in = nil
}

// within reports whether f is the other folder, or below it.
func (f *watchedFolder) within(other *watchedFolder) bool {
	for ; f != nil; f = f.in {
		if f == other {
			return true
		}
	}
	return false
}

// missed forgets that a folder was not looked at.
func (f *watchedFolder) missed(name string) {
	for i, u := range f.unseen {
		if u.name == name {
			f.unseen = append(f.unseen[:i:i], f.unseen[i+1:]...)
			return
		}
	}
}
