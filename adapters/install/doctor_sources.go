package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/secret"
)

// reachLimit bounds the check of one source. Who waits longer for an answer
// waits for a network that drops what is sent.
const reachLimit = 15 * time.Second

// sourceChecks ask each source what an installation would ask it first. A
// source that cannot be reached is a warning: there are others, and what is
// installed needs none.
func (in *Installer) sourceChecks(patients []patient) []func(context.Context) []Check {
	var checks []func(context.Context) []Check
	add := func(name string, ask func(context.Context) (string, error)) {
		checks = append(checks, func(ctx context.Context) []Check {
			ctx, cancel := context.WithTimeoutCause(ctx, reachLimit, errStalled)
			defer cancel()
			found, err := ask(ctx)
			if err == nil {
				return []Check{{Name: name, Status: CheckOK, Found: found}}
			}
			remedy := remedy(err, in.root)
			switch {
			case missing(err):
				remedy = "the server is there, but not what is asked for: if it is a mirror, complete it"
			case remedy == "":
				remedy = "check the connection, a proxy (HTTPS_PROXY), or use a mirror"
			}
			return []Check{{Name: name, Status: CheckWarning, Found: err.Error(), Remedy: remedy}}
		})
	}
	if slices.Contains(in.sources, Vendor) {
		for _, p := range firstOfEach(patients, vendorHost) {
			add("source vendor "+vendorHost(p), func(ctx context.Context) (string, error) {
				rel, err := in.asking(p.recipe).release(ctx, p.vendor)
				if err != nil {
					return "", err
				}
				return fmt.Sprintf("answers; %s is the newest version of %s", rel.version, p.agent), nil
			})
		}
	}
	if slices.Contains(in.sources, NPM) {
		hasPackage := func(p patient) string {
			if p.npm == nil || p.npm.targets != nil && p.npm.targets[in.platform.String()] == "" {
				return ""
			}
			return string(NPM)
		}
		for _, p := range firstOfEach(patients, hasPackage) {
			add("source npm", func(ctx context.Context) (string, error) { return in.askNPM(ctx, p) })
		}
	}
	if slices.Contains(in.sources, Registry) {
		add("source registry", func(ctx context.Context) (string, error) {
			b, _, err := in.text(ctx, in.registryURL)
			if err != nil {
				return "", err
			}
			entries, err := parseIndex(b)
			return fmt.Sprintf("answers; it lists %d agents", len(entries)), err
		})
	}
	return checks
}

func (in *Installer) askNPM(ctx context.Context, p patient) (string, error) {
	client, err := npmClient()
	if err != nil {
		return "", err
	}
	j := in.asking(p.recipe)
	version, err := j.npmVersion(ctx, client, fill(p.npm.newest, map[string]string{"target": p.npm.targets[in.platform.String()]}))
	if ctx.Err() != nil {
		return "", fmt.Errorf("npm could not ask its registry: %w", errors.Join(context.Cause(ctx), err))
	}
	return fmt.Sprintf("answers; %s is the newest version of %s", version, p.agent), err
}

// asking is a job that only asks.
func (in *Installer) asking(r recipe) *job {
	return &job{Installer: in, recipe: r, say: &reporter{}}
}

// vendorHost returns the server that is asked for an agent's newest version, ""
// when there is none.
func vendorHost(p patient) string {
	switch {
	case p.vendor == nil:
		return ""
	case p.vendor.repo != "":
		return hostOf(gitHub)
	}
	return hostOf(p.vendor.latest)
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return secret.Address(address)
	}
	return u.Host
}

// firstOfEach returns the first patient of each group that key names.
func firstOfEach(patients []patient, key func(patient) string) []patient {
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(slices.Clone(patients), func(p patient) bool {
		k := key(p)
		if seen[k] {
			return true
		}
		seen[k] = true
		return false
	})
}
