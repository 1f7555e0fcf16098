package install

import (
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/install/signature"
)

// recipe says where one agent's program comes from. It is data: what differs
// between agents stands here and nowhere else in this package.
type recipe struct {
	agent   string
	command string   // the program's name in PATH
	env     []string // keeps a mere --version away from updates and the network
	vendor  *vendor
	npm     *npmPackage
	entry   string   // id in the ACP registry, if that entry is this very program
	acp     []string // arguments that start it as an ACP agent; nil when they are not known
	needs   []need   // what it wants of the machine, for Doctor
	builtIn bool     // part of this program: there is nothing to install
}

// need is something that an agent's program wants of the machine.
type need struct {
	kind  needKind
	name  string // of a program in PATH
	least string // version of it, "" for any
	why   string // what does not work without it
	hard  bool   // the agent is of no use without it
	// probe are arguments by which the agent's own program tells; the machine is
	// looked at when it is not installed.
	probe []string
}

type needKind string

const (
	needProgram    needKind = "program"
	needNamespaces needKind = "user namespaces"
)

// needNode is what programs want that Node.js runs.
func needNode(least string) need {
	return need{kind: needProgram, name: "node", least: least, why: "its program is a script that Node.js runs", hard: true}
}

// vendor describes downloads from the agent's maker. URLs and paths may hold
// {version}, {target} and, for GitHub releases, {release}, which is the URL of
// the release's files.
type vendor struct {
	repo    string            // GitHub repository; "" when latest is set
	tag     string            // the repository's tag of {version}
	latest  string            // URL of a text that is the newest version
	targets map[string]string // platform to the maker's name of it, {target}
	layouts []layout          // tried in order, as long as a release has no such files
}

// layout is one way in which releases are packed.
type layout struct {
	assets  []asset
	sums    string   // URL of checksums in any form that findSum knows, "" if there are none
	program []string // where the program is; the first that exists counts
	helpers []string // programs that it needs beside it
	list    *signedList
	// bundles are URLs of Sigstore's bundles of files in the stage; nil when the
	// maker publishes none. workflow is who signed them.
	bundles  map[string]string
	workflow signature.Workflow
}

// signedList says who signs the list of checksums.
type signedList struct {
	suffix      string // of the list's URL; there is the OpenPGP signature of it
	keys        string // URL of a file with the key
	fingerprint string // of the key
	who         string
	since       string // version from which on the list is signed
}

// asset is one file of a release. Archives are unpacked.
type asset struct {
	url      string
	rename   map[string]string // files inside the archive, or "" for a file that is none
	optional bool              // older releases lack it
}

// npmPackage describes an agent's package. With platform packages, scripts need
// not run: the program lies in the package of its platform.
type npmPackage struct {
	newest  string            // the package that is asked for the newest {version}
	install string            // what is installed
	targets map[string]string // platform to {target}; nil when one package suits all
	program []string          // patterns below node_modules; the first that matches counts
	helpers []string          // patterns of programs that it needs
	node    bool              // the program is a script that Node.js runs
	least   string            // version of Node.js that it wants, "" for any
	works   string            // a version that is known to install, where newer ones may not
}

const (
	claudeBase = "https://storage.googleapis.com/claude-code-dist-86c565f3-f756-42ad-8dfa-d59b1c096819/claude-code-releases"
	ampBase    = "https://storage.googleapis.com/amp-public-assets-prod-0/cli"
)

// claudeKeys is where Anthropic publishes the key of its releases.
const claudeKeys = "https://downloads.claude.ai/keys/claude-code.asc"

// codexWorkflow builds and signs the releases of Codex for Linux.
var codexWorkflow = signature.Workflow{
	Issuer: "https://token.actions.githubusercontent.com",
	Name:   "https://github.com/openai/codex/.github/workflows/rust-release.yml@refs/tags/rust-v{version}",
}

