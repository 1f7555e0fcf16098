package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/credentials"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// CheckStatus is what a check came to.
type CheckStatus string

// What checks come to.
const (
	CheckOK      CheckStatus = "ok"
	CheckAbsent  CheckStatus = "absent"  // not there, and nobody asked for it
	CheckWarning CheckStatus = "warning" // something will not work
	CheckFailed  CheckStatus = "failed"  // an agent, or all of them, will not work
)

// Check is one thing that [Installer.Doctor] looked at.
type Check struct {
	Name   string      `json:"name"`            // such as certificates or program
	Agent  string      `json:"agent,omitempty"` // "" for the machine
	Status CheckStatus `json:"status"`
	Found  string      `json:"found"`            // what is the case
	Remedy string      `json:"remedy,omitempty"` // what to do; there unless the status is ok
}

// Report is what [Installer.Doctor] found.
type Report struct {
	OK       bool    `json:"ok"` // no check failed
	Platform string  `json:"platform"`
	Checks   []Check `json:"checks"` // the machine's, then the sources', then each agent's
}

// doctorWorkers bounds how many checks run at once; the others wait.
const doctorWorkers = 4

// Doctor checks the machine, the sources and agents. Agents that are named must
// be installed and work; without names all known agents are checked, and those
// that are not installed do not count. It changes nothing on the machine. The
// error is a *problem.Error about the names.
func (in *Installer) Doctor(ctx context.Context, agents []string) (Report, error) {
	defer in.idle()
	named := len(agents) > 0
	for _, a := range agents {
		if !agentID.MatchString(a) {
			return Report{}, badID(a)
		}
	}
	installed, _ := in.List() // a directory that cannot be read is a check's business
	if !named {
		agents = Known()
		for _, i := range installed {
			agents = append(agents, i.Agent)
		}
		slices.Sort(agents)
	}
	agents = slices.Compact(agents)
	var patients []patient
	for _, a := range agents {
		r, err := in.recipeOf(ctx, a)
		if i, ok := in.Find(a); ok && err != nil {
			r, err = recipe{agent: a, acp: i.ACPArgs}, nil // installed before the registry forgot it
		}
		if err != nil {
			return Report{}, err
		}
		patients = append(patients, patient{recipe: r, named: named})
	}
	rep := Report{OK: true, Platform: in.platform.String()}
	for _, found := range in.runChecks(ctx, append(in.machineChecks(patients), in.agentChecks(patients)...)) {
		rep.Checks = append(rep.Checks, found...)
	}
	rep.OK = !slices.ContainsFunc(rep.Checks, func(c Check) bool { return c.Status == CheckFailed })
	return rep, nil
}

// patient is an agent to check.
type patient struct {
	recipe
	named bool // somebody wants it to work
}

// runChecks runs checks side by side and returns what they found, in order.
func (in *Installer) runChecks(ctx context.Context, checks []func(context.Context) []Check) [][]Check {
	results := make([][]Check, len(checks))
	free := make(chan struct{}, doctorWorkers)
	var workers sync.WaitGroup
	for i, check := range checks {
		free <- struct{}{}
		workers.Go(func() {
			defer func() { <-free }()
			results[i] = check(ctx)
		})
	}
	workers.Wait()
	return results
}

func (in *Installer) agentChecks(patients []patient) []func(context.Context) []Check {
	var checks []func(context.Context) []Check
	for _, p := range patients {
		checks = append(checks, func(ctx context.Context) []Check {
			found := in.checkAgent(ctx, p)
			for i := range found {
				found[i].Agent = p.agent
			}
			return found
		})
	}
	return checks
}

// checkAgent checks one agent's program and what it needs.
func (in *Installer) checkAgent(ctx context.Context, p patient) []Check {
	i, ok := in.Find(p.agent)
	if !ok {
		checks := append([]Check{in.checkAbsent(p)}, checkCredentials(p.agent)...)
		if !p.named {
			return checks
		}
		return append(checks, in.checkNeeds(ctx, p, nil)...)
	}
	if p.builtIn {
		return []Check{{Name: "program", Status: CheckOK, Found: "part of this program"}}
	}
	c := in.checkProgram(ctx, p, i)
	checks := append([]Check{c}, checkCredentials(p.agent)...)
	if c.Status != CheckOK {
		return append(checks, in.checkNeeds(ctx, p, nil)...)
	}
	return append(checks, in.checkNeeds(ctx, p, &i)...)
}

// checkCredentials says which of several credentials an agent takes, where it finds more
// than one for the same provider.
func checkCredentials(agent string) (checks []Check) {
	found, _ := credentials.Find(credentials.Options{Agents: []string{agent}})
	for _, c := range credentials.Choices(found, time.Now()) {
		if c.Agent == agent {
			checks = append(checks, Check{Name: "credentials", Status: CheckOK, Found: fmt.Sprintf("it takes %s, and not %s", c.Takes, strings.Join(c.Instead, ", "))})
		}
	}
	return checks
}

// checkAbsent is about an agent that is not there.
func (in *Installer) checkAbsent(p patient) Check {
	c := Check{Name: "program", Status: CheckAbsent, Found: "not installed", Remedy: "sandbox-agent agents install " + p.agent}
	if p.named {
		c.Status = CheckFailed
	}
	if os.Getenv(BinVariable(p.agent)) != "" {
		_, err := named(p.agent)
		return Check{Name: "program", Status: CheckFailed, Found: fmt.Sprint(err), Remedy: "correct or unset " + BinVariable(p.agent)}
	}
	if !in.offered(p.recipe) {
		c.Found = "not installed, and no source is known to have it for " + in.platform.String()
		c.Remedy = "name a program of your own with " + BinVariable(p.agent)
	}
	return c
}

