package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatrix_Committed(t *testing.T) {
	const page = "../../../../docs/agents.mdx"
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want, err := renewed(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is out of date, run ./task generate; -want +got:\n%s", page, diff)
	}
}
