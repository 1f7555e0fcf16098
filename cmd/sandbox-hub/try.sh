#!/bin/sh
# Starts a hub to try out, with all it keeps in bin/hub, and says how a gateway joins
# and with which token clients use it. It ends with Ctrl-C. Arguments are those of
# "sandbox-hub serve".
set -eu
umask 077
bin=$(pwd)/bin
mkdir -p "$bin/hub"
[ -s "$bin/hub/admin-token" ] || head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$bin/hub/admin-token"
: >"$bin/hub/log"
"$bin/sandbox-hub" serve --data-dir "$bin/hub/data" --admin-token-file "$bin/hub/admin-token" "$@" 2>>"$bin/hub/log" &
hub=$!
follower=
trap 'kill "$hub" $follower 2>/dev/null || true; wait "$hub" || true' EXIT
trap 'exit 130' INT TERM
until url=$(sed -n 's/.* listening on //p' "$bin/hub/log") && [ -n "$url" ]; do
  kill -0 "$hub" 2>/dev/null || { cat "$bin/hub/log" >&2; exit 1; }
  sleep 0.1
done
export SANDBOX_HUB_ENDPOINT="$url" SANDBOX_HUB_TOKEN_FILE="$bin/hub/admin-token"
[ -s "$bin/hub/join-token" ] || "$bin/sandbox-hub" token create --kind join --note "of task hub" >"$bin/hub/join-token"
[ -s "$bin/hub/client-token" ] || "$bin/sandbox-hub" token create --kind client --scope drive --note "of task hub" >"$bin/hub/client-token"
cat <<EOF
Hub:   $url
Join:  $bin/sandbox-agent server --port 0 --new-token --data-dir bin/node --join $url --join-token-file $bin/hub/join-token --node-name box
Token: $(cat "$bin/hub/client-token")
Try:   SANDBOX_AGENT_TOKEN=$(cat "$bin/hub/client-token") $bin/sandbox-agent prompt --endpoint $url/nodes/box --agent mock hello
Page:  $url/nodes/box/ui/#token=$(cat "$bin/hub/client-token")
EOF
tail -n +1 -f "$bin/hub/log" &
follower=$!
wait "$hub"
