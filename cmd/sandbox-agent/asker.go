package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// asker asks a person one question at a time. The input is read while a question is open, and
// no longer: who has it next gets all of it. A read of a terminal cannot be taken back, so one
// whose question was withdrawn is the next question's.
type asker struct {
	view *view

	asking  chan struct{}  // holds one token: who has it may ask
	in      *bufio.Scanner // of the reader that runs, else of who asks
	reading bool           // a reader runs, or has come to the input's end; of who asks
	lines   chan string    // closed at the input's end
	hungUp  bool           // nobody has ended it: the terminal is gone; set before lines is closed
}

func newAsker(in io.Reader, v *view) *asker {
	a := &asker{in: bufio.NewScanner(in), view: v, asking: make(chan struct{}, 1), lines: make(chan string)}
	a.asking <- struct{}{}
	return a
}

// line asks for one line. ok is false when there is no answer. What comes sooner than somebody
// could have read the question was written for another one, or for none, and is not taken.
func (a *asker) line(ctx context.Context, question string) (answer string, ok bool) {
	select {
	case <-a.asking:
	case <-ctx.Done():
		return "", false
	}
	defer func() { a.asking <- struct{}{} }()
	for {
		if !a.reading {
			a.reading = true
			go a.read()
		}
		asked := time.Now()
		a.view.ask(question + "\n> ")
		select {
		case answer, ok = <-a.lines:
			if !ok && a.hungUp { // what was asked ends with the turn
				<-ctx.Done()
				return "", false
			}
			if !ok {
				a.view.note("the input has ended")
				return "", false
			}
			a.reading = false
			if time.Since(asked) >= surprise {
				return strings.TrimSpace(answer), true
			}
			question = "that was written before this was asked, and answers nothing: answer again"
		case <-ctx.Done():
			a.view.note("no answer is needed any more")
			return "", false
		}
	}
}

// read reads one line, and lives as long as nobody takes it.
func (a *asker) read() {
	if !a.in.Scan() {
		a.hungUp = errors.Is(a.in.Err(), errHungUp)
		close(a.lines)
		return
	}
	a.lines <- a.in.Text()
}

// choose asks for one of the options; the index is -1 for none of them, which does what none says.
func (a *asker) choose(ctx context.Context, question string, options []string, none string) (index int, ok bool) {
	picked, ok := a.pick(ctx, question, options, false, none)
	if !ok || len(picked) == 0 {
		return -1, ok
	}
	return picked[0], true
}

// pick asks for options by their numbers until the answer makes sense. An empty
// answer picks none.
func (a *asker) pick(ctx context.Context, question string, options []string, several bool, none string) (picked []int, ok bool) {
	var b strings.Builder
	b.WriteString(question)
	for i, o := range options {
		fmt.Fprintf(&b, "\n  %d) %s", i+1, cmdline.OneLine(o))
	}
	how := "a number, or nothing to " + none
	if several {
		how = "numbers with blanks between them, or nothing to " + none
	}
	b.WriteString("\n" + how)
	for ask := b.String(); ; {
		answer, ok := a.line(ctx, ask)
		if !ok || answer == "" {
			return nil, ok
		}
		fields := strings.Fields(strings.ReplaceAll(answer, ",", " "))
		picked = picked[:0]
		for _, f := range fields {
			if n, err := strconv.Atoi(f); err == nil && n >= 1 && n <= len(options) {
				picked = append(picked, n-1)
			}
		}
		if len(picked) == len(fields) && (several || len(picked) == 1) {
			return picked, true
		}
		ask = fmt.Sprintf("%s is none of 1 to %d: %s", cmdline.OneLine(answer), len(options), how)
	}
}
