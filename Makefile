# Thin on purpose: each target is one command, and the scripts in tests/scripts say the rest.

.PHONY: help setup build deb container book try try-bootz test test-unit soak campaign trace e2e lab bench gnmic

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 11

setup: ## install the Debian packages that a build needs (root), or name them
	tests/scripts/setup.sh build

build: setup ## the agent, optimised: target/release/holdfast
	cargo build --release -p holdfast

deb: build ## the Debian package of the optimised agent: target/debian/holdfast.deb
	tests/scripts/setup.sh deb
	tests/scripts/clients.sh cargo_deb
	packaging/deb.sh "$${CARGO_TARGET_DIR:-target}/release/holdfast" target/debian/holdfast.deb

container: build ## the container image holdfast:latest, with podman or docker
	packaging/container/build.sh "$${CARGO_TARGET_DIR:-target}/release/holdfast"

book: ## the user guide as a book with search: target/book/index.html
	tests/scripts/setup.sh book
	tests/scripts/clients.sh mdbook
	packaging/book/build.sh

try: ## configure a live Linux box: a private network namespace, the agent, and commands to paste
	tests/scripts/setup.sh try
	tests/scripts/try.sh

try-bootz: ## bootstrap a factory-new box from the public server emulator (needs Go)
	tests/scripts/setup.sh try
	tests/scripts/clients.sh bootz
	tests/scripts/try-bootz.sh

test: ## everything that must hold before a change lands
	tests/scripts/setup.sh test
	tests/scripts/test.sh

test-unit: ## the inner loop: formatting, a build with lints, unit and property tests, rules of the workspace
	tests/scripts/setup.sh build
	tests/scripts/test.sh fmt build unit

soak: ## fifteen thousand random schedules of each kind for the engine, where `make test` tries some hundred; each fuzz target for ten minutes
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/soak" \
		PROPTEST_CASES=15000 cargo test --release --package holdfast-scheduler --test chaos --test properties --locked
	BOLERO_RANDOM_TEST_TIME_MS=600000 cargo test --workspace --test fuzz --locked

campaign: ## a quarter of an hour of kills, failing disks, foreign changes, clock jumps and attackers (SEED=N repeats its choices), and fifty power cuts in the lab
	tests/scripts/setup.sh test
	cargo build --release --workspace --bins
	tests/scripts/private.sh "$${CARGO_TARGET_DIR:-target}/release/campaign" $${SEED:+--seed $$SEED}
	HOLDFAST_POWER_CAMPAIGN=1 tests/scripts/private.sh cargo test --release --workspace --test lab --locked -- power:: --nocapture

trace: ## which requirements are proven, which deviate, which are open
	cargo run --quiet -p holdfast-tests --bin trace

e2e: ## the real binary in network namespaces, with clients that nobody here wrote
	tests/scripts/setup.sh test
	tests/scripts/test.sh clients build e2e

lab: ## a shell on a box with four ports, on a kernel of its own
	tests/scripts/setup.sh lab
	tests/scripts/lab.sh

bench: ## each number beside its yardstick, measured in the same run; writes tests/bench/BENCHMARKS.md
	cargo build --release --workspace --bin holdfast --bin bench
	tests/scripts/private.sh "$${CARGO_TARGET_DIR:-target}/release/bench" --markdown tests/bench/BENCHMARKS.md

gnmic: ## the operator's gNMI client, from pinned sources (needs Go): target/clients/gnmic
	tests/scripts/clients.sh gnmic
