# The project's whole vocabulary. `make help` lists it; tools/setup.sh gets what a target needs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What every clone of this repository shares: Envoy, and what the tools depend on.
export TIDEGATE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidegate
# Said aloud, so that cargo's own configuration cannot move what we look for.
export CARGO_TARGET_DIR ?= $(CURDIR)/target

ENVOY_VERSION := 1.40.0
CACHED_ENVOY := $(TIDEGATE_CACHE)/envoy-$(ENVOY_VERSION)/envoy
# Another Envoy can be tried by setting this.
export TIDEGATE_ENVOY ?= $(CACHED_ENVOY)

WASM_TARGET := wasm32-unknown-unknown
WASM_BYTES_MAX := 520000
export TIDEGATE_WASM := $(CURDIR)/target/tidegate_filter.wasm
# The same with bugs that the simulation must find. Never shipped.
export TIDEGATE_PLANTED_WASM := $(CURDIR)/target/tidegate_filter_planted.wasm

# What tries a host, in the simulation and in Envoy.
export TIDEGATE_PROBE_WASM := $(CURDIR)/target/tidegate_probe.wasm

# The native program, as tests and demos run it.
export TIDEGATE_BIN := $(CARGO_TARGET_DIR)/debug/tidegate

SCHEMATHESIS_VERSION := 4.32.5
SCHEMATHESIS := $(TIDEGATE_CACHE)/schemathesis-$(SCHEMATHESIS_VERSION)/bin/schemathesis

STRIP_EXPORTS := target/tools/strip-exports
WASM_TEST_RUNNER := target/tools/wasm-test-runner
SETUP := tools/setup.sh

# For every day

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: wasm envoy ## Show Tidegate limit three clients in a real Envoy, then let you try (ONCE=1: stop after the table)
	@cargo build --locked --package tidegate-e2e --bin demo
	@exec cargo run --quiet --locked --package tidegate-e2e --bin demo -- $(if $(ONCE),--once)

.PHONY: demo-global
demo-global: wasm envoy tidegate ## Show one limit over two real Envoys, and a counter that dies and comes back (ONCE=1: stop after the tables)
	@cargo build --locked --package tidegate-e2e --bin demo_global
	@exec cargo run --quiet --locked --package tidegate-e2e --bin demo_global -- $(if $(ONCE),--once)

.PHONY: demo-counter
demo-counter: need-rust need-curl ## Show the counter with curl: takes, a denial, a group, metrics
	@cargo build --quiet --locked --package tidegate
	@cli/demo.sh "$(CARGO_TARGET_DIR)/debug/tidegate"

.PHONY: test
test: ## Run every check: lint, unit, openapi, wasm-test, sim, e2e
	@for part in lint unit openapi wasm-test sim e2e; do \
		printf '\n== %s\n' "$$part"; \
		$(MAKE) "$$part" || { printf '\ntest: failed in %s\n' "$$part" >&2; exit 1; }; \
	done
	@printf '\ntest: all passed\n'

.PHONY: wasm
wasm: need-wasm-target $(STRIP_EXPORTS) ## Build the filter that ships: target/tidegate_filter.wasm
	@$(NO_MACHINE_PATHS) cargo build --locked --package tidegate-filter --profile wasm --target $(WASM_TARGET)
	@$(STRIP_EXPORTS) "$(CARGO_TARGET_DIR)/$(WASM_TARGET)/wasm/tidegate_filter.wasm" "$(TIDEGATE_WASM)"
	@bytes=$$(wc -c < "$(TIDEGATE_WASM)"); \
	if [ "$$bytes" -gt $(WASM_BYTES_MAX) ]; then \
		echo "wasm: the filter has $$bytes bytes, more than the $(WASM_BYTES_MAX) that it may have" >&2; \
		exit 1; \
	fi; \
	echo "wasm: $$bytes bytes in target/tidegate_filter.wasm"

# Panic messages name source files. Without the folders of whoever built it, the same source gives the same module.
NO_MACHINE_PATHS = CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="\
	--remap-path-prefix=$(CURDIR)=tidegate \
	--remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src=crates"

# The parts of `make test`

