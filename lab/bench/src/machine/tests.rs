use super::{CpuTimes, busy_ticks, cpu_list, cpu_model, load_average, own_ticks};
use std::time::Duration;

#[test]
fn cpu_lists_are_counted() {
    assert_eq!(cpu_list("0-1\n"), 2);
    assert_eq!(cpu_list("0-3,8,10-11"), 7);
    assert_eq!(cpu_list("0"), 1);
    assert_eq!(cpu_list(""), 0);
}

#[test]
fn the_processor_names_itself() {
    assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Some CPU: fast\n"), "Some CPU: fast");
    assert_eq!(cpu_model("processor: 0\nCPU part\t: 0xd40\n"), "0xd40");
    assert_eq!(cpu_model(""), "unknown");
}

#[test]
fn load_averages_are_read() {
    assert_eq!(load_average("0.52 1.00 2.25 1/300 77\n"), [0.52, 1.0, 2.25]);
}

#[test]
fn cpu_times_are_read() {
    let stat = "7 (a ) b) R 1 7 7 0 -1 4194304 90 0 0 0 100 20 3 4 20 0 1 0 77 0 0";
    assert_eq!(own_ticks(stat), Some(127));
    assert_eq!(own_ticks("7 (a) R 1"), Some(0));
    assert_eq!(busy_ticks("cpu  1 2 4 1000 1000 8 16 32 64 64\ncpu0 1 1 1 1\n"), Some(63));
    assert_eq!(busy_ticks("cpu  1 x 4\n"), None);
    assert_eq!(busy_ticks(""), None);
}

/// Work of this process is its own, and a part of all work.
#[test]
fn own_work_is_counted() {
    let worked = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(now).expect("not negative")
    };
    let (before, start) = (CpuTimes::now().expect("Linux tells its times"), worked());
    while worked() - start < Duration::from_millis(200) {
        std::hint::spin_loop();
    }
    let now = CpuTimes::now().expect("Linux tells its times");
    // Ticks are of 10 ms.
    let [own, all] = [now.own - before.own, now.all - before.all];
    assert!(own >= Duration::from_millis(180), "{own:?}");
    assert!(all + Duration::from_millis(40) >= own, "{all:?} {own:?}");
    assert!(before.others_since().expect("Linux tells its times") >= 0.0);
}
