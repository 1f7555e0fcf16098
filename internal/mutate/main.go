package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"slices"
	"strings"
	"syscall"
)

// options are the flags.
type options struct {
	files    []string // base names; all when there are none
	sample   int      // 0 is all
	seed     uint64
	parallel int
	want     float64
	verbose  bool
	tests    string // the package whose tests are run; "" for that of the changes
	packages []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	files := flag.String("files", "", "only these files of the packages, as in ask.go,turn.go")
	flag.IntVar(&o.sample, "sample", 0, "only this many changes of each package, chosen by chance")
	flag.Uint64Var(&o.seed, "seed", 1, "another seed is another sample")
	flag.IntVar(&o.parallel, "parallel", 1, "runs at a time")
	flag.Float64Var(&o.want, "want", 0, "fail when less than this percentage is killed")
	flag.BoolVar(&o.verbose, "v", false, "tell of each change as it is tried")
	flag.StringVar(&o.tests, "tests", "", "run the tests of this package, where a package is tested through another")
	flag.Parse()
	if *files != "" {
		o.files = strings.Split(*files, ",")
	}
	if o.packages = flag.Args(); len(o.packages) == 0 || o.parallel < 1 || o.sample < 0 {
		fmt.Fprintln(os.Stderr, "usage: mutate [flags] PACKAGE...")
		flag.PrintDefaults()
		os.Exit(2)
	}
	list, err := parseAccepted(acceptedText)
	if err == nil {
		err = run(ctx, o, list, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// errTooFew says that too little is killed.
var errTooFew = errors.New("fewer changes are killed than wanted")

// errNothing says that nothing was measured: another result would be a good one.
var errNothing = errors.New("there is nothing to change")

func run(ctx context.Context, o options, list accepted, out io.Writer) error {
	var errs []error
	for _, p := range o.packages {
		if err := runPackage(ctx, o, p, list, out); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	return errors.Join(errs...)
}

func runPackage(ctx context.Context, o options, pattern string, list accepted, out io.Writer) error {
	b, err := build(ctx, pattern, o.tests)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.work) }()
	for _, id := range list.stale(b.points) {
		fmt.Fprintf(out, "accepted, but not there: %s\n", id)
	}
	chosen := choose(b.points, o)
	if len(chosen) == 0 {
		return errNothing
	}
	reached, err := b.tests(ctx)
	if err != nil {
		return err
	}
	results, err := b.try(ctx, chosen, reached, o.parallel, func(r result) {
		if o.verbose {
			fmt.Fprintf(out, "killed=%v reached=%v %s\n", r.killed, r.reached, where(r.point))
		}
	})
	if err != nil {
		return err
	}
	share := report(out, b.path, results, list)
	if share < o.want {
		return fmt.Errorf("%w: %.1f %% of %.1f %%", errTooFew, share, o.want)
	}
	return nil
}

// choose returns the points that the flags ask for.
func choose(points []point, o options) []point {
	if len(o.files) > 0 {
		points = slices.DeleteFunc(slices.Clone(points), func(p point) bool { return !slices.Contains(o.files, path.Base(p.file)) })
	}
	if o.sample == 0 || o.sample >= len(points) {
		return points
	}
	points = slices.Clone(points)
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	points = points[:o.sample]
	slices.SortFunc(points, func(a, b point) int { return a.n - b.n })
	return points
}

func where(p point) string {
	return fmt.Sprintf("%s:%d:%d %s %s: %s", p.file, p.pos.Line, p.pos.Column, p.kind, p.fn, p.code)
}

// report writes what survived, then the shares of files and of the package, which
// it returns in percent.
func report(out io.Writer, name string, results []result, list accepted) float64 {
	type count struct{ killed, accepted, missed, all int }
	var total count
	byFile := map[string]*count{}
	var order []string
	for _, r := range results {
		c := byFile[r.file]
		if c == nil {
			c = &count{}
			byFile[r.file] = c
			order = append(order, r.file)
		}
		for _, c := range []*count{c, &total} {
			c.all++
			switch {
			case r.killed:
				c.killed++
			case list[r.id()] != "":
				c.accepted++
			case !r.reached:
				c.missed++
			}
		}
		switch {
		case r.killed && list[r.id()] != "":
			fmt.Fprintf(out, "accepted, but killed: %s\n", r.id())
		case r.killed || list[r.id()] != "":
		case r.reached:
			fmt.Fprintf(out, "survived     %s\n", where(r.point))
		default:
			fmt.Fprintf(out, "not reached  %s\n", where(r.point))
		}
	}
	percent := func(c count) float64 { return 100 * float64(c.killed+c.accepted) / float64(c.all) }
	line := func(name string, c count) {
		fmt.Fprintf(out, "%-40s %5.1f %%  %d killed, %d accepted of %d; %d not reached\n", name, percent(c), c.killed, c.accepted, c.all, c.missed)
	}
	for _, file := range order {
		line(file, *byFile[file])
	}
	line(name, total)
	return percent(total)
}
