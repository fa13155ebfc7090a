# Everything a checkout needs. `make help` lists the targets.

SHELL := /bin/bash
CARGO ?= cargo
DEVICE ?= auto
TORTURE ?=
FUZZ_SECONDS ?= 1800
ATTENTIONS ?= 500
NETWORKS ?= 300
GRAPHS ?= 1000
TAMPERS ?= 20000
GRAPHS_FROM ?= 1
MIXED ?= 500
MIXED_FROM ?= 1
LOOPS ?= 500
LOOPS_FROM ?= 1
PLANS ?= 20000
PLANS_FROM ?= 1
SEQUENCES ?= 1000000
SEQUENCES_FROM ?= 1
TESTS ?=
PREFIX ?= /usr/local
DESTDIR ?=
# What `make check-driver` runs: every family of engines, kinds of launches, CUDA graphs, faults.
DRIVER_TESTS := contexts:: cuda_graphs:: overlapped:: drivers:: background:: dynamic_rows:: \
	replay_launches:: attention::decode gemm::mixed gemm::shapes pointwise:: reduction:: norm:: \
	rnn_forward::networks \
	$(addprefix case_runs::,attentions convolutions norms products recurrent_networks resamplings) signal

.DEFAULT_GOAL := help
.PHONY: help setup demo test install test-vectors cases mutants spills test-remote test-driver \
	check-driver memcheck worst settings random-graphs mixed-graphs random-loops random-plans lint ci package readme \
	bench bench-c \
	bench-compile bench-gpu gpu-kit golden expect onnx-data onnx-attention-data rnn-data \
	sim-clients sim-runtime-clients numba-tests attention-data graph-data torture tampered-packs fuzz fuzz-sim \
	attention-campaign training-campaign c-sequences triton-kernels estimates-validate clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-20s %s\n", $$1, $$2}'

setup: ## Install what is missing (NVRTC, into third_party/); quick when nothing is
	@scripts/setup.sh

demo: setup ## Build and run the demo on a GPU if there is one, else on the simulator
	$(CARGO) run --release --quiet -- demo --device $(DEVICE)

test: setup ## Run all tests: unit, integration, simulator, documentation
	$(CARGO) test --workspace --features remote --quiet

install: setup ## Install libmcdnn, headers, pkg-config and CMake files (PREFIX=, DESTDIR=)
	$(CARGO) build --release -p kiln-capi
	$(CARGO) rustc --release -p kiln-capi --lib --crate-type staticlib
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" capi/packaging/install.sh target/release

test-vectors: setup ## Hold every engine for recurrent networks to every vector of the oracle
	KILN_TEST_ALL=1 $(CARGO) test --test it rnn_vectors

cases: setup ## Run every instance of the cases in tests/cases, of which `make test` takes samples
	KILN_TEST_ALL=1 $(CARGO) test --test it -- --nocapture case_runs notes

mutants: setup ## Plant every bug of tests/data/mutants.json under eight orders of warps, with what finds it
	KILN_TEST_ALL=1 $(CARGO) test --workspace --features remote --test it -- --nocapture mutants

spills: setup ## Compile the defaults of every engine for every target: none leaves a register to memory
	KILN_TEST_ALL=1 $(CARGO) test --test it spill

test-remote: setup ## Test the remote tier against Redis and nginx, which must be installed
	KILN_TEST_SERVERS=1 $(CARGO) test --features remote --test it remote

test-driver: setup ## Run the integration tests as on a GPU: its driver is the simulator
	$(CARGO) build -p kiln-sim-driver
	LD_PRELOAD=$(CURDIR)/target/debug/libkiln_sim_driver.so CUDA_FORCE_PTX_JIT=1 KILN_DEVICE=cuda:0 \
		$(CARGO) test --test it

check-driver: setup ## Run two minutes of test-driver with benches/gpu/check.py (needs Python)
	tests=$$(scripts/test-binary.sh --features remote) && \
		LD_PRELOAD=$(CURDIR)/target/debug/deps/libkiln_sim_driver.so CUDA_FORCE_PTX_JIT=1 \
		KILN_DEVICE=cuda:0 KILN_CASE=edges OUT=target/check-driver \
		benches/gpu/check.py --binary "$$tests" --timeout 600 $(DRIVER_TESTS)

