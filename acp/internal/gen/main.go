// Gen writes the types and the codec of package schema and the method table of
// package acp from the schema files in acp/schema. It runs in that directory:
//
//	go run ../internal/gen          write the generated files
//	go run ../internal/gen -update  first fetch the schema files of the pinned
//	                                version with npm
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	refresh := flag.Bool("update", false, "fetch the schema files of the pinned version")
	flag.Parse()
	if err := run("..", *refresh); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run works in the acp directory dir.
func run(dir string, refresh bool) error {
	if refresh {
		if err := update(filepath.Join(dir, "schema")); err != nil {
			return err
		}
	}
	files, err := fromDir(dir)
	if err != nil {
		return err
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// fromDir generates from the schema files below dir.
func fromDir(dir string) (map[string][]byte, error) {
	unstable, err := os.ReadFile(filepath.Join(dir, "schema", "v1.unstable.json"))
	if err != nil {
		return nil, err
	}
	stable, err := os.ReadFile(filepath.Join(dir, "schema", "v1.json"))
	if err != nil {
		return nil, err
	}
	return generate(unstable, stable)
}
