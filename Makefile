# Everything a person or a CI runs. `make` alone lists the targets.
#
# One build for all of it: the same profile, the same features, so that nothing is compiled twice. Cargo chooses the
# features of a dependency by what is selected, and development dependencies (proptest, criterion) widen some of
# them. `--examples` makes a build take them into account as a test run does; without it, going from `make demo` to
# `make test` and back would compile half of all dependencies each time.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Released cargo subcommands and the current nats-server live in .venv (tests/setup/requirements.txt); Debian puts
# its nats-server where ordinary users do not look.
export PATH := $(CURDIR)/.venv/bin:$(PATH):/usr/sbin

CARGO ?= cargo
BUILD := $(CARGO) build --workspace --bins --examples
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),$(CURDIR)/target)
export ANVILBASE_BIN ?= $(TARGET)/debug/anvilbase

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what tests and demo need: PostgreSQL and NATS binaries, npm and PyPI packages
	@tests/setup/system.sh
	@tests/setup/node.sh
	@tests/setup/python.sh

.PHONY: build
build:
	@$(BUILD)

.PHONY: demo
demo: setup build ## Stream real earthquakes to unmodified SDKs under row-level security, and check who got what
	@tests/demo/run

.PHONY: dev
dev: build ## Serve a private PostgreSQL (or DATABASE_URL) on this machine until Ctrl-C
	@exec $(ANVILBASE_BIN) dev

# nextest runs each test in a process of its own and ends what one leaves behind; where it cannot be had, cargo's own
# runner runs the same tests.
.PHONY: test
test: setup build ## Run all tests, on real PostgreSQL, real NATS and real client libraries
	@if cargo nextest --version >/dev/null 2>&1; then \
		$(CARGO) nextest run --workspace; \
	else \
		$(CARGO) test --workspace; \
	fi

# What touches a database, on the other PostgreSQL; the rest (wire, clients, command) does not depend on it.
TESTS_18 ?= package(realtime-listener) | package(realtime-authz) | package(realtime-gateway) \
	| (package(realtime-tests) & !binary(process) & !test(/^(bus|case_list|clients|cold|config_table|consumers|dev|layers|readme)::/))

.PHONY: test-18
test-18: setup build ## Run the tests that touch a database once more, on PostgreSQL 18
	@bin=$$(tests/setup/postgres-18.sh); \
		ANVILBASE_TEST_POSTGRES_BIN=$$bin ANVILBASE_TEST_POSTGRES_MAJOR=18 \
		$(CARGO) nextest run --workspace -E '$(TESTS_18)'

# What is random gets ten times its share of `make test`, on both servers. Each failure prints the seed to run it again.
TESTS_NIGHTLY ?= test(writes::) | test(/^oracle::/)

.PHONY: nightly
nightly: setup build ## Run the random tests ten times as long, on both versions of PostgreSQL
	@export ANVILBASE_TEST_WRITES_SESSIONS=400 ANVILBASE_ORACLE_SCALE=10; bin=$$(tests/setup/postgres-18.sh); \
		$(CARGO) nextest run --workspace --profile nightly -E '$(TESTS_NIGHTLY)'; \
		ANVILBASE_TEST_POSTGRES_BIN=$$bin ANVILBASE_TEST_POSTGRES_MAJOR=18 \
			$(CARGO) nextest run --workspace --profile nightly -E '$(TESTS_NIGHTLY)'

# Optimized, as it is deployed; LOAD_ARGS="latency --rates 1000" measures something else.
LOAD_ARGS ?= latency

.PHONY: load
load: setup ## Measure latency from COMMIT to socket beside a bare LISTEN client: JSON and a table
	@$(BUILD) --release
	@$(TARGET)/release/realtime-load $(LOAD_ARGS)

# An hour of random faults; SOAK_ARGS="--seconds 600 --seed 7" is another run.
SOAK_ARGS ?=

.PHONY: soak
soak: setup build ## Do random faults to a cluster for an hour, and account for every committed change
	@$(TARGET)/debug/realtime-soak $(SOAK_ARGS)

# cargo-deny and shellcheck come as binaries (seconds); `cargo install cargo-deny` is the way out where there is no
# such binary, and costs several minutes on two cores.
.PHONY: setup-lint
setup-lint:
	@tests/setup/system.sh shellcheck
	@tests/setup/python.sh
	@cargo deny --version >/dev/null 2>&1 || $(CARGO) install --quiet --locked cargo-deny

.PHONY: lint
lint: setup-lint ## Check formatting, clippy, dependency policy and shell scripts; any finding fails
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets -- -D warnings
	@$(CARGO) deny --log-level error check bans licenses sources
	@shellcheck -x .ci/run tests/setup/*.sh tests/clients/*.sh

.PHONY: fmt
fmt: ## Format the Rust code
	@$(CARGO) fmt --all

.PHONY: ci
ci: lint test test-18 demo ## What a change must pass: lint, test on both versions of PostgreSQL, demo

.PHONY: proto
proto: ## Write the generated code of proto/ anew (a test compares it)
	@$(CARGO) run --quiet -p realtime-proto --no-default-features --example generate

.PHONY: readme
readme: ## Write the README's configuration table anew (a test compares it)
	@$(CARGO) run --quiet -p realtime-tests --example config_table

.PHONY: bench
bench: ## Run the micro-benchmarks of the hot paths
	@$(CARGO) bench --workspace --benches
