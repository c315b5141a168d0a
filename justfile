# Shortcuts for people who have `just`; every recipe is a command that works without it.

# The tests that the README names.
test:
    cargo test

# Everything that CI runs.
ci:
    .ci/run

# The main job: sockets opened and closed, old ways and new, on 1 and 2 threads.
bench *ARGS:
    cargo run --release -- bench {{ARGS}}

# The suite without restartable sequences.
fallback:
    QUIETLINE_PERCPU=fallback cargo test -p quietline-platform -p quietline-sync -p quietline-slab -p quietline-vfs -p quietline-net -p quietline

# Model checks.
loom:
    .ci/loom

# Stress tests under ThreadSanitizer (nightly).
tsan:
    .ci/tsan

# The other architecture, under emulation.
aarch64:
    .ci/aarch64

# The C library, installed.
install-c PREFIX:
    fronts/capi/install.sh {{PREFIX}}

# The documentation.
doc:
    cargo doc --workspace --no-deps --open
