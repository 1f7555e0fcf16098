package install

import "path/filepath"

// Cached returns the stored copy of the ACP registry's agents, also an old one,
// without asking the network; nil when there is none.
func (in *Installer) Cached() []Entry {
	index, _, err := in.cachedIndex()
	if err != nil {
		return nil
	}
	return index.Agents
}

// DataDir returns the data directory that agents are installed into.
func (in *Installer) DataDir() string { return filepath.Dir(in.root) }
