#!/usr/bin/env bash
# Shows the counter with curl: starts `tidegate serve` on a free port, asks it, and stops it. `make demo-counter` runs it.
set -euo pipefail

tidegate=${1:?the tidegate binary}

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
shown() {
    printf '$ %s\n' "$*"
    "$@"
}

coproc SERVICE { exec "$tidegate" serve --listen 127.0.0.1:0 2>/dev/null; }
service=$SERVICE_PID
trap 'kill "$service" 2>/dev/null || true' EXIT
read -r _ _ address <&"${SERVICE[0]}" || { echo "demo: tidegate serve did not start; try it by hand" >&2; exit 1; }
url=http://$address
echo "tidegate serve is listening on $address, with its counters in memory."

take() {
    printf "$ curl -sS %s/v1/take -H 'content-type: application/json' -d '%s'\n" "$url" "$1"
    curl -sS "$url/v1/take" -H 'content-type: application/json' -d "$1"
    echo
}

say "A take: one of 2 per minute for ana"
take '{"groups": [{"takes": [{"rule": "login", "limit": "2/1m", "key": "ana"}]}]}'
say "Two more: the second is over the limit, and retry_after_ms says how long to wait"
take '{"groups": [{"takes": [{"rule": "login", "limit": "2/1m", "key": "ana"}]}, {"takes": [{"rule": "login", "limit": "2/1m", "key": "ana"}]}]}'
say "A group is all or none: ana's limit denies, so the whole site's is not charged either"
take '{"groups": [{"takes": [{"rule": "login", "limit": "2/1m", "key": "ana"}, {"rule": "site", "limit": "1000/1m", "key": ""}]}]}'
say "A mistake is named with its place"
take '{"groups": [{"takes": [{"rule": "login", "limit": "2 per minute", "key": "ana"}]}]}'
say "Metrics"
shown curl -sS "$url/metrics" | grep -E '^(\$|tidegate_takes)'
say "Health, and whether the store is there"
shown curl -sS "$url/readyz"
