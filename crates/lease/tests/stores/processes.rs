//! Processes that want the same lease, and are stopped and killed.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bridge_core::{Clock, Name, Permission, Permit as _, SystemClock};
use bridge_lease::{AcquireError, FileLease, Keeper, LeaseSettings, LeaseStore, Owner};
use bridge_testkit::wait_for;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::process::{Child, Command};

use super::contract::{Party, Place};

const PATIENCE: Duration = Duration::from_secs(30);
const FOLDER: &str = "BRIDGE_TEST_LEASE_FOLDER";
const NUMBER: &str = "BRIDGE_TEST_LEASE_NUMBER";
/// Of the record that is written all the time: each that does so waits for the end of the last one's.
const TTL: Duration = Duration::from_millis(600);
/// In place of a number: the process writes the record as often as it can.
const BUSY: &str = "busy";

fn settings() -> LeaseSettings {
    let [ttl, renew, grace] = [800, 200, 200].map(Duration::from_millis);
    LeaseSettings::new(ttl, renew, grace).unwrap()
}

/// One clock for all processes of the machine.
fn machine_time() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
    u64::try_from(time.as_micros()).unwrap()
}

/// Not a test of its own: what each of the processes below does, which is this program again. As
/// long as it is permitted, it writes down when, and with which token.
#[tokio::test]
async fn the_part_of_a_process() {
    let (Ok(folder), Ok(number)) = (std::env::var(FOLDER), std::env::var(NUMBER)) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    if number == BUSY {
        let party = party(&folder);
        party.acquire_in_time().await;
        // Likewise not for ever.
        for _ in 0..100_000 {
            party.acquire().await.unwrap();
        }
        return;
    }
    let store = FileLease::new(folder.join("lease"), Arc::clone(&clock));
    let keeper = Keeper::start(
        Arc::new(store),
        Name::parse("plant-7").unwrap(),
        Owner::new("copied").unwrap(),
        settings(),
        Arc::clone(&clock),
    );
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(format!("log-{number}")))
        .unwrap();
    // Until it is killed; and not for ever, should whoever would do that be gone.
    for _ in 0..120_000 {
        let at = machine_time();
        let now = clock.monotonic();
        if let Permission::Granted { token, .. } = keeper.now()
            && keeper.now().may_write(token, now)
        {
            log.write_all(format!("{at} {token}\n").as_bytes()).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A folder that several processes share.
struct Shared(PathBuf);

impl Place for Shared {
    fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn LeaseStore> {
        Arc::new(FileLease::new(self.0.join("lease"), clock))
    }
}

fn party(folder: &Path) -> Party {
    let mut party = Party::new(&Shared(folder.to_owned()), "plant-7");
    party.claim.ttl = TTL;
    party
}

struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(folder: &Path, number: impl Display) -> Self {
        let out = File::create(folder.join(format!("out-{number}"))).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::the_part_of_a_process", "--nocapture"])
            .env(FOLDER, folder)
            .env(NUMBER, number.to_string())
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            child,
            log: folder.join(format!("log-{number}")),
        }
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }

    /// What it has written: instants and tokens.
    fn written(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // The last line of a process that was killed may be half of one.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| {
                let (at, token) = line.split_once(' ').unwrap();
                (at.parse().unwrap(), token.parse().unwrap())
            })
            .collect()
    }

    fn wrote_since(&self, instant: u64) -> Option<u64> {
        self.written()
            .iter()
            .map(|(at, _)| *at)
            .find(|at| *at > instant)
    }
}

/// Who is writing.
async fn writer(processes: &[Process], but: Option<usize>) -> (usize, u64) {
    let since = machine_time();
    wait_for("a process writes", PATIENCE, async || {
        processes
            .iter()
            .enumerate()
            .filter(|(number, _)| Some(*number) != but)
            .find_map(|(number, process)| Some((number, process.wrote_since(since)?)))
    })
    .await
}

/// Sorted by time, all that was written is sorted by token: no earlier holder ever wrote after a
/// later one had begun.
fn check(processes: &[Process]) -> usize {
    let mut all: Vec<_> = processes.iter().flat_map(Process::written).collect();
    all.sort_unstable();
    for pair in all.windows(2) {
        assert!(pair[0].1 <= pair[1].1, "two at once: {pair:?}");
    }
    let mut tokens: Vec<_> = all.iter().map(|(_, token)| *token).collect();
    tokens.dedup();
    tokens.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_process_that_is_stopped_past_its_lease_and_goes_on_writes_nothing_with_it() {
    const ROUNDS: usize = 6;
    let folder = tempfile::tempdir().unwrap();
    let processes: Vec<_> = (0..3)
        .map(|number| Process::start(folder.path(), number))
        .collect();
    for _ in 0..ROUNDS {
        let (active, _) = writer(&processes, None).await;
        let stopped = machine_time();
        processes[active].signal(Signal::STOP);
        let (_, at) = writer(&processes, Some(active)).await;
        let took = Duration::from_micros(at - stopped);
        assert!(
            took < settings().lease_ttl() + Duration::from_secs(5),
            "{took:?}"
        );
        processes[active].signal(Signal::CONT);
    }
    assert!(check(&processes) > ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_when_the_active_process_is_killed_another_is_active_within_the_ttl_and_5_s() {
    const ROUNDS: usize = 5;
    let folder = tempfile::tempdir().unwrap();
    let mut processes: Vec<_> = (0..2)
        .map(|number| Process::start(folder.path(), number))
        .collect();
    for round in 0..ROUNDS {
        let (active, _) = writer(&processes, None).await;
        let killed = machine_time();
        processes[active].signal(Signal::KILL);
        processes[active].child.wait().await.unwrap();
        let (_, at) = writer(&processes, Some(active)).await;
        let took = Duration::from_micros(at - killed);
        println!("round {round}: another is active after {took:?}");
        assert!(
            took < settings().lease_ttl() + Duration::from_secs(5),
            "{took:?}"
        );
        // It writes on in the same log.
        processes[active] = Process::start(folder.path(), active);
    }
    assert!(check(&processes) > ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i18_a_process_that_is_killed_at_any_moment_leaves_a_whole_record_and_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("lease");
    for round in 0..10_u32 {
        let before = fs::read(&record).unwrap_or_default();
        let mut process = Process::start(folder.path(), BUSY);
        wait_for("it writes", PATIENCE, async || {
            (fs::read(&record).unwrap_or_default() != before).then_some(())
        })
        .await;
        tokio::time::sleep(Duration::from_micros(u64::from(round) * 730)).await;
        process.signal(Signal::KILL);
        process.child.wait().await.unwrap();
        match party(folder.path()).acquire().await {
            Err(AcquireError::Held(_)) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    party(folder.path()).acquire_in_time().await;
    let names = fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    let left = names
        .iter()
        .filter(|name| name.to_string_lossy().ends_with(".new"));
    assert_eq!(left.count(), 0, "{names:?}");
}
