//! What a chunk asks of its back end.

/// Copies in a chunk.
pub(super) fn slots() -> usize {
    super::MAX
}

/// There is nothing to decide but that forks are watched.
pub(super) fn decide() {
    crate::fork::watch();
}
