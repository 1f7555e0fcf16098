//go:build !unix

package session

import "os"

func readFile(path string) ([]byte, error) { return os.ReadFile(path) }
