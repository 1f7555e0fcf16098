package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// mostReported bounds the events of a report: whoever reads it wants the end.
const mostReported = 10_000

func sessionsReportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "report",
		Usage:     "write one file about a session, to send along with a bug report",
		ArgsUsage: "SESSION",
		Description: "The file is a tar.gz with the versions of everything, what the doctor finds, the session,\n" +
			"its agent with the end of what it wrote to its standard error, the session's newest events,\n" +
			"and what was recorded of the agent's own traffic, if anything was. What looks like a key is\n" +
			"taken out, as are the session's own credentials, the values of variables that are called keys,\n" +
			"and what --redact names. Prompts and answers are in the events and the traffic: read the file\n" +
			"before you send it, or leave both out with --events 0.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is the standard output (default: SESSION-report.tar.gz)"},
			&cli.IntFlag{Name: "events", Usage: "so many of the newest events", Value: 500},
			&cli.StringSliceFlag{Name: "redact", Usage: "take out what this regular expression matches; may be repeated"},
			timeoutFlag(doctorTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			events := c.Int("events")
			if events < 0 || events > mostReported {
				return cmdline.Usagef(c, "--events %d: use 0 to %d", events, mostReported)
			}
			patterns, err := transcript.Patterns(c.StringSlice("redact"))
			if err != nil {
				return cmdline.Usagef(c, "--redact: %v", err)
			}
			file := c.String("output")
			if file == "" {
				file = args[0] + "-report.tar.gz"
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			r := &report{api: api, session: args[0], clean: transcript.Cleaner(patterns, false)}
			if err := r.collect(ctx, events); err != nil {
				return err
			}
			var packed bytes.Buffer
			if err := r.pack(&packed); err != nil {
				return err
			}
			return saveBody(std, &packed, file, "the report")
		},
	}
}

// report is what helps to understand what went wrong in a session.
type report struct {
	api     *client.Client
	session string
	clean   func(text string) string
	names   []string
	parts   map[string][]byte
}

// collect asks the gateway for everything. Only the session must be there: what else
// cannot be had is told in the report.
func (r *report) collect(ctx context.Context, events int) error {
	info, err := r.api.Session(ctx, r.session)
	if err != nil {
		return err
	}
	r.parts = map[string][]byte{}
	about := info
	about.Title, about.Gist = "", "" // words of a prompt, which only the gateway knows to clean
	r.add("session.json", about, nil)
	gateway, err := r.api.Version(ctx)
	r.add("versions.json", map[string]any{
		"gateway": gateway,
		"program": map[string]string{"version": version, "go": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH},
		"written": time.Now().UTC().Format(time.RFC3339),
	}, err)
	agent, err := r.api.Agent(ctx, info.Agent)
	r.add("agent.json", agent, err)
	found, err := r.api.Doctor(ctx, info.Agent)
	r.add("doctor.json", found, err)
	if events > 0 {
		newest, err := newestEvents(ctx, r.api, info, events)
		r.events(newest, err)
		r.raw(ctx)
	}
	return context.Cause(ctx)
}

// newestEvents returns the newest events of a session, n at most.
func newestEvents(ctx context.Context, api *client.Client, info runtime.SessionInfo, n int) ([]runtime.Event, error) {
	var newest []runtime.Event
	after := max(info.OldestSeq, 1) - 1
	if far := uint64(n); info.EventCount > after+far {
		after = info.EventCount - far // numbers have gaps, so these may be fewer
	}
	for ev, err := range allEvents(ctx, api.CleanEvents, info.ID, after) {
		if err != nil {
			return newest, err
		}
		if newest = append(newest, ev); len(newest) > n { // more have come meanwhile
			newest = newest[1:]
		}
	}
	return newest, nil
}

// add puts a value in a part, or why there is none.
func (r *report) add(name string, v any, err error) {
	if err != nil {
		v = map[string]string{"error": err.Error()}
	}
	b, err := json.Marshal(v)
	if err != nil {
		b = rawjson.Object{}.String("error", err.Error()).End()
	}
	var text bytes.Buffer
	if err := json.Indent(&text, r.cleaned(b), "", "  "); err != nil {
		text.Reset()
		text.Write(r.cleaned(b))
	}
	text.WriteByte('\n')
	r.put(name, text.Bytes())
}

// events puts the events in a part, one a line.
func (r *report) events(all []runtime.Event, failed error) {
	var lines []byte
	for i := range all {
		b, err := json.Marshal(all[i])
		if err != nil {
			b = rawjson.Object{}.String("error", err.Error()).End()
		}
		lines = append(append(lines, r.cleaned(b)...), '\n')
	}
	if failed != nil {
		lines = append(append(lines, rawjson.Object{}.String("error", r.clean(failed.Error())).End()...), '\n')
	}
	r.put("events.ndjson", lines)
}

// raw puts what was recorded of the agent's traffic in a part, if anything was.
func (r *report) raw(ctx context.Context) {
	body, err := r.api.Raw(ctx, r.session)
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.NotFound {
		return
	}
	var lines []byte
	if err == nil {
		defer body.Close()
		in := bufio.NewReader(body)
		for err == nil {
			var line []byte
			line, err = in.ReadBytes('\n')
			lines = append(lines, r.cleaned(line)...)
		}
	}
	if !errors.Is(err, io.EOF) {
		lines = append(append(lines, rawjson.Object{}.String("error", r.clean(err.Error())).End()...), '\n')
	}
	r.put("raw.ndjson", lines)
}

func (r *report) cleaned(b []byte) []byte {
	return rawjson.EditStrings(b, func(_, text string) []rawjson.Edit {
		if with := r.clean(text); with != text {
			return []rawjson.Edit{{From: 0, To: len(text), With: with}}
		}
		return nil
	})
}

func (r *report) put(name string, b []byte) {
	r.names = append(r.names, name)
	r.parts[name] = b
}

// reportText says what is in a report.
const reportText = `A report about session %s.

versions.json  of the gateway, and of the program that wrote this
session.json   the session as the gateway tells of it
agent.json     its agent: how it was installed, its processes, the end of their standard error
doctor.json    what was checked on the gateway's machine
events.ndjson  the session's newest events, one a line; prompts and answers are among them
raw.ndjson     what the agent and the gateway said to each other in the agent's own language, if
               that was recorded; prompts and answers are among it

What looked like a key was replaced by %s.
`

// pack writes the report as an archive.
func (r *report) pack(w io.Writer) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	folder, now := r.session+"-report/", time.Now()
	put := func(name string, b []byte) error {
		err := t.WriteHeader(&tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(b)), ModTime: now})
		if err == nil {
			_, err = t.Write(b)
		}
		return err
	}
	err := put("README.txt", fmt.Appendf(nil, reportText, r.session, transcript.Removed))
	for _, name := range r.names {
		if err == nil {
			err = put(name, r.parts[name])
		}
	}
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return fmt.Errorf("pack the report: %w", err)
	}
	return nil
}