lint: ## Check formatting, clippy (and with it rust-version), features, documentation, dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features remote --quiet -- -D warnings
	for features in "" sim cli remote; do \
		$(CARGO) clippy -p kiln --no-default-features --features "$$features" --quiet -- \
			-D warnings || exit 1; \
	done
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet
	@large=$$(git ls-files -z | xargs -0 stat -c '%s %n' | awk '$$1 > 1048576'); [ -z "$$large" ] || \
		{ printf 'lint: tracked files above 1 MiB:\n%s\n' "$$large"; exit 1; }
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --workspace check bans licenses sources; \
	else \
		echo "lint: cargo-deny is not installed: deny.toml is checked by tests/it/dependencies.rs"; \
	fi

package: setup ## Pack the four crates as published, build each from its package and run its tests
	scripts/package.sh

readme: setup ## Rewrite the transcripts in README.md, and docs/environment.md, where they changed
	KILN_README=rewrite $(CARGO) test --release --test it -- readme the_document_of_variables

worst: setup ## Run the tests of values with the largest known errors of approximate functions and tensor cores
	KILN_SIM_WORST=1 $(CARGO) test --workspace --features remote --test it -- \
	    attention gemm rnn reduction pointwise norm case torch onnx recurrence

settings: setup ## Run small graphs with every legal combination of knob values
	KILN_SETTINGS=all $(CARGO) test --release --test it -- --nocapture settings::every_setting \
		case_runs

random-graphs: setup ## Check GRAPHS (1000) random graphs against the reference, from seed GRAPHS_FROM on
	KILN_GRAPHS=$(GRAPHS) KILN_GRAPHS_FROM=$(GRAPHS_FROM) $(CARGO) test --release --test it -- \
		--nocapture random_graphs_give

mixed-graphs: setup ## Check MIXED (500) random graphs of new and old operations by every heuristic, from seed MIXED_FROM on
	KILN_MIXED=$(MIXED) KILN_MIXED_FROM=$(MIXED_FROM) $(CARGO) test --test it -- \
		--nocapture mixed_graphs_give

random-loops: setup ## Check LOOPS (500) random networks with loops against lazy sequences, from seed LOOPS_FROM on
	KILN_LOOPS=$(LOOPS) KILN_LOOPS_FROM=$(LOOPS_FROM) $(CARGO) test --test it -- \
		--nocapture random_loops_give

random-plans: setup ## Plan PLANS (20000) random graphs for every target class: nothing panics, from seed PLANS_FROM on
	KILN_PLANS=$(PLANS) KILN_PLANS_FROM=$(PLANS_FROM) $(CARGO) test --test it -- \
		--nocapture random_plans_never

c-sequences: setup ## Make SEQUENCES (1000000) random sequences of calls in C, from SEQUENCES_FROM on
	KILN_SEQUENCES=$(SEQUENCES) KILN_SEQUENCES_FROM=$(SEQUENCES_FROM) \
		$(CARGO) test --workspace --features remote --test capi -- --nocapture sequences

memcheck: setup ## Run the tests of the C interface under valgrind, which must be installed
	KILN_MEMCHECK=1 $(CARGO) test --release -p kiln-capi --test capi

ci: lint test check-driver demo ## What .ci/run runs

bench: setup ## Host-side benchmarks: dispatch, cache, render, compile, simulator
	$(CARGO) bench --bench host --bench pack
	$(CARGO) bench -p kiln-sim

bench-c: setup ## Host cost of calls in C, on a device that launches nothing
	$(CARGO) build --release -p kiln-capi
	$(CC) -std=c99 -O2 -I capi/include -I capi/tests/c capi/benches/host.c -L target/release -lmcdnn -lm \
		-Wl,-rpath,$(CURDIR)/target/release -o target/bench-c
	ln -sf libmcdnn.so target/release/libmcdnn.so.8
	KILN_DEVICE=null:sim target/bench-c

