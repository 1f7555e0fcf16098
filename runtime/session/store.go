package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// store keeps a directory per session. The zero store keeps nothing.
type store struct {
	dir    string
	folder *os.File // the folder as the gateway found it; nil for a store of a moment
}

const (
	recordFile     = "session.json"
	unfinishedFile = recordFile + ".tmp" // becomes the record when all of it is written
	logFile        = "log.journal"
	oldLogFile     = "log.jsonl" // of versions before the second format
	openingFile    = "opening"   // beside the log until the agent has told what goes before; there is no record then
	makingFile     = "making"    // beside what there is of a session until its client is told of it
)

// place says that the folder is not where it was: it was removed, or another one has its name. Nothing is written, or looked for, by its
// path then: that folder may be a copy that somebody wants to go on with. Files that are
// open are written nevertheless, and nobody would ever find what is in them.
func (st store) place() error {
	if st.folder == nil {
		return nil
	}
	was, err := st.folder.Stat()
	if err != nil {
		return nil // who writes is told what is wrong
	}
	now, err := os.Stat(st.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return problem.New(problem.Unavailable, "the folder %s was removed or renamed while the gateway runs: put it back, or end the gateway and start it again", st.dir)
	case err == nil && !os.SameFile(was, now):
		return problem.New(problem.Unavailable, "another folder has the place of %s since the gateway began: put back the one that was there, or end the gateway and start it again", st.dir)
	}
	return nil
}

// path returns the session's directory. Ids come from clients and agents, so
// what is not plain is escaped.
func (st store) path(id string) string {
	name := strings.ReplaceAll(url.PathEscape(id), ".", "%2E")
	if name == "" {
		name = "%" // of no other id: the folder of all sessions is none of a session
	}
	if len(name) > 200 {
		name = name[:160] + "~" + shortHash(id)
	}
	return filepath.Join(st.dir, name)
}

// logPath returns where the session's log lives, "" for memory.
func (st store) logPath(id string) string {
	if st.dir == "" {
		return ""
	}
	return filepath.Join(st.path(id), logFile)
}

// oldLogPath returns where a version before the second format kept the log.
func (st store) oldLogPath(id string) string {
	if st.dir == "" {
		return ""
	}
	return filepath.Join(st.path(id), oldLogFile)
}

// save replaces the session's record. With durable it is on the disk when save
// returns: a power cut leaves the old record or the new one. With the first one the folder is, too, whoever has made it: the
// session's log may. The folder of a session that is being made becomes durable when it is made.
func (st store) save(rec record, durable bool) (err error) {
	if st.dir == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("save session record: %w", err)
		}
	}()
	if err := st.place(); err != nil {
		return err
	}
	rec.Version = recordVersion
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	dir := st.path(rec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	_, before := os.Lstat(filepath.Join(dir, recordFile))
	tmp := filepath.Join(dir, unfinishedFile)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp) // a disk that is full has no room for it
		}
	}()
	_, err = f.Write(b)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, recordFile)); err != nil || !durable {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, makingFile)); err == nil {
		return nil
	}
	if before == nil {
		return journal.SyncFolder(dir)
	}
	return st.syncFolders(dir)
}

// syncFolders makes durable what a session's folder has, and that it is there.
func (st store) syncFolders(dir string) error {
	var place error
	var folder sync.WaitGroup
	folder.Go(func() { place = journal.SyncFolder(st.dir) })
	err := journal.SyncFolder(dir)
	folder.Wait()
	return errors.Join(place, err)
}

// records reads the record in each of the store's folders; see [store.read]. A session that cannot be
// read is reported and left alone. A folder in which nothing was written yet is removed: its session was
// being made when the gateway was killed, and nobody was told of it. So is one of which more was written; untold is
// called with its id before, by several goroutines.
func (st store) records(folders []os.DirEntry, log *slog.Logger, untold func(id string)) []record {
	recs := make([]record, len(folders))
	atOnce(len(folders), func(i int) {
		rec, err := st.read(folders[i].Name(), log, untold)
		switch {
		case err == nil:
			recs[i] = rec
		case errors.Is(err, errUntold):
		case !st.removeUnwritten(folders[i].Name()):
			log.Warn("skip unreadable session", "directory", folders[i].Name(), "err", err)
		}
	})
	recs = slices.DeleteFunc(recs, func(rec record) bool { return rec.ID == "" })
	known := texts{}
	for i := range recs {
		rec := &recs[i]
		for _, b := range []*json.RawMessage{&rec.Modes, &rec.ConfigOptions, &rec.Capabilities, &rec.Setup} {
			known.share(b)
		}
	}
	return recs
}

