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
        let (own, reaped) = cpu_of(pid)?;
        let io = read(pid, "io")?;
        let status = read(pid, "status")?;
        Ok(Self {
            cpu: own + reaped,
            disk_bytes: field(&io, "write_bytes:").context("no write_bytes")?,
            peak_memory: 1024 * field(&status, "VmHWM:").context("no VmHWM")?,
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

/// How the CPUs of the machine have spent their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    /// All of it, idle time too.
    all: Duration,
    /// On work.
    busy: Duration,
    /// On the work of the processes that were named.
    ours: Duration,
}

impl Machine {
    /// Up to now; `ours` are the processes that belong to the measurement.
    pub(super) fn now(ours: &[u32]) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let (all, busy) = machine(&stat).context("cannot make sense of /proc/stat")?;
        // Without reaped children: a process that ends later than its run was measured would
        // count as ours in the next.
        let ours = ours.iter().map(|&pid| Ok(cpu_of(pid)?.0));
        Ok(Self {
            all,
            busy,
            ours: ours.sum::<Result<_>>()?,
        })
    }

    /// The share of the CPUs in percent that others take while we wait for so long.
    pub(super) async fn elsewhere_within(time: Duration) -> Result<f64> {
        let ours = [std::process::id()];
        let before = Self::now(&ours)?;
        tokio::time::sleep(time).await;
        Ok(Self::now(&ours)?.elsewhere_since(&before))
    }

    /// The share of the CPUs in percent that others have taken since `before`.
    pub(super) fn elsewhere_since(&self, before: &Self) -> f64 {
        let since = |of: fn(&Self) -> Duration| of(self).saturating_sub(of(before));
        let others = since(|m| m.busy).saturating_sub(since(|m| m.ours));
        let all = since(|m| m.all).max(Duration::from_millis(1));
        100.0 * others.as_secs_f64() / all.as_secs_f64()
    }
}

/// All of the CPUs' time and what of it was not idle, by the first line of /proc/stat. What a
/// hypervisor took counts as busy.
fn machine(stat: &str) -> Option<(Duration, Duration)> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?;
    let times = times.split_whitespace().map(|time| time.parse().ok());
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is a part of user.
    let times: Vec<u64> = times.take(8).collect::<Option<_>>()?;
    let [user, nice, system, idle, waiting, irq, softirq, steal] = times.try_into().ok()?;
    let busy = user + nice + system + irq + softirq + steal;
    Some((ticks(busy + idle + waiting)?, ticks(busy)?))
}

/// The CPU time of a process itself, and of its children that it has reaped.
fn cpu_of(pid: u32) -> Result<(Duration, Duration)> {
    cpu(&read(pid, "stat")?).context("cannot make sense of /proc/<pid>/stat")
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
}

/// utime + stime, and cutime + cstime.
fn cpu(stat: &str) -> Option<(Duration, Duration)> {
    // The second field is the program's name in parentheses, and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(4);
    let times: Vec<u64> = times.map(|time| time.parse().ok()).collect::<Option<_>>()?;
    let [user, system, reaped_user, reaped_system] = times.try_into().ok()?;
    Some((ticks(user + system)?, ticks(reaped_user + reaped_system)?))
}

/// The kernel counts time in ticks.
fn ticks(count: u64) -> Option<Duration> {
    let per_second = rustix::param::clock_ticks_per_second();
    let millis = count.checked_mul(1_000)?.checked_div(per_second)?;
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
    fn time_is_user_and_kernel_of_the_process_and_apart_that_of_its_reaped_children() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 1 0 99 1 2";
        assert_eq!(cpu(stat), ticks(120).zip(ticks(7)));
        assert_eq!(cpu("7 (a) S 1 2"), None);
        assert_eq!(cpu(""), None);
    }

    #[test]
    fn the_machine_is_busy_with_all_but_idling_and_waiting_for_disks() {
        let stat = "cpu  1 2 4 800 160 8 16 32 5 5\ncpu0 1 2 4 800 160 8 16 32 5 5\n";
        assert_eq!(machine(stat), ticks(1_023).zip(ticks(63)));
        assert_eq!(machine("cpu  1 2 3"), None);
        assert_eq!(machine(""), None);
    }

    #[test]
    fn what_is_not_ours_is_elsewhere() {
        let at = |all, busy, ours| Machine {
            all: Duration::from_secs(all),
            busy: Duration::from_secs(busy),
            ours: Duration::from_secs(ours),
        };
        let share = at(1_040, 530, 105).elsewhere_since(&at(1_000, 500, 100));
        assert!((share - 62.5).abs() < 1e-9, "{share}");
        // The counters are not read at one instant.
        let share = at(1_040, 504, 105).elsewhere_since(&at(1_000, 500, 100));
        assert!(share.abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "rchar: 1\ncancelled_write_bytes: 5\nwrite_bytes: 4096\nVmHWM:\t   12 kB\n";
        assert_eq!(field(text, "write_bytes:"), Some(4_096));
        assert_eq!(field(text, "VmHWM:"), Some(12));
        assert_eq!(field(text, "nothing:"), None);
    }

    #[test]
    fn a_child_that_is_reaped_late_does_not_make_others_look_idle() {
        let mut burner = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .spawn()
            .unwrap();
        burner.wait().unwrap();
        let ours = Machine::now(&[std::process::id()]).unwrap().ours;
        let (own, reaped) = cpu_of(std::process::id()).unwrap();
        assert!(reaped > Duration::ZERO);
        assert!(ours <= own, "{ours:?} of {own:?}, {reaped:?} reaped");
    }

    #[test]
    fn this_process_has_used_memory() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_memory > 0);
    }
}
