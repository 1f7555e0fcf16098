package bridge

import (
	"context"
	"errors"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// maxOutput bounds what [Output] keeps; the rest is read and left out.
const maxOutput = 1 << 20

// Output runs a program to its end, without input, and returns the lines of its
// stdout. The error is an *adapters.ExitError when it failed by itself, else what
// kept it from running or ctx's. Short commands run by it and not by os/exec: the
// gateway reaps every child that nobody has claimed, and os/exec claims none.
func Output(ctx context.Context, s process.Spec) (string, error) {
	c, err := Start(ctx, s, nil)
	if err != nil {
		return "", err
	}
	_ = c.Stdin.Close()
	var stopping sync.WaitGroup
	stopping.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer stopping.Done()
		c.Stop(process.Ladder{})
	})
	var out strings.Builder
	for {
		line, err := c.ReadLine()
		if _, ok := errors.AsType[*ndjson.TooLongError](err); err != nil && !ok {
			break
		}
		if out.Len()+len(line) < maxOutput {
			out.Write(line)
			out.WriteByte('\n')
		}
	}
	exit := c.End(process.DefaultLadder)
	if stop() {
		stopping.Done()
	}
	stopping.Wait()
	switch {
	case ctx.Err() != nil:
		return out.String(), ctx.Err()
	case exit.Code != 0:
		return out.String(), exit
	}
	return out.String(), nil
}
