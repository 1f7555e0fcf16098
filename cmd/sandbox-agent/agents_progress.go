package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

const (
	redraw    = 100 * time.Millisecond
	barWidth  = 20
	lineWidth = 79 // of the narrowest terminal that people use
)

// progressView shows an installation's progress: on a terminal one line that
// changes, elsewhere a line for each step and each quarter of what is counted.
// A nil view shows nothing.
type progressView struct {
	out    io.Writer
	moving bool // it is a terminal
	quit   chan struct{}
	drawer sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex
	now     install.Progress
	begun   time.Time // the step; zero before the first
	quarter int64     // of what is counted, the last that has a line
}

func newProgressView(std stdio) *progressView {
	v := &progressView{out: std.err, moving: terminal(std.err), quit: make(chan struct{})}
	if v.moving {
		v.drawer.Go(v.draw)
	}
	return v
}

// draw redraws the line, also when there is no news: npm tells none.
func (v *progressView) draw() {
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.mu.Lock()
			if !v.begun.IsZero() {
				fmt.Fprint(v.out, "\r"+v.lineLocked(time.Since(v.begun))+"\x1b[K")
			}
			v.mu.Unlock()
		case <-v.quit:
			fmt.Fprint(v.out, "\r\x1b[K")
			return
		}
	}
}

// end removes the line. It may be called more than once.
func (v *progressView) end() {
	if v == nil {
		return
	}
	v.once.Do(func() { close(v.quit) })
	v.drawer.Wait()
}

// report takes an installation's progress.
func (v *progressView) report(p install.Progress) {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if p.Source != v.now.Source || p.Step != v.now.Step || p.Detail != v.now.Detail || v.begun.IsZero() {
		v.begun, v.quarter = time.Now(), 0
		if !v.moving {
			fmt.Fprintln(v.out, cmdline.OneLine(strings.TrimPrefix(string(p.Source)+": ", ": ")+string(p.Step)+" "+p.Detail))
		}
	}
	v.now = p
	if q := quarters(p); !v.moving && q > v.quarter {
		v.quarter = q
		fmt.Fprintf(v.out, "%s: %s %d%% of %s\n", p.Source, p.Step, 25*q, megabytes(p.Total))
	}
}

// quarters returns how many of four quarters are done.
func quarters(p install.Progress) int64 {
	if p.Total <= 0 {
		return 0
	}
	return min(4, 4*p.Done/p.Total)
}

// lineLocked is the line of a terminal.
func (v *progressView) lineLocked(elapsed time.Duration) string {
	p := v.now
	line := fmt.Sprintf("%-8s %-8s ", p.Source, p.Step)
	speed := ""
	if s := elapsed.Seconds(); p.Done > 0 && s > 0.5 {
		speed = fmt.Sprintf("  %s/s", megabytes(int64(float64(p.Done)/s)))
	}
	switch {
	case p.Total > 0:
		done := min(1, float64(p.Done)/float64(p.Total))
		full := int(done * barWidth)
		line += fmt.Sprintf("[%s%s] %3.0f%%  %s of %s%s", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), 100*done, megabytes(p.Done), megabytes(p.Total), speed)
	case p.Done > 0:
		line += megabytes(p.Done) + speed
	default:
		spent := fmt.Sprintf("  %ds", int(elapsed.Seconds()))
		line += cmdline.Shorten(cmdline.OneLine(p.Detail), lineWidth-len(line)-len(spent)) + spent
	}
	return cmdline.Shorten(line, lineWidth)
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
