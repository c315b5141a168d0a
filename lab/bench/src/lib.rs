//! Workloads, adapters and the harness that times them.
