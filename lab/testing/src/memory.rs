/// Returns the bytes of anonymous memory that the process has in RAM.
///
/// The system counts the pages for this call. `/proc/self/statm` is cheaper and may lag behind by
/// pages of each CPU.
///
/// # Panics
///
/// Without `/proc`, or on a kernel before 4.14.
pub fn anonymous_memory() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps_rollup").expect("a summary of mappings");
    let line = maps.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("a line");
    let kib = line.trim().strip_suffix(" kB").expect("a number of kB");
    kib.parse::<usize>().expect("a number") << 10
}