// targets by the makers that use the names of this package.
var (
	muslTargets = map[string]string{
		"linux-x64": "linux-x64", "linux-x64-musl": "linuxmusl-x64", "linux-arm64": "linux-arm64",
		"linux-arm64-musl": "linuxmusl-arm64", "darwin-x64": "darwin-x64", "darwin-arm64": "darwin-arm64",
	}
	sameTargets = map[string]string{
		"linux-x64": "linux-x64", "linux-x64-musl": "linux-x64-musl", "linux-arm64": "linux-arm64",
		"linux-arm64-musl": "linux-arm64-musl", "darwin-x64": "darwin-x64", "darwin-arm64": "darwin-arm64",
	}
	glibcTargets = map[string]string{
		"linux-x64": "linux-x64", "linux-arm64": "linux-arm64", "darwin-x64": "darwin-x64", "darwin-arm64": "darwin-arm64",
	}
	// Static programs suit both C libraries.
	staticTargets = map[string]string{
		"linux-x64": "linux-x64", "linux-x64-musl": "linux-x64", "linux-arm64": "linux-arm64",
		"linux-arm64-musl": "linux-arm64", "darwin-x64": "darwin-x64", "darwin-arm64": "darwin-arm64",
	}
	tripleTargets = map[string]string{
		"linux-x64": "x86_64-unknown-linux-musl", "linux-x64-musl": "x86_64-unknown-linux-musl",
		"linux-arm64": "aarch64-unknown-linux-musl", "linux-arm64-musl": "aarch64-unknown-linux-musl",
		"darwin-x64": "x86_64-apple-darwin", "darwin-arm64": "aarch64-apple-darwin",
	}
)

