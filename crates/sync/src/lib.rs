//! Per-CPU data, counters, ids, RCU, locks and reference counts.
