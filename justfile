# Everything the project does, one line each. Plain cargo works as well: see README.md.

# The tour: a guest boots, a C program runs in it, recorded and replayed
demo:
    cargo demo

# Every test, those that boot guests included
test:
    cargo test

# The rules of the reference, and how the tests that cover them ended
conformance:
    rm -rf target/conformance
    cargo test --no-fail-fast
    cargo run --package conformance -- --check

# Golden traces replay identical in this build and in the other one
golden:
    cargo test --package trace --test golden
    cargo test --release --package trace --test golden

# What CI runs
ci:
    .ci/run

# Formatting and lints
check:
    cargo fmt --check && cargo clippy --workspace --all-targets -- -D warnings

# Figures of this machine beside raw peers, locally and in a guest
bench:
    cargo run --release --package gpupv -- bench --vm

# Licences, advisories and sources of the dependencies (needs cargo-deny)
deny:
    cargo deny check

# What is missing on this machine, mended
doctor:
    cargo gpupv doctor --fix

# Hours of random calls against the naive model, of random frames at a daemon and of random programs
# over a link; 200 kills of a daemon that records, and 200 of one that goes on; every attack at full scale
soak:
    PROPTEST_CASES=100000 cargo test --release --package dxgkrnl --test model state_machine
    GPUPV_OBJECTS=1000000 cargo test --package dxgkrnl --test own_costs
    cargo run --release --package gpupv -- scenario explore --random --seeds 0..50000000
    GPUPV_FUZZ_FRAMES=100000000 cargo test --release --package e2e --test protocol random_frames
    GPUPV_KILLS=200 cargo test --release --package e2e --test recording nothing_that_a_guest
    GPUPV_KILLS=200 cargo test --release --package e2e --test restart guests_go_on
    GPUPV_KILLS=50 cargo test --release --package e2e --test restart_vm
    cargo run --release --package attacks -- --full
