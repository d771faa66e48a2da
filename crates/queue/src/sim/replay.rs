//! What was done to a disk, done again operation by operation, with a power cut behind each.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{Inode, Naming, Random, Sim, SimDisk, Write, apply, write};

/// One operation that changed something, as it was recorded.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Name(Naming),
    SyncFolder(PathBuf),
    Write(usize, usize, Vec<u8>),
    Cut(usize, usize),
    Sync(usize),
}

/// What a power cut leaves of what was not made durable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Nothing,
    Everything,
    /// Each page there, not there, or torn.
    Torn(u64),
}

/// A disk on which recorded operations are done again.
#[derive(Debug, Default)]
pub(crate) struct Replay(Sim);

impl Replay {
    /// Does one more operation.
    pub(crate) fn perform(&mut self, op: &Op) {
        let sim = &mut self.0;
        match op {
            Op::Name(naming) => {
                if let Naming::Create(_, inode) = naming {
                    assert_eq!(*inode, sim.inodes.len());
                    sim.inodes.push(Inode::default());
                }
                sim.name(naming.clone());
            }
            Op::SyncFolder(folder) => sim.sync_names(folder),
            Op::Write(inode, at, bytes) => {
                let inode = &mut sim.inodes[*inode];
                write(&mut inode.seen, *at, bytes);
                inode.unsafe_writes.push(Write::Bytes(*at, bytes.clone()));
            }
            Op::Cut(inode, len) => {
                let inode = &mut sim.inodes[*inode];
                inode.seen.resize(*len, 0);
                inode.unsafe_writes.push(Write::Cut(*len));
            }
            Op::Sync(inode) => sim.inodes[*inode].sync(),
        }
    }

    /// The disk as it is found when the power goes now and comes back.
    pub(crate) fn after(&self, cut: Cut) -> SimDisk {
        let sim = &self.0;
        let mut random = Random::new(match cut {
            Cut::Torn(seed) => seed,
            _ => 0,
        });
        let kept = match cut {
            Cut::Nothing => 0,
            Cut::Everything => sim.unsafe_namings.len(),
            Cut::Torn(_) => random.below(sim.unsafe_namings.len() as u64 + 1) as usize,
        };
        let mut names = sim.safe_names.clone();
        for naming in &sim.unsafe_namings[..kept] {
            apply(&mut names, naming);
        }
        let mut after = Sim::default();
        for (path, inode) in names {
            let inode = &sim.inodes[inode];
            let bytes = match cut {
                Cut::Nothing => inode.safe.clone(),
                Cut::Everything => inode.seen.clone(),
                Cut::Torn(_) => inode.image(&mut random),
            };
            after.add(path, bytes);
        }
        SimDisk(Arc::new(Mutex::new(after)))
    }
}

impl SimDisk {
    /// Records what is done from now on; the disk is empty.
    pub(crate) fn record(&self) {
        self.sim().recorded = Some(Vec::new());
    }

    /// How much was recorded.
    pub(crate) fn recorded(&self) -> usize {
        self.sim().recorded.as_ref().map_or(0, Vec::len)
    }

    /// What was recorded.
    pub(crate) fn recording(&self) -> Vec<Op> {
        self.sim().recorded.take().unwrap_or_default()
    }
}
