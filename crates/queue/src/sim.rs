//! A disk for tests that tears, fills and lies: what was not made durable may be there after a
//! power cut, or not, or in part.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Access, Disk, DiskFile};

mod file;
mod random;
mod replay;
pub(crate) use random::Random;
pub(crate) use replay::Op;
#[cfg(test)]
pub(crate) use replay::{Cut, Replay};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
enum Write {
    Bytes(usize, Vec<u8>),
    Cut(usize),
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What a process sees.
    seen: Vec<u8>,
    /// What a power cut leaves for sure.
    safe: Vec<u8>,
    /// What was done since the last sync.
    unsafe_writes: Vec<Write>,
}

#[derive(Debug, Clone)]
pub(crate) enum Naming {
    Create(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct Sim {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    unsafe_namings: Vec<Naming>,
    /// Operations that changed something, or tried to.
    operations: u64,
    power_off_at: Option<u64>,
    capacity: Option<u64>,
    failing_syncs: u32,
    failing_cuts: u32,
    failing_removes: u32,
    unreadable: Option<PathBuf>,
    /// What a file holds once it was opened.
    grown: Option<(PathBuf, Vec<u8>)>,
    /// What is done when a file is opened.
    meanwhile: Option<(PathBuf, Meanwhile)>,
    random: u64,
    /// What was done, when that is recorded.
    recorded: Option<Vec<Op>>,
    /// Syncs take their time.
    slow: bool,
    /// Syncs wait until they are let through, this many of them.
    gate: Option<u32>,
    waiting: u32,
}

/// Something that happens while someone else is at work.
struct Meanwhile(Box<dyn FnOnce() + Send>);

impl fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meanwhile")
    }
}

/// A disk in memory; clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimDisk(Arc<Mutex<Sim>>);

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: usize,
    path: PathBuf,
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, naming: &Naming) {
    match naming {
        Naming::Create(path, inode) => {
            names.insert(path.clone(), *inode);
        }
        Naming::Remove(path) => {
            names.remove(path);
        }
        Naming::Rename(from, to) => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}

fn write(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    if bytes.len() < at + new.len() {
        bytes.resize(at + new.len(), 0);
    }
    bytes[at..at + new.len()].copy_from_slice(new);
}

impl Inode {
    /// What may be on the disk now: each unsynced page there, not there, or torn.
    fn image(&self, random: &mut Random) -> Vec<u8> {
        if self.unsafe_writes.is_empty() {
            return self.safe.clone();
        }
        let mut image = self.safe.clone();
        for operation in &self.unsafe_writes {
            match operation {
                Write::Cut(len) => {
                    if random.one_in(2) {
                        image.resize(*len, 0);
                    }
                }
                Write::Bytes(at, bytes) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let to = bytes.len().min(((at + from) / PAGE + 1) * PAGE - at);
                        let page = &bytes[from..to];
                        match random.below(4) {
                            0 => {}
                            1 => {
                                let sectors = random.below((PAGE / SECTOR) as u64) as usize;
                                let part = page.len().min(sectors * SECTOR);
                                write(&mut image, at + from, &page[..part]);
                            }
                            _ => write(&mut image, at + from, page),
                        }
                        from = to;
                    }
                }
            }
        }
        image
    }

    fn sync(&mut self) {
        for operation in std::mem::take(&mut self.unsafe_writes) {
            match operation {
                Write::Cut(len) => self.safe.resize(len, 0),
                Write::Bytes(at, bytes) => write(&mut self.safe, at, &bytes),
            }
        }
    }
}

impl Sim {
    /// Counts an operation; from the fatal one on everything fails.
    fn operate(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.power_off_at {
            Some(at) if self.operations >= at => Err(off()),
            _ => Ok(()),
        }
    }

    fn is_off(&self) -> bool {
        self.power_off_at.is_some_and(|at| self.operations >= at)
    }

