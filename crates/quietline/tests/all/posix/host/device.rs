//! Device nodes that programs make and open name no driver of this machine.

use crate::posix::names::DEVICES;

/// That no driver has the majors that programs use.
pub(super) fn check() -> Result<(), String> {
    let drivers =
        std::fs::read_to_string("/proc/devices").map_err(|e| format!("/proc/devices: {e}"))?;
    for line in drivers.lines() {
        let major = line.split_whitespace().next().and_then(|word| word.parse::<u32>().ok());
        if major.is_some_and(|major| DEVICES.iter().any(|&(used, _)| used == major)) {
            return Err(format!("a driver has a device number that programs use: {line}"));
        }
    }
    Ok(())
}
