package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/pattern"
)

// Path is where a hub takes tunnels.
const Path = "/v2/join"

// Headers of the request that opens a tunnel.
const (
	headerName     = "X-Sandbox-Node"
	headerLabels   = "X-Sandbox-Labels"
	headerAgents   = "X-Sandbox-Agents"
	headerVersion  = "X-Sandbox-Version"
	headerInstance = "X-Sandbox-Instance"
)

// HeaderCopies is in the hub's answer: [CopiesNone] when it keeps no copies of sessions. Hubs of
// earlier versions do not say it.
const (
	HeaderCopies = "X-Sandbox-Copies"
	CopiesNone   = "none"
)

// MaxLabels bounds the labels of a node and of a token.
const MaxLabels = 32

// maxAgents bounds the agents that a node says it has; further ones are not said.
const maxAgents = 128

// Hello is what a node says of itself when it opens a tunnel.
type Hello struct {
	Name    string
	Labels  map[string]string
	Agents  []string // that it lists
	Version string   // of its program
	// Instance is a secret of the running program: as long as it is connected, only
	// the same one may take its name again.
	Instance string
	// Lanes says that the node opens lanes.
	Lanes bool
}

var (
	namePattern    = pattern.New(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	keyPattern     = pattern.New(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$`)
	valuePattern   = pattern.New(`^[A-Za-z0-9._-]{0,63}$`)
	wordPattern    = pattern.New(`^[!-~]{1,128}$`)
	secretPattern  = pattern.New(`^[A-Za-z0-9]{16,64}$`)
	labelSeparator = ","
)

// CheckName returns why name is no name of a node.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%q is no name of a node: use 1 to 63 letters, digits, dots, dashes and underscores, with a letter or digit first and last", name)
	}
	return nil
}

// CheckLabels returns why labels cannot be those of a node or a token.
func CheckLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels are too many: at most %d", len(labels), MaxLabels)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !keyPattern.MatchString(k) {
			return fmt.Errorf("%q is no name of a label: use 1 to 63 letters, digits, dots, dashes, underscores and slashes, with a letter or digit first and last", k)
		}
		if !valuePattern.MatchString(labels[k]) {
			return fmt.Errorf("%q is no value of a label: use at most 63 letters, digits, dots, dashes and underscores", labels[k])
		}
	}
	return nil
}

// ParseLabels reads labels that are written as name=value. The same name with two
// values is an error.
func ParseLabels(words []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no label: write it as NAME=VALUE", w)
		}
		if had, twice := labels[k]; twice && had != v {
			return nil, fmt.Errorf("the label %s has two values, %q and %q", k, had, v)
		}
		labels[k] = v
	}
	return labels, CheckLabels(labels)
}

// FormatLabels is the inverse of ParseLabels, in order of names.
func FormatLabels(labels map[string]string) []string {
	words := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, k+"="+labels[k])
	}
	return words
}

// Header returns the headers that say h.
func (h Hello) Header() http.Header {
	header := http.Header{}
	header.Set(headerName, h.Name)
	header.Set(headerVersion, h.Version)
	header.Set(headerInstance, h.Instance)
	if h.Lanes {
		header.Set(headerLanes, lanesYes)
	}
	if len(h.Labels) > 0 {
		header.Set(headerLabels, strings.Join(FormatLabels(h.Labels), labelSeparator))
	}
	if len(h.Agents) > 0 {
		header.Set(headerAgents, strings.Join(h.Agents[:min(len(h.Agents), maxAgents)], labelSeparator))
	}
	return header
}

// ParseHello reads what Header wrote, and trusts none of it.
func ParseHello(header http.Header) (Hello, error) {
	h := Hello{Name: header.Get(headerName), Version: header.Get(headerVersion), Instance: header.Get(headerInstance), Lanes: header.Get(headerLanes) == lanesYes}
	if err := CheckName(h.Name); err != nil {
		return h, err
	}
	if !wordPattern.MatchString(h.Version) {
		return h, errors.New("the version of the node's program is missing or malformed")
	}
	if !secretPattern.MatchString(h.Instance) {
		return h, errors.New("the node does not say which instance it is")
	}
	var words []string
	if s := header.Get(headerLabels); s != "" {
		words = strings.Split(s, labelSeparator)
	}
	if s := header.Get(headerAgents); s != "" { // older gateways do not say it
		h.Agents = strings.Split(s, labelSeparator)
	}
	if len(h.Agents) > maxAgents || slices.ContainsFunc(h.Agents, func(a string) bool { return !wordPattern.MatchString(a) }) {
		return h, errors.New("the names of the node's agents are too many or malformed")
	}
	var err error
	h.Labels, err = ParseLabels(words)
	return h, err
}
