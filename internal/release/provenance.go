package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
)

// object is a JSON object.
type object = map[string]any

// provenance says what the files were made of and by what, as a statement of in-toto with
// SLSA's predicate. It is not signed: who signs it, as a workflow of GitHub does, says
// with it who made them. It has no time in it, so that it can be made again.
func provenance(ctx context.Context, o options, staged string) error {
	entries, err := os.ReadDir(staged)
	if err != nil {
		return fmt.Errorf("list the files: %w", err)
	}
	var subjects []object
	for _, e := range entries {
		sum, err := checksum(filepath.Join(staged, e.Name()))
		if err != nil {
			return err
		}
		subjects = append(subjects, object{"name": e.Name(), "digest": object{"sha256": sum}})
	}
	sources := object{"uri": "git+https://github.com/sandboxagent/sandbox-agent"}
	if commit := output(ctx, o.root, "git", "rev-parse", "HEAD"); commit != "" {
		sources["digest"] = object{"gitCommit": commit}
	}
	b, err := json.MarshalIndent(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            "https://github.com/sandboxagent/sandbox-agent/blob/main/internal/release/doc.go",
				"externalParameters":   object{"version": o.version},
				"resolvedDependencies": []object{sources, {"name": "go", "annotations": object{"version": goruntime.Version()}}, {"name": "node", "annotations": object{"version": output(ctx, o.root, "node", "--version")}}},
			},
			"runDetails": object{"builder": object{"id": builder()}},
		},
	}, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(staged, provenanceFile), append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write where the files come from: %w", err)
	}
	return nil
}

const provenanceFile = "provenance.intoto.json"

// builder names who runs this, as far as it is known.
func builder() string {
	if repository, run := os.Getenv("GITHUB_REPOSITORY"), os.Getenv("GITHUB_RUN_ID"); repository != "" && run != "" {
		return "https://github.com/" + repository + "/actions/runs/" + run
	}
	return "https://github.com/sandboxagent/sandbox-agent#by-hand"
}

// output is what a program says, without its last line break; "" if it fails.
func output(ctx context.Context, dir, name string, args ...string) string {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	b, err := cmd.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
