package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BinVariable returns the environment variable that names an agent's program.
func BinVariable(agent string) string {
	return "SANDBOX_AGENT_" + strings.ToUpper(strings.ReplaceAll(agent, "-", "_")) + "_BIN"
}

// Find returns the program of an agent that would be used now: what its
// [BinVariable] names, else the current installation, else what is in PATH. It
// runs nothing and asks no network. A variable that names no program is not
// passed over: then there is none.
func (in *Installer) Find(agent string) (Installation, bool) {
	if !agentID.MatchString(agent) {
		return Installation{}, false
	}
	if os.Getenv(BinVariable(agent)) != "" {
		program, err := named(agent)
		return in.foreign(agent, program), err == nil
	}
	if i, ok := in.installed(agent); ok {
		return i, true
	}
	r, ok := recipes[agent]
	if r.builtIn {
		return in.ours(agent)
	}
	if !ok {
		if index, _, err := in.cachedIndex(); err == nil {
			if e, found := index.entry(agent); found {
				r = in.entryRecipe(e)
			}
		}
	}
	program, err := exec.LookPath(r.command)
	if r.command == "" || err != nil {
		return Installation{}, false
	}
	i := in.foreign(agent, program)
	i.ACPArgs = r.acp
	return i, true
}

// installed returns the current installation.
func (in *Installer) installed(agent string) (Installation, bool) {
	version := in.current(agent)
	if version == "" {
		return Installation{}, false
	}
	i, err := in.load(agent, version)
	i.Current = true
	return i, err == nil
}

// named returns the program that the agent's variable names.
func named(agent string) (string, error) {
	name := BinVariable(agent)
	program, err := exec.LookPath(os.Getenv(name))
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return "", fmt.Errorf("%s names no program that can be run; correct or unset it: %w", name, err)
	}
	return program, nil
}

// foreign describes a program that is not ours.
func (in *Installer) foreign(agent, program string) Installation {
	return Installation{
		Agent: agent, Source: Path, Program: program, Platform: in.platform.String(), Current: true,
		Artifacts:    []Artifact{{Kind: KindProgram, Path: program, Source: Path}},
		Verification: Verification{How: Unverified, Note: "it was on this machine already"},
	}
}

// path uses a program that is there already, if it has the wanted version.
func (j *job) path(ctx context.Context) (*product, error) {
	var program string
	var err error
	if os.Getenv(BinVariable(j.recipe.agent)) != "" {
		program, err = named(j.recipe.agent)
	} else if j.recipe.command == "" {
		return nil, fmt.Errorf("%w: the name of the program in PATH is not certain; name it with %s", errNotOffered, BinVariable(j.recipe.agent))
	} else if program, err = exec.LookPath(j.recipe.command); err != nil {
		err = fmt.Errorf("%s %w in PATH", j.recipe.command, errMissing)
	}
	if err != nil {
		return nil, err
	}
	if j.newest {
		return nil, fmt.Errorf("%w: %s is there, but whether it is the newest version is not known", errNotOffered, program)
	}
	j.say.step(StepProve, program)
	said, err := j.prove(ctx, program, nil, j.recipe.env, j.recipe.acp)
	if err != nil {
		return nil, err
	}
	version := versionIn(said.reported)
	if j.want != "" && version != j.want {
		return nil, fmt.Errorf("%w as %s: %s says %q", errNotOffered, j.want, program, said.reported)
	}
	return &product{version: version, program: program, acp: j.recipe.acp, proof: said}, nil
}

// versionIn returns the version that a program's answer to --version names, ""
// if none is recognised.
func versionIn(reported string) string {
	for word := range strings.FieldsSeq(reported) {
		word = strings.TrimPrefix(strings.Trim(word, "(),;:"), "v")
		if strings.Contains(word, ".") && word[0] >= '0' && word[0] <= '9' && checkVersion(word) == nil {
			return word
		}
	}
	return ""
}