# The test runner in tools/ is three lines over a library of 150 crates: clippy there is not worth their check.
.PHONY: lint
lint: need-wasm-target need-lint-tools ## Check formatting and clippy, natively and for wasm32
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	cargo clippy --locked --package tidegate-filter --package tidegate-probe --target $(WASM_TARGET) -- -D warnings
	cd tools && cargo fmt --check
	cd bench && cargo fmt --check
	$(IN_TOOLS) cargo clippy --release --locked --package strip-exports --all-targets -- -D warnings

.PHONY: unit
unit: need-rust need-redis need-curl ## Run the native tests that need no Envoy
	cargo test --locked --workspace --exclude tidegate-e2e --exclude tidegate-sim --all-features
	$(IN_TOOLS) cargo test --release --locked --package strip-exports

.PHONY: openapi
openapi: need-rust need-curl $(SCHEMATHESIS) ## Hold the counter to its OpenAPI document, with requests made from it by schemathesis
	@cargo build --locked --package tidegate
	@tools/openapi.sh "$(CARGO_TARGET_DIR)/debug/tidegate" "$(SCHEMATHESIS)"

.PHONY: wasm-test
wasm-test: need-wasm-target need-node $(WASM_TEST_RUNNER) ## Run the core's and the config's tests on wasm32, under Node
	CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER="$(CURDIR)/$(WASM_TEST_RUNNER)" \
		cargo test --locked --package tidegate-core --package tidegate-config --target $(WASM_TARGET)

.PHONY: e2e
e2e: wasm probe-wasm envoy need-redis tidegate ## Run the tests in a real Envoy (ARGS=name: only those)
	cargo test --locked --package tidegate-e2e $(if $(ARGS),-- $(ARGS))

.PHONY: sim
sim: wasm $(if $(SEED),,planted-wasm probe-wasm) ## Simulate the filter in many VMs under hostile schedules (SEED=n: replay one, with its last events)
ifdef SEED
	@cargo run --quiet --locked --package tidegate-sim -- seed $(SEED)
else
	cargo test --locked --package tidegate-sim $(if $(ARGS),-- $(ARGS))
endif

.PHONY: planted-wasm
planted-wasm: need-wasm-target $(STRIP_EXPORTS)
	@$(NO_MACHINE_PATHS) cargo build --locked --package tidegate-filter --profile wasm --target $(WASM_TARGET) \
		--features planted-bugs --target-dir "$(CARGO_TARGET_DIR)/planted"
	@mkdir -p "$(dir $(TIDEGATE_PLANTED_WASM))"
	@$(STRIP_EXPORTS) "$(CARGO_TARGET_DIR)/planted/$(WASM_TARGET)/wasm/tidegate_filter.wasm" \
		"$(TIDEGATE_PLANTED_WASM)" tidegate_plant

.PHONY: tidegate
tidegate: need-rust
	@cargo build --quiet --locked --package tidegate

.PHONY: probe-wasm
probe-wasm: need-wasm-target
	@$(NO_MACHINE_PATHS) cargo build --locked --package tidegate-probe --profile wasm --target $(WASM_TARGET)
	@mkdir -p "$(dir $(TIDEGATE_PROBE_WASM))"
	@cp "$(CARGO_TARGET_DIR)/$(WASM_TARGET)/wasm/tidegate_probe.wasm" "$(TIDEGATE_PROBE_WASM)"

# One package at a time: together they would have other features, and be compiled again.
IN_TOOLS = cd tools && CARGO_TARGET_DIR="$(TIDEGATE_CACHE)/tools-target"

# Now and then

.PHONY: soak
soak: ## Run the long tests: 600,000 hostile requests, and a flood of 5,000,000 keys in a real Envoy
	@TIDEGATE_SOAK=1 cargo test --locked --package tidegate-filter --test suite fuzz
	@TIDEGATE_SOAK=1 $(MAKE) e2e

.PHONY: accuracy
accuracy: need-rust ## Measure how often each algorithm misjudges a request (LOG=FILE: on that access log too)
	@$(if $(LOG),gzip --decompress --stdout --force "$(LOG)" |) \
		cargo run --quiet --locked --release --package tidegate-core --example accuracy $(if $(LOG),-)

.PHONY: plots
plots: need-rust ## Draw the plots of docs/algorithms.md anew, from our own core
	@cargo run --quiet --locked --package tidegate-core --example plots docs/plots