    fn room(&self) -> u64 {
        let used: usize = self
            .names
            .values()
            .map(|id| self.inodes[*id].seen.len())
            .sum();
        self.capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(used as u64))
    }

    fn note(&mut self, op: impl FnOnce() -> Op) {
        if let Some(recorded) = &mut self.recorded {
            recorded.push(op());
        }
    }

    fn name(&mut self, naming: Naming) {
        self.note(|| Op::Name(naming.clone()));
        apply(&mut self.names, &naming);
        self.unsafe_namings.push(naming);
    }

    fn sync_names(&mut self, folder: &Path) {
        let namings = std::mem::take(&mut self.unsafe_namings);
        let (here, elsewhere): (Vec<_>, Vec<_>) = namings.into_iter().partition(|naming| {
            let (Naming::Create(path, _) | Naming::Remove(path) | Naming::Rename(_, path)) = naming;
            path.parent() == Some(folder)
        });
        for naming in here {
            apply(&mut self.safe_names, &naming);
        }
        self.unsafe_namings = elsewhere;
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let found = self.names.get(path).copied();
        found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl SimDisk {
    fn sim(&self) -> MutexGuard<'_, Sim> {
        self.0.lock().unwrap()
    }

    /// Has syncs take so long that there is time to do something meanwhile.
    pub(crate) fn be_slow(&self) {
        self.sim().slow = true;
    }

    /// Has syncs wait until they are let through.
    pub(crate) fn close_gate(&self) {
        self.sim().gate = Some(0);
    }

    /// Lets one more sync through.
    pub(crate) fn let_one_through(&self) {
        if let Some(gate) = &mut self.sim().gate {
            *gate += 1;
        }
    }

    pub(crate) fn open_gate(&self) {
        self.sim().gate = None;
    }

    /// Waits until a sync waits at the gate.
    pub(crate) fn until_one_waits(&self) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.sim().waiting == 0 {
            assert!(std::time::Instant::now() < end, "no sync came to the gate");
            std::thread::yield_now();
        }
    }

    /// The disk, once a sync may go on.
    fn passed(&self) -> MutexGuard<'_, Sim> {
        let mut sim = self.sim();
        if sim.slow {
            drop(sim);
            let start = std::time::Instant::now();
            while start.elapsed() < std::time::Duration::from_micros(100) {
                std::thread::yield_now();
            }
            sim = self.sim();
        }
        sim.waiting += 1;
        loop {
            match &mut sim.gate {
                None => break,
                Some(0) => {}
                Some(passes) => {
                    *passes -= 1;
                    break;
                }
            }
            drop(sim);
            std::thread::yield_now();
            sim = self.sim();
        }
        sim.waiting -= 1;
        sim
    }

    pub(crate) fn operations(&self) -> u64 {
        self.sim().operations
    }

    /// The power goes when so many operations have been counted.
    pub(crate) fn power_off_at(&self, operation: u64) {
        self.sim().power_off_at = Some(operation);
    }

    /// The disk has so many bytes from now on.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.sim().capacity = bytes;
    }

    pub(crate) fn used(&self) -> u64 {
        u64::MAX - {
            let mut sim = self.sim();
            let capacity = sim.capacity.replace(u64::MAX);
            let room = sim.room();
            sim.capacity = capacity;
            room
        }
    }

    /// The next `count` syncs fail, and lose at random what they were to make durable.
    pub(crate) fn fail_syncs(&self, count: u32) {
        self.sim().failing_syncs = count;
    }

    pub(crate) fn fail_cuts(&self, count: u32) {
        self.sim().failing_cuts = count;
    }

    pub(crate) fn fail_removes(&self, count: u32) {
        self.sim().failing_removes = count;
    }

    /// Reading that file fails.
    pub(crate) fn make_unreadable(&self, path: Option<PathBuf>) {
        self.sim().unreadable = path;
    }

    /// Someone else appends to a file, right after it was opened next: it holds `bytes` then.
    pub(crate) fn grow_once_opened(&self, path: &Path, bytes: Vec<u8>) {
        self.sim().grown = Some((path.to_owned(), bytes));
    }

    /// Something happens when a file is to be opened next, just before it is.
    pub(crate) fn meanwhile(&self, path: &Path, what: impl FnOnce() + Send + 'static) {
        self.sim().meanwhile = Some((path.to_owned(), Meanwhile(Box::new(what))));
    }

    /// The disk as it is found after the power came back.
    pub(crate) fn after_power_cut(&self, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sim = self.sim();
        let mut names = sim.safe_names.clone();
        let kept = random.below(sim.unsafe_namings.len() as u64 + 1) as usize;
        for naming in &sim.unsafe_namings[..kept] {
            apply(&mut names, naming);
        }
        let mut after = Sim::default();
        for (path, inode) in names {
            let bytes = sim.inodes[inode].image(&mut random);
            after.add(path, bytes);
        }
        Self(Arc::new(Mutex::new(after)))
    }

    /// A disk of its own that holds what this one shows.
    pub(crate) fn copy(&self) -> Self {
        let sim = self.sim();
        let mut copy = Sim::default();
        for (path, inode) in &sim.names {
            copy.add(path.clone(), sim.inodes[*inode].seen.clone());
        }
        Self(Arc::new(Mutex::new(copy)))
    }

    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let sim = self.sim();
        let names = sim.names.iter();
        names
            .map(|(path, inode)| (path.clone(), sim.inodes[*inode].seen.clone()))
            .collect()
    }

    /// Puts a file there, durably, in place of what was.
    pub(crate) fn put(&self, path: &Path, bytes: Vec<u8>) {
        self.sim().add(path.to_owned(), bytes);
    }

    pub(crate) fn take(&self, path: &Path) {
        let mut sim = self.sim();
        sim.names.remove(path);
        sim.safe_names.remove(path);
    }
}

