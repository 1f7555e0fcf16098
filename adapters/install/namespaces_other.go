//go:build !linux

package install

import "context"

// checkNamespaces has nothing to check: sandboxes of this system are made in
// other ways.
func checkNamespaces(context.Context) (found, remedy string) { return "not needed on this system", "" }
