//! How much memory a test takes.

use std::fs;

/// Memory of this process that is in use, in KiB. All tests of a binary share it.
pub fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}