// offered reports whether some source may have an agent for this platform.
func (in *Installer) offered(r recipe) bool {
	has := func(targets map[string]string) bool { return targets[in.platform.String()] != "" }
	return r.vendor != nil && has(r.vendor.targets) || r.npm != nil && (r.npm.targets == nil || has(r.npm.targets)) || r.entry != ""
}

// checkProgram runs an agent's program as an installation would.
func (in *Installer) checkProgram(ctx context.Context, p patient, i Installation) Check {
	c := Check{Name: "program", Status: CheckFailed, Remedy: "sandbox-agent agents install " + p.agent + " --reinstall"}
	if i.Source == Path {
		c.Remedy = "repair it, or sandbox-agent agents install " + p.agent + " --source vendor --source npm --source registry"
	}
	for _, a := range i.Artifacts {
		if rel, err := filepath.Rel(i.Dir, a.Path); a.SHA256 == "" || err != nil || !filepath.IsLocal(rel) {
			continue // earlier releases noted it of somebody else's program, too, which may be updated
		}
		if sum, err := fileSum(a.Path); err != nil || sum != a.SHA256 {
			c.Found = a.Path + " is not the file that was installed"
			if err != nil {
				c.Found += ": " + err.Error()
			}
			return c
		}
	}
	env := slices.Concat(p.env, i.Env)
	if i.Source == Registry && len(i.Args) > 0 { // a package client starts it
		env = append(uvProof(), env...)
	}
	said, err := in.prove(ctx, i.Program, i.Args, env, i.ACPArgs)
	if err != nil {
		c.Found = err.Error()
		return c
	}
	c.Status, c.Remedy = CheckOK, ""
	c.Found = fmt.Sprintf("%s from %s at %s; says %q", or(i.Version, versionIn(said.reported)), i.Source, i.Program, said.reported)
	if said.handshake == HandshakeInitialize {
		c.Found += " and answers initialize"
	}
	c.Found += "; verified: " + i.Verification.String()
	return c
}

// checkNeeds checks what an agent wants of the machine; i is nil when its
// program cannot be asked.
func (in *Installer) checkNeeds(ctx context.Context, p patient, i *Installation) []Check {
	var checks []Check
	needs := p.needs
	if i != nil && runsOnNode(p.recipe, *i) && !slices.ContainsFunc(needs, func(n need) bool { return n.name == "node" }) {
		least := ""
		if p.npm != nil {
			least = p.npm.least
		}
		needs = append(slices.Clone(needs), needNode(least))
	}
	for _, n := range needs {
		found, remedy := "", ""
		switch {
		case n.probe != nil && i != nil:
			found, remedy = in.probe(ctx, p, n, *i)
		case n.kind == needProgram:
			found, remedy = in.needProgram(ctx, n)
		case n.kind == needNamespaces:
			found, remedy = checkNamespaces(ctx)
		}
		c := Check{Name: or(n.name, string(n.kind)), Status: CheckOK, Found: found, Remedy: remedy}
		if remedy != "" {
			c.Found += "; " + n.why
			c.Status = CheckWarning
			if n.hard {
				c.Status = CheckFailed
			}
		}
		checks = append(checks, c)
	}
	return checks
}

// runsOnNode reports whether an installation is a script that Node.js runs, of
// an agent that also comes in other forms.
func runsOnNode(r recipe, i Installation) bool {
	fromNPM := i.Source == NPM && r.npm != nil && r.npm.node
	return fromNPM || i.Source == Registry && len(i.Packages) > 0 && len(i.Args) == 0
}

// probe lets the agent's own program tell.
func (in *Installer) probe(ctx context.Context, p patient, n need, i Installation) (found, remedy string) {
	home, remove, err := in.home()
	if err != nil {
		return err.Error(), "make the directory " + or(in.temp, os.TempDir()) + " writable"
	}
	defer remove()
	spec := process.Spec{Path: i.Program, Args: slices.Concat(i.Args, n.probe), Dir: home, Env: slices.Concat(environ(), []string{"HOME=" + home, "TERM=dumb", "NO_COLOR=1"}, p.env, i.Env)}
	said := filepath.Base(i.Program) + " " + strings.Join(n.probe, " ")
	_, _, err = run(ctx, in.proof, spec, "", nil)
	if err != nil {
		return said + " " + err.Error(), namespacesRemedy
	}
	return said + " works", ""
}

// needProgram looks for a program in PATH.
func (in *Installer) needProgram(ctx context.Context, n need) (found, remedy string) {
	said, err := versionOf(ctx, n.name)
	install := "install " + n.name
	if n.least != "" {
		install += " " + n.least + " or newer"
	}
	switch {
	case errors.Is(err, errMissing):
		return n.name + " is not in PATH", install + ", and put it into PATH"
	case err != nil:
		return err.Error(), install
	case n.least != "" && older(versionIn(said), n.least):
		return said, install
	}
	return said, ""
}

// older reports whether a version of numbers and dots comes before least.
func older(version, least string) bool {
	have, want := strings.Split(version, "."), strings.Split(least, ".")
	for i, w := range want {
		h := 0
		if i < len(have) {
			h, _ = strconv.Atoi(have[i])
		}
		if n, _ := strconv.Atoi(w); h != n {
			return h < n
		}
	}
	return false
}
