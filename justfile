# The project's tasks, one recipe each. Plain cargo works as well: see README.md.

# The tour: a guest boots, a C program runs in it, recorded and replayed
demo:
    cargo demo

# Every test, those that boot guests included
test:
    cargo test

# Test results for each rule of the reference
conformance:
    rm -rf target/conformance
    cargo test --no-fail-fast
    cargo run --package conformance -- --check

# Replay the golden traces in debug and release builds; each must be identical
golden:
    cargo test --package trace --test golden
    cargo test --release --package trace --test golden

# The docs as a site with search: target/book/html/index.html
book:
    .ci/book

# What CI runs
ci:
    .ci/run

# Formatting and lints
check:
    cargo fmt --check && cargo clippy --workspace --all-targets -- -D warnings

# Benchmarks on this machine, locally and in a guest, beside raw primitives
bench:
    cargo run --profile dist --package gpupv -- bench --vm

# Licences, advisories and sources of the dependencies (needs cargo-deny)
deny:
    cargo deny check

# Install what this machine lacks
doctor:
    cargo gpupv doctor --fix

# Hours of random tests: calls against the naive model, frames to a daemon, programs over a link.
# Then 200 kills of a recording daemon, 200 kills of a daemon with a journal, and every attack at full scale
soak:
    PROPTEST_CASES=100000 cargo test --release --package dxgkrnl --test model state_machine
    GPUPV_OBJECTS=1000000 cargo test --package dxgkrnl --test own_costs
    cargo test --package dxgkrnl --test model call_costs -- --ignored
    cargo run --release --package gpupv -- scenario explore --random --seeds 0..50000000
    GPUPV_FUZZ_FRAMES=100000000 cargo test --release --package e2e --test protocol random_frames
    GPUPV_KILLS=200 cargo test --release --package e2e --test recording every_answer_sent_before_a_kill
    GPUPV_KILLS=200 cargo test --release --package e2e --test restart processes_resume_after_each_kill
    GPUPV_KILLS=50 cargo test --release --package e2e --test restart_vm
    GPUPV_WITHOUT_RINGS=vm cargo test --release --package e2e --test backends one_verdict_without_rings
    cargo run --release --package attacks -- --full

# Fuzz a target by coverage: `just fuzz vsock 60`, `just fuzz vsock coverage`; without a target it lists them
fuzz TARGET='' WHAT='':
    tests/fuzz/run {{TARGET}} {{WHAT}}

# Unit tests that map no memory under Miri, which finds undefined behaviour (needs nightly with miri)
miri:
    PROPTEST_CASES=2 MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --target-dir target/miri --package fence_page --package frame_ring --package proto --lib
    MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test --target-dir target/miri --package umd --lib abi::memory

# Unit tests of crates with unsafe code under AddressSanitizer, and ThreadSanitizer (needs nightly with rust-src). Tests
# leak where they play a killed process. Every order of frame_ring's threads (loom) takes more than minutes there
sanitize:
    ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address cargo +nightly test --target {{arch()}}-unknown-linux-gnu --target-dir target/sanitize/address {{sanitized}} --lib -- --skip tests::orders
    RUSTFLAGS=-Zsanitizer=thread cargo +nightly test -Zbuild-std --target {{arch()}}-unknown-linux-gnu --target-dir target/sanitize/thread {{sanitized}} --lib -- --skip tests::orders

sanitized := '--package frame_ring --package fence_page --package nt_handle --package vsock-device --package guestd --package umd'

# The tarball and the Debian packages: target/package (needs debhelper)
dist:
    cargo dist

# Two packagings are the same bytes (needs debhelper)
reproducible:
    cargo test --package dist -- --include-ignored

# An ordinary Debian becomes a guest by installing the package (needs debhelper, mmdebstrap, genext2fs)
debian-guest:
    cargo test --package e2e --test debian_guest -- --ignored

# A Slurm of four nodes runs shards, one node is killed (root; needs slurmctld, slurmd, slurm-client, munge)
slurm:
    cargo test --package e2e --test slurm -- --ignored

# A container of the package runs scenarios and the daemon (root; needs debhelper, mmdebstrap, buildah)
container:
    cargo test --package e2e --test container -- --ignored

# axe-core's findings in the page of a trace, and screenshots of its states: target/review (needs npm)
review:
    npm install --silent --no-save --prefix target/axe axe-core@4.14.1
    cargo run --package timeline --example page_review -- target/axe/node_modules/axe-core/axe.min.js target/review

# The jobs of docs/CI.md and docs/CLUSTER.md against the schemas of GitHub, GitLab and Kubernetes (needs PyPI)
jobs:
    .ci/jobs