// removeUnwritten removes a folder that has nothing but a record that was not finished, and a log in which nothing is yet.
func (st store) removeUnwritten(name string) bool {
	dir := filepath.Join(st.dir, name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		empty := false
		if info, err := e.Info(); err == nil && e.Name() == logFile {
			empty = info.Size() == 0
		}
		if !empty && e.Name() != unfinishedFile {
			return false
		}
	}
	for _, e := range entries {
		_ = os.Remove(filepath.Join(dir, e.Name()))
	}
	return os.Remove(dir) == nil
}

// errLost is matched when a session's record is not there, or is none, and the log has no copy.
var errLost = errors.New("the session's record is lost")

// errUntold is matched when a session was removed of which nobody was told.
var errUntold = fmt.Errorf("%w: nobody was told of the session when the gateway was killed", errLost)

// read reads the record in a folder. A session that was being made when the gateway was killed is removed, and untold called with
// its id before. A record that is lost is made again from what the log says of the session.
// One that cannot be read now, or not by this version, is not: it may have more than that, and stays as it is.
func (st store) read(name string, log *slog.Logger, untold func(id string)) (rec record, err error) {
	if id, is := st.untold(name); is {
		if id != "" {
			untold(id)
		}
		if err := st.removeNoted(name, makingFile); err != nil {
			return record{}, fmt.Errorf("nobody was told of the session when the gateway was killed, and what is left cannot be removed: %w", err)
		}
		return record{}, errUntold
	}
	b, err := readFile(filepath.Join(st.dir, name, recordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		switch opening, err := st.removeUnopened(name); {
		case err != nil:
			return record{}, fmt.Errorf("its agent had not opened it when the gateway was killed, and what is left cannot be removed: %w", err)
		case opening:
			return record{}, fmt.Errorf("%w: its agent had not opened it when the gateway was killed, and is asked again", errLost)
		}
	}
	if err == nil {
		err = rec.decode(b)
	}
	if rec.Version <= recordVersion && (err != nil || rec.ID == "") {
		again, ok := st.rebuild(name)
		if !ok {
			return record{}, fmt.Errorf("%w: %w", errLost, cmp.Or(err, errors.New("it has no id")))
		}
		log.Warn("the record of a session was lost, its log had a copy of when that was begun or written anew", "directory", name, "err", err)
		if rec, err = again, st.replace(again, b); err != nil { // the next start makes it again
			log.Error("save session", "session", rec.ID, "err", err)
		}
	}
	switch {
	case rec.Version > recordVersion:
		return record{}, fmt.Errorf("its record has version %d and was written by a newer sandbox-agent; this one reads %d", rec.Version, recordVersion)
	case filepath.Base(st.path(rec.ID)) != name:
		return record{}, fmt.Errorf("its record is of session %s, which belongs in the folder %s", rec.ID, filepath.Base(st.path(rec.ID)))
	}
	return rec, nil
}

// beginOpening notes that the log of a session will not be all of it until opened is called.
func (st store) beginOpening(id string) error { return st.note(id, openingFile) }

// beginMaking notes that nobody is told of a session until made is called.
func (st store) beginMaking(id string) error { return st.note(id, makingFile) }

// note makes a note in the folder of a session.
func (st store) note(id, name string) error {
	if st.dir == "" {
		return nil
	}
	if err := st.place(); err != nil {
		return err
	}
	err := os.Mkdir(st.path(id), 0o700) // in the folder of all sessions, which is not made anew where it is gone
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = os.WriteFile(filepath.Join(st.path(id), name), nil, 0o600)
	}
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the session cannot be kept")
	}
	return nil
}

// opened notes that the log has all. It comes before the record: from a log without either the record is made again.
// What cannot be removed is when the session is used again.
func (st store) opened(id string) {
	if st.dir != "" && st.place() == nil {
		_ = os.Remove(filepath.Join(st.path(id), openingFile))
	}
}

// made notes that a client is about to be told of a session. With durable all that was written of it, and this, is on the
// disk then.
func (st store) made(id string, durable bool) error {
	if st.dir == "" {
		return nil
	}
	if err := st.place(); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(st.path(id), makingFile))
	if err == nil && durable {
		err = st.syncFolders(st.path(id))
	}
	return err
}

