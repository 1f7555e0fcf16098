package install

// Cached returns the stored copy of the ACP registry's agents, also an old one,
// without asking the network; nil when there is none.
func (in *Installer) Cached() []Entry {
	index, _, err := in.cachedIndex()
	if err != nil {
		return nil
	}
	return index.Agents
}

// FindVersion is Find for one version, which must be installed here: what is in
// PATH has not said its version.
func (in *Installer) FindVersion(agent, version string) (Installation, bool) {
	if version == "" {
		return in.Find(agent)
	}
	if !agentID.MatchString(agent) || checkVersion(version) != nil {
		return Installation{}, false
	}
	i, err := in.load(agent, version)
	if err != nil {
		return Installation{}, false
	}
	i.Current = version == in.current(agent)
	return i, true
}
