#!/bin/sh
# Installs the program sandbox-agent.
#
#   curl -fsSL https://github.com/sandboxagent/sandbox-agent/releases/latest/download/install.sh | sh
#   sh install.sh --version 1.2.3 --dir /usr/local/bin
#
# The program is downloaded into the folder where it is to be, checked there
# against the release's SHA256SUMS, started once, and then renamed. When anything
# goes wrong, what was there before stays. Nothing is asked, nothing runs as
# another user, and no file besides the program is changed.
#
# Everything is in functions that the last lines call: of a script that arrives
# incomplete, nothing runs.
set -u

usage() {
	cat <<'USAGE'
usage: install.sh [--version VERSION] [--dir DIR] [--base-url URL]

  --version VERSION  a release, such as 1.2.3; the newest one without it
                     (SANDBOX_AGENT_VERSION)
  --dir DIR          folder for the program; ~/.local/bin without it
                     (SANDBOX_AGENT_INSTALL_DIR)
  --base-url URL     where releases are, as GitHub has them: URL/latest/download/FILE
                     and URL/download/vVERSION/FILE (SANDBOX_AGENT_BASE_URL)
USAGE
}

say() { printf 'install.sh: %s\n' "$*" >&2; }

fail() {
	say "$*"
	exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# target prints OS-ARCH of this machine.
target() {
	case $(uname -s) in
	Linux) os=linux ;;
	Darwin) os=darwin ;;
	MINGW* | MSYS* | CYGWIN*) fail "this script is for Linux and macOS: for Windows take sandbox-agent-VERSION-windows-amd64.zip of the release, or npm install sandbox-agent" ;;
	*) fail "there is no program for $(uname -s), only for Linux and macOS: build it from source" ;;
	esac
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there is no program for $(uname -m), only for x86_64 and arm64: build it from source" ;;
	esac
	# A shell under Rosetta says x86_64.
	if [ "$os-$arch" = darwin-amd64 ] && [ "$(sysctl -n hw.optional.arm64 2>/dev/null)" = 1 ]; then
		arch=arm64
	fi
	printf '%s-%s\n' "$os" "$arch"
}

# fetch URL FILE downloads a file; what was incomplete is a failure.
fetch() {
	secure=
	case $1 in
	https:*) secure='--proto =https --proto-redir =https' ;;
	esac
	if has curl; then
		# shellcheck disable=SC2086 # several words
		curl $secure --fail --silent --show-error --location --connect-timeout 20 --retry 2 --output "$2" "$1"
	elif has wget; then
		wget -q -O "$2" "$1"
	else
		fail "neither curl nor wget was found: install one of them"
	fi
}

# sum_of FILE prints its SHA-256 in hex.
sum_of() {
	if has sha256sum; then
		sha256sum <"$1" | cut -d ' ' -f 1
	elif has shasum; then
		shasum -a 256 <"$1" | cut -d ' ' -f 1
	else
		openssl dgst -sha256 -r <"$1" | cut -d ' ' -f 1
	fi
}

clean() {
	if [ -n "${scratch:-}" ]; then rm -rf "$scratch"; fi
}

main() {
	version=${SANDBOX_AGENT_VERSION:-}
	dir=${SANDBOX_AGENT_INSTALL_DIR:-}
	base=${SANDBOX_AGENT_BASE_URL:-https://github.com/sandboxagent/sandbox-agent/releases}
	while [ $# -gt 0 ]; do
		case $1 in
		-h | --help)
			usage
			exit 0
			;;
		--version=* | --dir=* | --base-url=*)
			option=${1%%=*}
			value=${1#*=}
			shift
			;;
		--version | --dir | --base-url)
			option=$1
			if [ $# -lt 2 ]; then fail "$1 needs a value; --help shows how"; fi
			value=$2
			shift 2
			;;
		*) fail "$1 is not an option; --help shows those there are" ;;
		esac
		case $option in
		--version) version=$value ;;
		--dir) dir=$value ;;
		--base-url) base=$value ;;
		esac
	done
	version=${version#v}
	case $version in
	*[!0-9A-Za-z.-]*) fail "--version $version is not a version, such as 1.2.3" ;;
	esac
	if [ -z "$dir" ]; then
		if [ -z "${HOME:-}" ]; then fail "HOME is not set: say with --dir where the program is to be"; fi
		dir=$HOME/.local/bin
	fi
	case $dir in
	/*) ;;
	*) dir=$(pwd)/$dir ;;
	esac

	platform=$(target) || exit 1
	if ! has sha256sum && ! has shasum && ! has openssl; then
		fail "neither sha256sum nor shasum nor openssl was found: without one of them the download cannot be checked, so nothing is installed"
	fi
	if ! has curl && ! has wget; then
		fail "neither curl nor wget was found: install one of them"
	fi
	file=sandbox-agent-$platform
	from=${base%/}/latest/download
	if [ -n "$version" ]; then from=${base%/}/download/v$version; fi
	program=$dir/sandbox-agent

	if ! mkdir -p "$dir"; then
		fail "cannot make the folder $dir: choose another with --dir, or run this as a user who may"
	fi
	if [ -d "$program" ]; then fail "$program is a folder: choose another place with --dir"; fi
	umask 022
	trap clean EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	if ! scratch=$(mktemp -d "$dir/.sandbox-agent.XXXXXX"); then
		fail "cannot write to $dir: choose another folder with --dir, or run this as a user who may"
	fi

	say "downloading $from/$file"
	if ! fetch "$from/SHA256SUMS" "$scratch/SHA256SUMS"; then
		fail "cannot download $from/SHA256SUMS: check the network, the version${version:+ ($version)} and --base-url"
	fi
	want=$(awk -v file="$file" '$2 == file || $2 == "*" file { print $1 }' "$scratch/SHA256SUMS")
	case $want in
	'') fail "the release has no program for $platform: SHA256SUMS does not name $file" ;;
	*[!0-9a-f]*) fail "SHA256SUMS has no single checksum of $file: $want" ;;
	esac
	if [ ${#want} -ne 64 ]; then fail "SHA256SUMS has no SHA-256 of $file: $want"; fi
	if ! fetch "$from/$file" "$scratch/sandbox-agent"; then
		fail "cannot download $from/$file: nothing was installed; run this again"
	fi
	got=$(sum_of "$scratch/sandbox-agent")
	if [ "$got" != "$want" ]; then
		fail "the checksum of $file is wrong: it is ${got:-unknown} and should be $want. The download was damaged or changed; nothing was installed"
	fi
	chmod 755 "$scratch/sandbox-agent" || fail "cannot make the program executable"
	if ! says=$("$scratch/sandbox-agent" version); then
		fail "the program does not run on this machine; is $dir mounted noexec? Nothing was installed"
	fi
	if ! mv -f "$scratch/sandbox-agent" "$program"; then
		fail "cannot put the program at $program; nothing was installed"
	fi
	say "installed $program: $says"
	case :${PATH:-}: in
	*":$dir:"*) ;;
	*) say "$dir is not in PATH: add it, or call $program" ;;
	esac
}

{
	main "$@"
}
