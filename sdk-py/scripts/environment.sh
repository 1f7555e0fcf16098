#!/bin/sh
# Makes sdk-py/.venv, in which the package's tests run: from the package index where
# one is reachable, else from the system's own packages, which it installs on
# Debian when it may.
set -eu
cd "$(dirname "$0")/.."
done=.venv/made-by-environment
if [ -f "$done" ] && [ "$done" -nt scripts/environment.sh ] && [ "$done" -nt pyproject.toml ]; then exit 0; fi

check='import sys, httpx, websockets, pytest, mypy; sys.exit(sys.version_info < (3, 11))'

new_enough() { "$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

for python in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
  if command -v "$python" >/dev/null && new_enough "$python"; then
    rm -rf .venv
    if "$python" -m pip download --quiet --disable-pip-version-check --retries 0 --timeout 10 --no-deps --dest .venv/try httpx >/dev/null 2>&1 &&
      "$python" -m venv --clear .venv 2>/dev/null &&
      .venv/bin/python -m pip install --quiet --disable-pip-version-check --retries 0 --timeout 10 'httpx>=0.23' 'websockets>=10.4' pytest mypy >/dev/null 2>&1; then
      touch "$done"
      exit 0
    fi
    break # it is the index that cannot be reached
  fi
done

system() {
  rm -rf .venv
  [ -x /usr/bin/python3 ] && new_enough /usr/bin/python3 && /usr/bin/python3 -m venv --without-pip --system-site-packages .venv 2>/dev/null && .venv/bin/python -c "$check" 2>/dev/null
}
packages="python3-venv python3-httpx python3-websockets python3-pytest mypy"
if ! system && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086 # words
  apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 ||
    { apt-get update -qq >/dev/null && apt-get install -y -qq --no-install-recommends $packages >/dev/null; }
  system || true
fi
if ! .venv/bin/python -c "$check" 2>/dev/null; then
  echo "the tests of sdk-py need Python 3.11 or newer with httpx, websockets, pytest and mypy: reach a package index, or install $packages" >&2
  exit 1
fi
touch "$done"