.PHONY: sim-soak
sim-soak: wasm ## Simulate new seeds for so long, and stop (MINUTES=10)
	@cargo run --quiet --locked --package tidegate-sim -- soak $(or $(MINUTES),10)

.PHONY: sim-hunt
sim-hunt: planted-wasm ## Say after how many seeds the simulation finds each planted bug
	@TIDEGATE_WASM="$(TIDEGATE_PLANTED_WASM)" cargo run --quiet --locked --package tidegate-sim -- hunt 200

.PHONY: sim-million
sim-million: wasm ## Simulate a million different keys in one run
	@cargo run --quiet --locked --release --package tidegate-sim -- keys 1000000

.PHONY: sim-log
sim-log: wasm ## Simulate a replay of an access log in the common format (LOG=FILE, gzip or plain; SPEED=10: ten times as fast)
	@[ -n "$(LOG)" ] || { echo 'sim-log: name the log: make sim-log LOG=FILE' >&2; exit 1; }
	@gzip --decompress --stdout --force "$(LOG)" | \
		cargo run --quiet --locked --package tidegate-sim -- log $(or $(SPEED),1)

.PHONY: sim-costs
sim-costs: wasm ## Write the table of what a request costs anew
	@cargo run --quiet --locked --package tidegate-sim -- costs tests/sim/costs.md

.PHONY: bench-sync
bench-sync: wasm envoy tidegate ## Measure by how much fleets that sync pass their limit; writes docs/global-sync.md
	@cargo run --quiet --locked --package tidegate-e2e --bin bench_sync -- docs/global-sync.md

.PHONY: bench-global
bench-global: wasm envoy need-redis ## Measure what each mode adds to a request's latency in a real Envoy; writes docs/global-bench.md
	@cargo build --quiet --locked --release --package tidegate
	@cd bench && CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/bench" TIDEGATE_BIN="$(CARGO_TARGET_DIR)/release/tidegate" \
		cargo run --quiet --locked --release --package bench-global -- ../docs/global-bench.md

.PHONY: bench-counter
bench-counter: need-rust need-redis ## Measure the counter on one core beside an echo handler and bare Redis; writes docs/counter-bench.md
	@cargo build --quiet --locked --release --package tidegate
	@cd bench && CARGO_TARGET_DIR="$(CARGO_TARGET_DIR)/bench" cargo run --quiet --locked --release --package bench-counter -- \
		"$(CARGO_TARGET_DIR)/release/tidegate" ../docs/counter-bench.md

.PHONY: fmt
fmt: need-lint-tools ## Format the code
	cargo fmt
	cd bench && cargo fmt
	cd tools && cargo fmt

.PHONY: schema
schema: need-rust ## Write the JSON Schema of the config language anew, from its types
	cargo run --quiet --locked --package tidegate-config --all-features --example schema

.PHONY: setup
setup: need-wasm-target need-lint-tools need-node need-redis need-curl envoy $(STRIP_EXPORTS) $(WASM_TEST_RUNNER) $(SCHEMATHESIS) ## Get all that the other targets need (they do so themselves)

.PHONY: clean
clean: ## Remove what was built here (the shared cache stays)
	rm -rf target

# What the targets need. A file that is there is not fetched again.

.PHONY: need-rust need-wasm-target need-lint-tools need-node need-redis need-curl
need-rust:
	@$(SETUP) rust
need-wasm-target: need-rust
	@$(SETUP) wasm-target
need-lint-tools: need-rust
	@$(SETUP) lint-tools
need-node:
	@$(SETUP) node
need-redis:
	@$(SETUP) redis
need-curl:
	@$(SETUP) curl

.PHONY: envoy
envoy: $(filter $(CACHED_ENVOY),$(TIDEGATE_ENVOY))

$(CACHED_ENVOY):
	@$(SETUP) envoy $(ENVOY_VERSION) "$@"

$(SCHEMATHESIS):
	@$(SETUP) schemathesis $(SCHEMATHESIS_VERSION) "$(dir $(patsubst %/,%,$(dir $@)))"

TOOLS_SOURCES := tools/Cargo.toml tools/Cargo.lock $(wildcard tools/*/Cargo.toml tools/*/src/*.rs)
$(STRIP_EXPORTS) $(WASM_TEST_RUNNER): $(TOOLS_SOURCES) | need-rust
	@$(SETUP) tool $(@F) "$@"
