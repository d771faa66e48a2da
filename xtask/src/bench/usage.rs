//! What a process has used, as the kernel counts it: proc(5).

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, interval};

/// How often a process is looked at while it comes to rest.
const PACE: Duration = Duration::from_millis(50);
/// So many looks in a row see no CPU used by a process at rest. Longer than settles may wait to
/// be written, which is a cost of the messages before.
const QUIET_LOOKS: u32 = 10;
/// How long a process may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a process has used since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    /// Time on a CPU, in user mode and in the kernel, of all threads and of reaped children.
    pub(super) cpu: Duration,
    /// Bytes that it caused to be written to a disk.
    pub(super) disk_bytes: u64,
    /// The most memory that it has held at a time, in bytes.
    pub(super) peak_memory: u64,
}

impl Usage {
    /// What process `pid` has used.
    pub(super) fn of(pid: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
        };
        let tick = rustix::param::clock_ticks_per_second();
        Ok(Self {
            cpu: cpu(&read("stat")?, tick).context("cannot make sense of /proc/<pid>/stat")?,
            disk_bytes: field(&read("io")?, "write_bytes:").context("no write_bytes")?,
            peak_memory: 1024 * field(&read("status")?, "VmHWM:").context("no VmHWM")?,
        })
    }

    /// Waits until `pid` uses no CPU, and says what it has used by then.
    pub(super) async fn at_rest(pid: u32) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        let mut pace = interval(PACE);
        let mut latest = Self::of(pid)?;
        let mut quiet = 0;
        while quiet < QUIET_LOOKS {
            pace.tick().await;
            let now = Self::of(pid)?;
            quiet = if now.cpu == latest.cpu { quiet + 1 } else { 0 };
            latest = now;
            if Instant::now() > end {
                bail!("the process did not come to rest within {PATIENCE:?}");
            }
        }
        Ok(latest)
    }
}

/// The sum of utime, stime, cutime and cstime, which are counted in ticks of 1/`per_second` s.
fn cpu(stat: &str, per_second: u64) -> Option<Duration> {
    // The second field is the program's name in parentheses, and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = 0;
    let mut times = fields.split_whitespace().skip(11);
    for _ in 0..4 {
        ticks += times.next()?.parse::<u64>().ok()?;
    }
    let millis = ticks.checked_mul(1_000)?.checked_div(per_second)?;
    Some(Duration::from_millis(millis))
}

/// The number behind a field's name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_user_and_kernel_of_the_process_and_its_reaped_children() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0 99 1 2";
        assert_eq!(cpu(stat, 100), Some(Duration::from_millis(1_270)));
        assert_eq!(cpu("7 (a) S 1 2", 100), None);
        assert_eq!(cpu("", 100), None);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "rchar: 1\ncancelled_write_bytes: 5\nwrite_bytes: 4096\nVmHWM:\t   12 kB\n";
        assert_eq!(field(text, "write_bytes:"), Some(4_096));
        assert_eq!(field(text, "VmHWM:"), Some(12));
        assert_eq!(field(text, "nothing:"), None);
    }

    #[test]
    fn this_process_has_used_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_memory > 0);
    }
}
