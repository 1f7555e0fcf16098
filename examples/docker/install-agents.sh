#!/bin/sh
# install-agents.sh DIR BIN AGENT...: installs agents in DIR and puts links to
# them into BIN, which is in PATH: so they stay in the image when the data
# directory is a volume. Needs node to read the answer.
set -eu

dir=$1
bin=$2
shift 2
for agent in "$@"; do
	sandbox-agent agents install "$agent" --data-dir "$dir"
	program=$(sandbox-agent agents show "$agent" --data-dir "$dir" --json |
		node -p 'JSON.parse(require("fs").readFileSync(0, "utf8")).path')
	case $program in
	"$dir"/*) ln -sf "$program" "$bin/$(basename "$program")" ;;
	*) echo "install-agents.sh: $agent: its program is not in $dir: $program" >&2 && exit 1 ;;
	esac
done
chmod -R a+rX "$dir"