bench-compile: setup ## Time NVRTC on 135 variants of attention's kernels (goal: 500 ms each)
	$(CARGO) bench --bench attention

bench-gpu: ## Test on a GPU and compare with torch (see benches/gpu/README.md)
	benches/gpu/run.sh

gpu-kit: setup ## Build what a machine with a GPU and without Rust needs, into out/gpu
	benches/gpu/kit.sh

fuzz-sim: ## Fuzz the simulator for FUZZ_SECONDS (1800); needs nightly Rust and cargo-fuzz
	scripts/fuzz-sim.sh

triton-kernels: ## Run kernels that Triton compiles on the simulator, against numpy (installs Triton)
	scripts/triton-kernels.sh

estimates-validate: setup ## Compare estimates with published times (installs Triton 3.0)
	scripts/estimates.sh

sim-clients: ## Run programs of others on the simulated GPU: numba-cuda, cuda-python (needs the network)
	scripts/sim-clients.sh

sim-runtime-clients: ## Run what nvcc compiles, with our runtime library on the simulated GPU (needs the network)
	scripts/sim-runtime.sh

numba-tests: ## Run the tests of numba-cuda on the simulated GPU (TESTS=module, all; needs the network)
	scripts/sim-clients.sh tests $(TESTS)

golden: setup ## Rewrite the golden files and the C headers; review the difference as code
	INSTA_UPDATE=always INSTA_FORCE_PASS=1 $(CARGO) test --test it -- golden case_runs
	INSTA_UPDATE=always INSTA_FORCE_PASS=1 $(CARGO) test --workspace --features remote --test capi

expect: ## Compute anew what the simulator's instruction files must hold
	python3 sim/tests/ptx/expect

torture: ## Kill, damage and starve the cache, with figures (TORTURE='--seconds 60 --seed 7')
	$(CARGO) run --release --quiet --example torture -- $(TORTURE)

tampered-packs: setup ## Tamper TAMPERS (20000) times with a signed pack, cubins included
	KILN_TAMPERS=$(TAMPERS) $(CARGO) test --test it tampered -- --nocapture

fuzz: setup ## Fuzz the readers of entries and packs for FUZZ_SECONDS each (nightly, cargo-fuzz)
	$(CARGO) run --quiet --manifest-path fuzz/Cargo.toml --bin seed
	for target in entry pack; do \
		$(CARGO) +nightly fuzz run $$target -- -max_len=20000 -timeout=10 \
			-max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit 1; \
	done

onnx-data: ## Rebuild tests/data/onnx from the onnx wheel (development only)
	python3 tests/data/onnx/extract.py
	python3 tests/data/onnx/recurrent.py
	python3 tests/data/onnx/loops.py

onnx-attention-data: ## Rebuild tests/data/onnx/attentions_1_23 from a later onnx wheel (development only)
	python3 tests/data/onnx/attentions_later.py

rnn-data: ## Rebuild tests/data/rnn from its oracle and torch (development only)
	python3 tests/data/rnn/vectors.py
	python3 tests/data/rnn/torch_cases.py

attention-data: ## Rebuild tests/data/attention from torch (development only)
	python3 tests/data/attention/torch_cases.py
	python3 tests/data/attention/torch_masks.py

graph-data: ## Rebuild tests/data/graphs from torch (development only)
	python3 tests/data/graphs/torch_cases.py
	python3 tests/data/graphs/torch_ctc.py

training-campaign: setup ## Check the passes of NETWORKS (300) random networks, on every engine in both dialects
	KILN_NETWORKS=$(NETWORKS) KILN_TEST_ALL=1 $(CARGO) test --test it passes_of_random -- --nocapture

attention-campaign: setup ## Check ATTENTIONS (500) random combinations of attention's features
	KILN_ATTENTIONS=$(ATTENTIONS) $(CARGO) test --test it attention::random -- --nocapture

clean: ## Remove build products and what setup installed
	$(CARGO) clean
	rm -rf third_party
