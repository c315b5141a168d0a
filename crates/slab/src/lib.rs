//! Slab caches with per-CPU sheaves.
