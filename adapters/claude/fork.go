package claude

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// ForkSession starts a conversation that knows all of another one so far: it has a copy of its transcript. The program
// would write one with the first prompt only, of what the other conversation is then.
func (a *agent) ForkSession(ctx context.Context, r *schema.ForkSessionRequest) (*schema.ForkSessionResponse, error) {
	l, err := newLaunch(bridge.OfFork(r), a.bypass())
	if err != nil {
		return nil, err
	}
	known, _ := a.store.Load(string(r.SessionID))
	native := known.newest(string(r.SessionID))
	file, err := a.written(ctx, r.SessionID, native, r.Cwd)
	if bridge.IsNotFound(err) && known.Fork != "" {
		file, err = a.files.find(known.Fork, r.Cwd)
	}
	l.anew = known.Made && native == string(r.SessionID) && bridge.IsNotFound(err) // nothing was said yet, or it is lost
	if err != nil && !l.anew {
		return nil, err
	}
	id := uuid.NewString()
	chosen := record{Cwd: r.Cwd, Made: true, Model: known.Model, Effort: known.Effort}
	if err := a.store.made(id, chosen); err != nil {
		return nil, err
	}
	s := a.newSession(schema.SessionID(id), r.Cwd)
	s.title.Given(!l.anew)
	g, err := a.openFork(ctx, s, l, file, l.chosen(chosen))
	if err != nil {
		return nil, errors.Join(err, a.files.remove(id), a.store.Forget(id))
	}
	return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: sessionMeta(g, l)}, nil
}

// openFork starts the program for a fork of the conversation in a file, which is not read when it begins anew.
func (a *agent) openFork(ctx context.Context, s *session, l *launch, file string, chosen []string) (*greeting, error) {
	id := string(s.id)
	if l.anew {
		return a.open(ctx, s, l, append(chosen, "--session-id", id)...)
	}
	if err := fork(file, id); err != nil {
		return nil, err
	}
	return a.open(ctx, s, l, append(chosen, "--resume", id)...)
}

// written returns the transcript of a session when all that was said is in it: the program writes it a moment after it has
// said that a turn is over, and gives no sign.
func (a *agent) written(ctx context.Context, id schema.SessionID, native, cwd string) (string, error) {
	began, last := false, ""
	if s, err := a.sessions.Get(id); err == nil {
		s.out.Lock()
		began, last = s.tr.session != "", s.tr.last
		s.out.Unlock()
	}
	const tries, pause = 40, 50 * time.Millisecond
	for try := 0; ; try++ {
		file, err := a.files.find(native, cwd)
		missing := began && (bridge.IsNotFound(err) || err == nil && (last != "" && !holds(file, last) || begins(file)))
		switch {
		case missing && try == tries && bridge.IsNotFound(err): // a fork without what was said would be no fork
			return "", acp.Errorf(acp.CodeInternal, "claude has not written the conversation of session %s, so it cannot be forked: try again", id)
		case !missing || try == tries:
			return file, err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return "", ctx.Err()
		}
	}
}

// fork makes a copy of a transcript, which is the conversation with an id from then on. What subagents and tools have left
// beside it comes with it.
func fork(file, id string) error {
	to := filepath.Join(filepath.Dir(file), id)
	err := copyEntries(file, to+".jsonl", id)
	if err == nil {
		var placed bridge.Placed
		err = placed.Folder(os.DirFS(strings.TrimSuffix(file, ".jsonl")), ".", to)
	}
	if err != nil {
		return fmt.Errorf("copy the conversation: %w", err)
	}
	return nil
}

// copyEntries copies a transcript. It appears whole, or not at all.
func copyEntries(file, to, id string) error {
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	out, err := os.CreateTemp(filepath.Dir(to), ".fork-*")
	if err != nil {
		return err
	}
	in, buffered := bufio.NewReader(from), bufio.NewWriter(out)
	for err == nil {
		var line []byte
		if line, err = in.ReadBytes('\n'); err == nil { // a last line without an end is being written
			_, err = buffered.Write(forked(line, id))
		}
	}
	if err == io.EOF {
		err = nil
	}
	if err = errors.Join(err, buffered.Flush(), out.Close()); err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

// forked is a line of a transcript in the one of a fork, which has an id and a plan of its own, and has cost nothing yet.
func forked(line []byte, id string) []byte {
	entry := bytes.TrimSpace(line)
	if len(entry) == 0 || entry[0] != '{' || !json.Valid(entry) {
		return line
	}
	if rawjson.MemberString(entry, "type") == "cost-state" {
		return nil
	}
	quoted, err := schema.Encode(id)
	if _, has := rawjson.Member(entry, "sessionId"); has && err == nil {
		entry = rawjson.SetMember(entry, quoted, "sessionId")
	}
	return append(bytes.Clone(rawjson.DeleteMember(entry, "slug")), '\n')
}

// begins reports whether a subagent has no transcript yet, whose name is known.
func begins(file string) bool {
	found, _ := filepath.Glob(filepath.Join(strings.TrimSuffix(file, ".jsonl"), "subagents", "agent-*.meta.json"))
	return slices.ContainsFunc(found, func(meta string) bool {
		_, err := os.Stat(strings.TrimSuffix(meta, ".meta.json") + ".jsonl")
		return err != nil
	})
}

// holds reports whether a transcript has an entry, which is one of its last. One that is still being written is not copied.
func holds(file, id string) bool {
	found, last := false, []byte(nil)
	bridge.Ends(file, func(lines []byte) {
		found = found || bytes.Contains(last, []byte(id))
		last = lines
	})
	return found || bytes.Contains(last[:bytes.LastIndexByte(last, '\n')+1], []byte(id))
}
