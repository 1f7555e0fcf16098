package fs

type SearchLimits struct{}

func (l SearchLimits) withDefaults() SearchLimits { return l }
