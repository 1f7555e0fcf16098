package main

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// Who takes back all hears what stays allowed, and each reason once.
func TestPermissions_WhatStaysIsSaid(t *testing.T) {
	var out strings.Builder
	sayStays(&out, []runtime.Grant{
		{Title: "A", Reason: "it is in /f"},
		{Title: "B", Revocable: true},
		{Title: "C", Reason: "the agent keeps it"},
		{Title: "D\nE", Reason: "it is in /f"},
	})
	if want := "stays allowed: A, D E: it is in /f\nstays allowed: C: the agent keeps it\n"; out.String() != want {
		t.Errorf("it says\n%swant\n%s", out.String(), want)
	}
}
