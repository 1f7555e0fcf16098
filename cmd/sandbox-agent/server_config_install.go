package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// installFlags say where agents' programs come from. The server and the
// commands that install without one have the same.
func installFlags() []cli.Flag {
	env := func(name string) []string { return []string{"SANDBOX_AGENT_" + name} }
	return []cli.Flag{
		dataDirFlag(),
		&cli.StringSliceFlag{Name: "source", Usage: "where agents come from, in the order in which they are asked: " + strings.Join(sourceNames(), ", ") + "; may be repeated", EnvVars: env("SOURCES")},
		&cli.StringSliceFlag{Name: "mirror", Usage: "ask `FROM=TO`: addresses that begin with FROM begin with TO instead; may be repeated", EnvVars: env("MIRRORS")},
		&cli.StringFlag{Name: "registry-url", Usage: "index of the ACP registry, or none to ask for none", DefaultText: install.DefaultRegistryURL, EnvVars: env("REGISTRY_URL")},
		&cli.BoolFlag{Name: "require-checksum", Usage: "refuse downloads for which nobody publishes a checksum", EnvVars: env("REQUIRE_CHECKSUM")},
		&cli.BoolFlag{Name: "require-signature", Usage: "refuse to install what is not signed by somebody whom this release knows, or pinned by its digest", EnvVars: env("REQUIRE_SIGNATURE")},
	}
}

func dataDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "data-dir", Usage: "where sessions and agents are kept", DefaultText: "$XDG_DATA_HOME/sandbox-agent or ~/.local/share/sandbox-agent", EnvVars: []string{"SANDBOX_AGENT_DATA_DIR"}}
}

// dataDirOf returns the data directory as an absolute path.
func dataDirOf(c *cli.Context) (string, error) {
	dir := c.String("data-dir")
	if dir == "" {
		var err error
		if dir, err = cmdline.DataDir("sandbox-agent"); err != nil {
			return "", err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	return dir, nil
}

// installOptionsOf returns what the flags say about installation, checked.
func installOptionsOf(c *cli.Context) (install.Options, error) {
	o := install.Options{RegistryURL: c.String("registry-url"), RequireChecksum: c.Bool("require-checksum"), RequireSignature: c.Bool("require-signature")}
	var err error
	if o.DataDir, err = dataDirOf(c); err != nil {
		return o, err
	}
	if o.Sources, err = sourcesOf(c); err != nil {
		return o, err
	}
	for _, w := range cmdline.Words(c.StringSlice("mirror")) {
		from, to, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			return o, cmdline.Usagef(c, "--mirror %s is not FROM=TO", secret.Address(w))
		case !isWebAddress(from):
			return o, cmdline.Usagef(c, "--mirror %s: what is replaced must begin with https:// or http:// and a host", secret.Address(w))
		case !isWebAddress(to):
			return o, cmdline.Usagef(c, "--mirror %s: what is asked instead must begin with https:// or http:// and a host", secret.Address(w))
		}
		if o.Mirrors == nil {
			o.Mirrors = map[string]string{}
		}
		o.Mirrors[from] = to
	}
	if o.RegistryURL != "" && o.RegistryURL != install.NoRegistry && !isWebAddress(o.RegistryURL) {
		return o, cmdline.Usagef(c, "--registry-url %s: use an https or http address, or %s", secret.Address(o.RegistryURL), install.NoRegistry)
	}
	return o, nil
}

// sourcesOf returns the sources of --source; nil means the standard ones.
func sourcesOf(c *cli.Context) ([]install.Source, error) {
	var sources []install.Source
	for _, w := range cmdline.Words(c.StringSlice("source")) {
		if !slices.Contains(sourceNames(), w) {
			return nil, cmdline.Usagef(c, "--source %s: use %s", w, strings.Join(sourceNames(), ", "))
		}
		if s := install.Source(w); !slices.Contains(sources, s) {
			sources = append(sources, s)
		}
	}
	return sources, nil
}

func sourceNames() []string {
	var names []string
	for _, s := range install.AllSources() {
		names = append(names, string(s))
	}
	return names
}

func isWebAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}
