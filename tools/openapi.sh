#!/usr/bin/env bash
# Holds the counter to its OpenAPI document: schemathesis makes requests from it, good and bad, and looks at each
# answer. `make openapi` calls it.
set -euo pipefail

tidegate=${1:?the tidegate binary}
schemathesis=${2:?the schemathesis program}

coproc SERVICE { exec "$tidegate" serve --listen 127.0.0.1:0 --log-level error; }
service=$SERVICE_PID
home=$(mktemp -d)
trap 'kill "$service" 2>/dev/null || true; rm -rf "$home"' EXIT
read -r _ _ address <&"${SERVICE[0]}" || { echo "openapi: tidegate serve did not start" >&2; exit 1; }
config=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/schemathesis.toml
cd "$home"
output=$("$schemathesis" --config-file "$config" run "http://$address/openapi.json" --seed 1 --max-examples 40 --no-color \
    --phases examples,coverage,fuzzing 2>&1) || {
    printf '%s\n' "$output" >&2
    exit 1
}
printf '%s\n' "$output" | tail -n 6
# A service that refused everything would have passed so far: the document's example at least is taken.
curl -sS "http://$address/metrics" | grep -E '^tidegate_takes_total\{outcome="taken"\} [1-9]' || {
    echo "openapi: no request was answered with a take" >&2
    exit 1
}