impl Sim {
    fn add(&mut self, path: PathBuf, bytes: Vec<u8>) {
        let inode = self.inodes.len();
        self.inodes.push(Inode {
            seen: bytes.clone(),
            safe: bytes,
            unsafe_writes: Vec::new(),
        });
        self.names.insert(path.clone(), inode);
        self.safe_names.insert(path, inode);
    }
}

impl Disk for SimDisk {
    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let sim = self.sim();
        let inside = sim
            .names
            .keys()
            .filter(|path| path.parent() == Some(folder));
        let name = |path: &PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Ok(inside.filter_map(name).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut sim = self.sim();
        sim.operate()?;
        if sim.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if sim.room() == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inode = sim.inodes.len();
        sim.inodes.push(Inode::default());
        sim.name(Naming::Create(path.to_owned(), inode));
        drop(sim);
        self.open(path, Access::Write)
    }

    fn open(&self, path: &Path, _: Access) -> io::Result<Arc<dyn DiskFile>> {
        let meanwhile = self.sim().meanwhile.take_if(|(other, _)| other == path);
        if let Some((_, Meanwhile(what))) = meanwhile {
            what();
        }
        let mut sim = self.sim();
        let inode = sim.find(path)?;
        if let Some((_, bytes)) = sim.grown.take_if(|(grown, _)| grown == path) {
            sim.add(path.to_owned(), bytes);
        }
        drop(sim);
        Ok(Arc::new(SimFile {
            disk: self.clone(),
            inode,
            path: path.to_owned(),
        }))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.operate()?;
        sim.find(path)?;
        if sim.failing_removes > 0 {
            sim.failing_removes -= 1;
            return Err(io::Error::other("no removal"));
        }
        sim.name(Naming::Remove(path.to_owned()));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.operate()?;
        sim.find(from)?;
        sim.name(Naming::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.operate()?;
        sim.note(|| Op::SyncFolder(folder.to_owned()));
        sim.sync_names(folder);
        Ok(())
    }
}
