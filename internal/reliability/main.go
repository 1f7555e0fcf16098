// Command reliability harms the gateway, its logs and its connections as often as
// docs/reliability.mdx says, and prints its table.
//
//	./task reliability                                  # all of it; hours
//	./task reliability -- -scale 0.02                   # a fiftieth of it
//	./task reliability -- -only 'cut|kill' -scale 0.1   # some rows
//
// It runs the tests of the project, one after another, and fails when one fails.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/reliability/figure"
)

// kept is how many of the last lines of a test that failed are shown.
const kept = 200

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	scale := flag.Float64("scale", 1, "how much of the full numbers")
	only := flag.String("only", "", "only rows whose words or test match this regular expression")
	flag.Parse()
	chosen, err := choose(rows, *only)
	if err == nil && (*scale <= 0 || math.IsInf(*scale, 0) || math.IsNaN(*scale)) {
		err = fmt.Errorf("-scale %v: it must be a number above 0, such as 0.1", *scale)
	}
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("%q is no flag: use -scale NUMBER and -only REGEXP", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reliability:", err)
		os.Exit(2)
	}
	if !run(ctx, chosen, *scale, os.Stdout) {
		stop()
		os.Exit(1)
	}
}

// choose returns the rows that match.
func choose(all []row, only string) ([]row, error) {
	match, err := regexp.Compile("(?i)" + only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(r row) bool { return !match.MatchString(r.what) && !match.MatchString(r.run) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-only %s matches no row", only)
	}
	return chosen, nil
}

// run does the harm of all rows, also when one fails, and prints the table as it
// goes on. It reports whether all went well.
func run(ctx context.Context, chosen []row, scale float64, out io.Writer) bool {
	fmt.Fprintln(out, "| what | how many | took | found |\n|---|---|---|---|")
	well := true
	for _, r := range chosen {
		began := time.Now()
		done, last, err := r.do(ctx, scale)
		took := time.Since(began).Round(time.Second)
		if ctx.Err() != nil {
			fmt.Fprintln(out, "\nstopped")
			return false
		}
		found := r.found
		if err != nil {
			well, found = false, "**failed**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.what, strings.Join(done, ", "), took, found)
		if err != nil {
			fmt.Fprintf(out, "\n%s %s: %v\n%s\n\n", r.pkg, r.run, err, strings.Join(last, "\n"))
		}
	}
	return well
}

// amount is the row's number at a scale.
func (r row) amount(scale float64) int { return max(1, int(math.Round(float64(r.full)*scale))) }

// do runs the row's test. It returns what the test says that it did, and the last
// lines that it wrote.
func (r row) do(ctx context.Context, scale float64) (done, last []string, err error) {
	// The tests bound each step themselves; together they take as long as they take.
	cmd := exec.CommandContext(ctx, "go", "test", "-count", "1", "-timeout", "48h", "-v", "-run", r.run, r.pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", figure.Variable(r.name)+"="+strconv.Itoa(r.amount(scale)))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	done, last, rerr := figures(stdout)
	if rerr != nil { // what nobody reads would hold the test
		_, _ = io.Copy(io.Discard, stdout)
	}
	if err := cmd.Wait(); err != nil {
		return done, last, err
	}
	if rerr == nil && len(done) == 0 {
		rerr = fmt.Errorf("no test said what it did: is there one that %s matches?", r.run)
	}
	return done, last, rerr
}

// told is a line by which a test says how much it did.
var told = regexp.MustCompile(regexp.QuoteMeta(figure.Mark) + `(\d+) (.+)`)

// figures adds up what tests say that they did, in the order in which they first
// say it.
func figures(r io.Reader) (done, last []string, err error) {
	sums, order := map[string]int{}, []string{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		line := in.Text()
		if m := told.FindStringSubmatch(line); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, last, fmt.Errorf("read %q: %w", line, err)
			}
			if _, ok := sums[m[2]]; !ok {
				order = append(order, m[2])
			}
			sums[m[2]] += n
		}
		if last = append(last, line); len(last) > kept {
			last = last[1:]
		}
	}
	for _, what := range order {
		done = append(done, fmt.Sprintf("%s %s", grouped(sums[what]), what))
	}
	return done, last, in.Err()
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