var recipes = map[string]recipe{
	"claude": {
		agent:   "claude",
		command: "claude",
		env:     []string{"DISABLE_AUTOUPDATER=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"},
		vendor: &vendor{
			latest:  claudeBase + "/latest",
			targets: sameTargets,
			layouts: []layout{{
				assets:  []asset{{url: claudeBase + "/{version}/{target}/claude"}},
				sums:    claudeBase + "/{version}/manifest.json",
				program: []string{"claude"},
				list: &signedList{
					suffix: ".sig", keys: claudeKeys, fingerprint: "31DDDE24DDFAB679F42D7BD2BAA929FF1A7ECACE",
					who: "Anthropic's release key", since: "2.1.89",
				},
			}},
		},
		npm: &npmPackage{
			newest:  "@anthropic-ai/claude-code",
			install: "@anthropic-ai/claude-code-{target}@{version}",
			targets: sameTargets,
			program: []string{"@anthropic-ai/claude-code-{target}/claude"},
		},
	},
	"codex": {
		agent:   "codex",
		command: "codex",
		vendor: &vendor{
			repo:    "openai/codex",
			tag:     "rust-v{version}",
			targets: tripleTargets,
			layouts: []layout{
				{ // the whole package, with its helpers in the places where it looks for them
					assets:  []asset{{url: "{release}/codex-package-{target}.tar.gz"}},
					sums:    "{release}/codex-package_SHA256SUMS",
					program: []string{"bin/codex"},
					helpers: []string{"bin/codex-code-mode-host", "codex-path/rg"},
					bundles: map[string]string{
						"bin/codex":                "{release}/codex-{target}.sigstore",
						"bin/codex-code-mode-host": "{release}/codex-code-mode-host-{target}.sigstore",
					},
					workflow: codexWorkflow,
				},
				{
					assets: []asset{
						{url: "{release}/codex-{target}.tar.gz", rename: map[string]string{"codex-{target}": "codex"}},
						{url: "{release}/codex-code-mode-host-{target}.tar.gz", rename: map[string]string{"codex-code-mode-host-{target}": "codex-code-mode-host"}, optional: true},
					},
					program: []string{"codex"},
					helpers: []string{"codex-code-mode-host"},
					bundles: map[string]string{
						"codex":                "{release}/codex-{target}.sigstore",
						"codex-code-mode-host": "{release}/codex-code-mode-host-{target}.sigstore",
					},
					workflow: codexWorkflow,
				},
			},
		},
		npm: &npmPackage{
			newest:  "@openai/codex",
			install: "@openai/codex@{version}-{target}",
			targets: staticTargets,
			program: []string{"@openai/codex/vendor/*/bin/codex", "@openai/codex/vendor/*/codex/codex"},
			helpers: []string{"@openai/codex/vendor/*/bin/codex-code-mode-host", "@openai/codex/vendor/*/codex-path/rg"},
		},
		needs: []need{{
			kind: needNamespaces, hard: true, probe: []string{"sandbox", "--", "/bin/true"},
			why: "its sandbox is made of them; without them every command fails unless the session's mode gives full access",
		}},
	},
	"opencode": {
		agent:   "opencode",
		command: "opencode",
		env:     []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"},
		vendor: &vendor{
			repo: "anomalyco/opencode",
			tag:  "v{version}",
			targets: map[string]string{
				"linux-x64": "linux-x64.tar.gz", "linux-x64-musl": "linux-x64-musl.tar.gz",
				"linux-arm64": "linux-arm64.tar.gz", "linux-arm64-musl": "linux-arm64-musl.tar.gz",
				"darwin-x64": "darwin-x64.zip", "darwin-arm64": "darwin-arm64.zip",
			},
			layouts: []layout{{
				assets:  []asset{{url: "{release}/opencode-{target}"}},
				program: []string{"opencode", "bin/opencode"},
			}},
		},
		npm: &npmPackage{
			newest:  "opencode-ai",
			install: "opencode-{target}@{version}",
			targets: sameTargets,
			program: []string{"opencode-{target}/bin/opencode"},
		},
		entry: "opencode",
		acp:   []string{"acp"},
		needs: []need{{kind: needProgram, name: "rg", why: "its search tools run ripgrep, and fetch it from the network when it is missing"}},
	},
	"amp": {
		agent:   "amp",
		command: "amp",
		env:     []string{"AMP_SKIP_UPDATE_CHECK=1"},
		vendor: &vendor{
			latest:  ampBase + "/cli-version.txt",
			targets: glibcTargets,
			layouts: []layout{{
				assets:  []asset{{url: ampBase + "/{version}/amp-{target}", rename: map[string]string{"": "amp"}}},
				sums:    ampBase + "/{version}/{target}-amp.sha256",
				program: []string{"amp"},
			}},
		},
		// The package @sourcegraph/amp is an alias of @ampcode/cli, whose newest
		// version may appear before its platform packages do. Releases before July
		// 2026 are in the alias alone, as scripts for Node.js, and not offered.
		npm: &npmPackage{
			newest:  "@ampcode/cli-{target}",
			install: "@ampcode/cli-{target}@{version}",
			targets: glibcTargets,
			program: []string{"@ampcode/cli-{target}/amp"},
		},
	},
	"pi": {
		agent:   "pi",
		command: "pi",
		env:     []string{"PI_OFFLINE=1"},
		vendor: &vendor{
			repo:    "earendil-works/pi",
			tag:     "v{version}",
			targets: glibcTargets,
			layouts: []layout{{
				assets:  []asset{{url: "{release}/pi-{target}.tar.gz"}},
				sums:    "{release}/SHA256SUMS",
				program: []string{"pi/pi", "pi"},
			}},
		},
		npm: &npmPackage{
			newest:  "@earendil-works/pi-coding-agent",
			install: "@earendil-works/pi-coding-agent@{version}",
			program: []string{".bin/pi"},
			node:    true,
			least:   "22.19",
			// From 0.99.1 to 1.5.2 it names versions of its own parts that were
			// never published.
			works: "0.87.1",
		},
	},
	"gemini": {
		agent:   "gemini",
		command: "gemini",
		npm: &npmPackage{
			newest:  "@google/gemini-cli",
			install: "@google/gemini-cli@{version}",
			program: []string{".bin/gemini"},
			node:    true,
		},
		entry: "gemini",
		acp:   []string{"--acp"},
		needs: []need{needNode("20")},
	},
	"qwen": {
		agent:   "qwen",
		command: "qwen",
		npm: &npmPackage{
			newest:  "@qwen-code/qwen-code",
			install: "@qwen-code/qwen-code@{version}",
			program: []string{".bin/qwen"},
			node:    true,
		},
		entry: "qwen-code",
		acp:   []string{"--acp"},
		needs: []need{needNode("22")},
	},
	"copilot": {
		agent:   "copilot",
		command: "copilot",
		vendor: &vendor{
			repo:    "github/copilot-cli",
			tag:     "v{version}",
			targets: muslTargets,
			layouts: []layout{{
				assets:  []asset{{url: "{release}/copilot-{target}.tar.gz"}},
				sums:    "{release}/SHA256SUMS.txt",
				program: []string{"copilot"},
			}},
		},
		npm: &npmPackage{
			newest:  "@github/copilot",
			install: "@github/copilot-{target}@{version}",
			targets: muslTargets,
			program: []string{"@github/copilot-{target}/copilot"},
		},
		entry: "github-copilot-cli",
		acp:   []string{"--acp"},
	},
	"mock": {agent: "mock", builtIn: true},
}

// Known returns the agents that this package has recipes for, sorted. Others
// are found in the ACP registry.
func Known() []string { return slices.Sorted(maps.Keys(recipes)) }

// fill replaces {name} by its value in a template of the table.
func fill(template string, values map[string]string) string {
	for name, v := range values {
		template = strings.ReplaceAll(template, "{"+name+"}", v)
	}
	return template
}
