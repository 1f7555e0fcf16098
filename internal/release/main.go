package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// platform is what a program runs on, in Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// file is the name of the program for the platform.
func (p platform) file(program string) string {
	return program + "-" + p.os + "-" + p.arch + p.suffix()
}

// suffix is what names of programs end with.
func (p platform) suffix() string {
	if p.os == "windows" {
		return ".exe"
	}
	return ""
}

// programs are what a release has for each platform.
var programs = []string{"sandbox-agent", "sandbox-hub"}

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// options are what the flags say, checked.
type options struct {
	version   string // without a v
	out       string
	root      string // of the repository
	platforms []platform
	notes     string // what has changed
	dryRun    bool   // say how it would be published
	publish   bool
}

var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func parse(args []string, usage io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.version, "version", "", "version of the release, such as 1.2.3 or v1.2.3; without it the newest of CHANGELOG.md")
	flags.BoolVar(&o.dryRun, "dry-run", false, "make everything, and say what is missing for publishing it and how it would be published")
	flags.BoolVar(&o.publish, "publish", false, "make everything and publish it: GitHub, npm, the index of Python, the images")
	flags.StringVar(&o.out, "out", "dist", "folder for the files")
	flags.StringVar(&o.root, "root", ".", "root of the repository")
	flags.Func("platform", "make this one only, such as linux/amd64; may be repeated", func(s string) error {
		at := slices.IndexFunc(platforms, func(p platform) bool { return p.String() == s })
		if at < 0 {
			return fmt.Errorf("use one of %v", platforms)
		}
		o.platforms = append(o.platforms, platforms[at])
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag: flags begin with --", flags.Arg(0))
	}
	if o.dryRun && o.publish {
		return o, errors.New("--dry-run and --publish exclude one another")
	}
	if o.version = strings.TrimPrefix(o.version, "v"); o.version != "" && !versionPattern.MatchString(o.version) {
		return o, fmt.Errorf("--version %q is not a version: use three numbers, such as 1.2.3 or 1.2.3-rc.1", o.version)
	}
	if o.publish && len(o.platforms) > 0 {
		return o, errors.New("--publish publishes all platforms: leave --platform out")
	}
	if len(o.platforms) == 0 {
		o.platforms = platforms
	}
	return o, nil
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	o, err := parse(args, progress)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	changed, err := changesOf(o.root, o.version)
	if err != nil {
		return err
	}
	o.version, o.notes = changed.version, changed.text
	if _, err := pythonVersion(o.version); err != nil { // before anything takes its time
		return err
	}
	if err := makeRelease(ctx, o, progress); err != nil || !o.dryRun && !o.publish {
		return err
	}
	return publish(ctx, o, o.out, progress)
}
