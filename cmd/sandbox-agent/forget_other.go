//go:build !linux

package main

import "os"

// forgetToken keeps the token from programs that inherit the environment.
func forgetToken(string) { _ = os.Unsetenv("SANDBOX_AGENT_TOKEN") }