// untold reports whether the folder has a session that was being made when the gateway was killed, and its id as far as
// that is known. One that somebody has found in a list before, and has prompted, is wanted, and so is one of which
// nobody can say.
func (st store) untold(name string) (id string, is bool) {
	dir := filepath.Join(st.dir, name)
	if _, err := os.Lstat(filepath.Join(dir, makingFile)); err != nil {
		return "", false
	}
	var rec record // of one that is lost the log says all
	if b, err := readFile(filepath.Join(dir, recordFile)); err == nil {
		_ = json.Unmarshal(b, &rec)
	}
	if prompted, err := hasPrompt(filepath.Join(dir, logFile), rec.LastSeq); err != nil || prompted {
		_ = os.Remove(filepath.Join(dir, makingFile)) // if that fails, the next start decides again
		return "", false
	}
	for _, known := range []string{rec.ID, unescaped(name)} {
		if filepath.Base(st.path(known)) == name {
			return known, true
		}
	}
	return "", true
}

// unescaped is the id that a folder's name says, unless it was cut.
func unescaped(name string) string {
	id, _ := url.PathUnescape(name)
	return id
}

// hasPrompt reports whether the log in a file, which has come to the event reached, has a client's prompt, or may have had one: a
// part of it cannot be read, or was let go of, which is an error. A history that was copied has none.
func hasPrompt(path string, reached uint64) (is bool, err error) {
	l, err := journal.Open(path, journal.Options{Reached: reached})
	if err != nil {
		return false, err
	}
	defer func() { _ = l.Close() }() // it is only read
	for cur := l.Whole(0); ; {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			return false, err
		}
		for _, e := range batch {
			if e.Kind == journal.Damage {
				return true, nil
			}
			if m, err := acp.Parse(e.Frame); err == nil && e.Kind == journal.Client && m.Method() == acp.MethodSessionPrompt {
				return true, nil
			}
		}
	}
}

// removeUnopened removes what is left of a session that was being opened: its log is a part of what its agent has.
func (st store) removeUnopened(name string) (opening bool, err error) {
	if _, err := os.Lstat(filepath.Join(st.dir, name, openingFile)); err != nil {
		return false, nil
	}
	return true, st.removeNoted(name, openingFile)
}

// removeNoted removes a folder with all that is in it. A note of why goes last, so that the next start goes on.
func (st store) removeNoted(name, note string) error {
	dir := filepath.Join(st.dir, name)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != note {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(dir, note)), os.Remove(dir))
}

// holds reports whether there is something where the files of a session would be.
func (st store) holds(id string) bool {
	if st.dir == "" {
		return false
	}
	_, err := os.Lstat(st.path(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// texts has each text once: what an agent offers is the same in most of its sessions. None
// of them is ever changed in place.
type texts map[string]json.RawMessage

func (t texts) share(b *json.RawMessage) {
	if known, ok := t[string(*b)]; ok {
		*b = known
	} else if len(*b) > 0 {
		t[string(*b)] = *b
	}
}

// rebuild makes a record from what the log in a directory says of its session.
func (st store) rebuild(name string) (rec record, ok bool) {
	b, err := journal.About(filepath.Join(st.dir, name, logFile))
	if err != nil || b == nil || rec.decode(b) != nil {
		return record{}, false
	}
	return rec, rec.ID != "" && filepath.Base(st.path(rec.ID)) == name
}

// replace saves a record in the place of what is none, which is kept beside it: it may have more.
func (st store) replace(rec record, was []byte) error {
	if len(was) > 0 {
		path := filepath.Join(st.path(rec.ID), recordFile)
		if err := os.Rename(path, path+".damaged"); err != nil {
			return err
		}
	}
	return st.save(rec, true)
}

// Reached returns the newest event that the log in a file has come to, as the record beside it says, 0 where there is none that
// can be read. Of a log that has nothing at all it is the newest that may have been given.
func Reached(file string) (uint64, error) {
	b, err := os.ReadFile(filepath.Join(filepath.Dir(file), recordFile))
	if errors.Is(err, fs.ErrNotExist) || filepath.Base(file) != logFile {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the session's record: %w", err)
	}
	var rec record
	if rec.decode(b) != nil {
		return 0, nil // as if it were not there: it is made again from the log
	}
	if info, err := os.Stat(file); err == nil && info.Size() == 0 {
		return max(rec.LastSeq, rec.BoundSeq), nil
	}
	return rec.LastSeq, nil
}

// about returns the record of a session in the form that its log keeps, nil when
// there is none.
func (st store) about(id string) []byte {
	b, err := os.ReadFile(filepath.Join(st.path(id), recordFile))
	if err != nil || !json.Valid(b) {
		return nil
	}
	return b
}

// writable reports whether sessions can be kept.
func (st store) writable() error {
	if st.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(st.dir, ".ready-*")
	if err != nil {
		return problem.Wrap(problem.Unavailable, err, "the data directory is not writable")
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
