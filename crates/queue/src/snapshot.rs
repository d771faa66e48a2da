//! Looking into a journal without opening it: nothing is locked, changed or repaired, so this works
//! beside a bridge that is at work and on a folder that cannot be written to.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bridge_core::{BindingKey, Seated, Seq, Timestamp, View};

use crate::OpenError;
use crate::disk::{Access, Disk, Layout, RealDisk};
use crate::fetch::{Address, FetchError, Fetcher, Info, info_in, message_in, received_in};
use crate::index::SlotId;
use crate::inspect::{
    BindingInfo, Inspection, QuarantineFile, SegmentInfo, Unreadable, Verification, ViewInfo,
};
use crate::lock::{Holder, holder};
use crate::recovery::{Scan, io_error, scan};
use crate::report::RecoveryReport;
use crate::run::{Location, Seat};
use crate::segment::VERSION;

/// How often reading begins again when a bridge at work unlinks or cuts a segment meanwhile.
const ATTEMPTS: usize = 20;
/// The views, in the order in which an entry goes through them.
const VIEWS: [View; 3] = [View::Queue, View::Deferred, View::DeadLetters];

/// A journal as it was at one moment.
pub struct Snapshot {
    layout: Layout,
    found: Scan,
    holder: Holder,
    quarantine: Vec<QuarantineFile>,
    fetcher: Fetcher,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("folder", &self.layout.root())
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Reads the journal in the data folder `folder`, all of its segments.
    pub fn of(folder: &Path) -> Result<Self, OpenError> {
        let layout = Layout::new(folder);
        let journal = layout.journal();
        // Without this, a folder that was mistaken for another one would be an empty journal.
        std::fs::read_dir(&journal).map_err(|source| io_error("look into", &journal, source))?;
        // Asked before the reading: a bridge that starts meanwhile finds what is read here.
        let holder = holder(&layout.lock());
        Self::on(Arc::new(RealDisk), folder, holder)
    }

    pub(crate) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        holder: Holder,
    ) -> Result<Self, OpenError> {
        let layout = Layout::new(folder);
        let mut attempt = 1;
        let found = loop {
            match scan(&*disk, &layout) {
                Err(OpenError::Io { source, .. })
                    if is_of_change(source.kind()) && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                found => break found?,
            }
        };
        Ok(Self {
            quarantine: quarantine(&*disk, &layout)?,
            fetcher: Fetcher::new(disk, layout.clone()),
            layout,
            found,
            holder,
        })
    }

    /// Whether a bridge was at work in the folder.
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Segments, views, and what is damaged.
    pub fn inspection(&self) -> Inspection {
        let index = &self.found.index;
        let segments = index.segments.iter().map(|segment| SegmentInfo {
            file: self.layout.segment(segment.first_seq),
            first_seq: segment.first_seq,
            // No older one has existed.
            version: VERSION,
            salted: true,
            bytes: segment.bytes,
            live_bytes: segment.live_bytes(),
        });
        let mut fetcher = self.fetcher.another();
        let mut bindings: Vec<BindingInfo> = index
            .keys()
            .map(|(slot, key)| {
                let [queue, deferred, dead_letters] = self.views(&mut fetcher, slot);
                BindingInfo {
                    binding: key.clone(),
                    queue,
                    deferred,
                    first_refusal: self.first_refusal(&mut fetcher, slot),
                    dead_letters,
                }
            })
            .filter(|info| {
                let views = [info.queue, info.deferred, info.dead_letters];
                views.iter().any(|view| view.quantity.entries > 0)
            })
            .collect();
        bindings.sort_by(|a, b| a.binding.cmp(&b.binding));
        Inspection {
            segments: segments.collect(),
            bindings,
            report: self.report(),
            quarantine: self.quarantine.clone(),
        }
    }

    /// What was read, and what is damaged: cheaper than all of [`Self::inspection`].
    pub fn report(&self) -> RecoveryReport {
        let damage = self.found.findings.iter();
        RecoveryReport {
            segments: self.found.index.segments.iter().len(),
            records: self.found.records,
            damage: damage.map(|finding| finding.damage.clone()).collect(),
        }
    }

    /// The bindings that the journal knows, by name, whether or not anything waits at them.
    pub fn bindings(&self) -> Vec<BindingKey> {
        let keys = self.found.index.keys();
        let mut keys: Vec<BindingKey> = keys.map(|(_, key)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// The entries of one view, in their order.
    pub fn entries(&self, binding: &BindingKey, view: View) -> Vec<Seq> {
        let index = &self.found.index;
        index.slot_of(binding).map_or_else(Vec::new, |slot| {
            let page = index.page(slot, view, 0, usize::MAX, u64::MAX);
            let seqs = page.into_iter().map(|(entry, _)| Seq::new(entry.seq));
            seqs.collect()
        })
    }

    /// One entry, read from the disk; `None` when the journal holds none of that number at the
    /// binding, or a bridge at work has moved it meanwhile.
    pub fn read(&mut self, binding: &BindingKey, seq: Seq) -> Option<Seated> {
        let slot = self.found.index.slot_of(binding)?;
        let (view, entry, info) = self.found.index.find(slot, seq.get())?;
        match self.fetch(slot, view, entry, info) {
            Ok(seated) => Some(seated),
            Err(FetchError::Gone) => None,
            Err(error) => Some(self.unreadable(error, entry)),
        }
    }

    /// Reads the entries of one view, in their order, and hands each to `visit`: `None` for one
    /// that a bridge at work has moved meanwhile. No more than one is in memory at a time.
    pub fn visit(
        &mut self,
        binding: &BindingKey,
        view: View,
        mut visit: impl FnMut(Seq, Option<Seated>),
    ) {
        let Some(slot) = self.found.index.slot_of(binding) else {
            return;
        };
        let page = self.found.index.page(slot, view, 0, usize::MAX, u64::MAX);
        for (number, (entry, info)) in page.iter().enumerate() {
            if let Some(address) = Address::of(&self.found.index, entry.location) {
                let rest = page.iter().skip(number + 1);
                self.fetcher
                    .read_ahead(address, rest.map(|(entry, _)| entry.location));
            }
            let seated = match self.fetch(slot, view, *entry, *info) {
                Ok(seated) => Some(seated),
                Err(FetchError::Gone) => None,
                Err(error) => Some(self.unreadable(error, *entry)),
            };
            visit(Seq::new(entry.seq), seated);
        }
    }

    /// Reads every entry of every view.
    pub fn verify(&mut self) -> Verification {
        let mut verification = Verification {
            inspection: self.inspection(),
            sound: 0,
            unreadable: Vec::new(),
            moved: 0,
        };
        for binding in self.bindings() {
            for view in VIEWS {
                self.visit(&binding, view, |seq, seated| {
                    match seated.map(|seated| seated.message) {
                        Some(Ok(_)) => verification.sound += 1,
                        None => verification.moved += 1,
                        Some(Err(error)) => verification.unreadable.push(Unreadable {
                            binding: binding.clone(),
                            view,
                            seq,
                            error,
                        }),
                    }
                });
            }
        }
        verification
    }

    fn views(&self, fetcher: &mut Fetcher, slot: SlotId) -> [ViewInfo; 3] {
        let index = &self.found.index;
        let [queue, deferred, dead] = index.quantities(slot);
        // What was redriven stands at the tail, and may be older than the head.
        let queued = index.queued(slot).map(|queued| queued.received).min();
        let mut held = |view, quantity| ViewInfo {
            quantity,
            oldest: self.oldest_held(fetcher, slot, view),
        };
        let (deferred, dead) = (
            held(View::Deferred, deferred),
            held(View::DeadLetters, dead),
        );
        let queue = ViewInfo {
            quantity: queue,
            oldest: queued,
        };
        [queue, deferred, dead]
    }

    /// When the oldest was received of the entries of a view of which memory holds no more than
    /// where they lie; those that cannot be read are left out.
    fn oldest_held(&self, fetcher: &mut Fetcher, slot: SlotId, view: View) -> Option<Timestamp> {
        let index = &self.found.index;
        let page = index.page(slot, view, 0, usize::MAX, u64::MAX);
        let received = page.iter().enumerate().filter_map(|(number, (entry, _))| {
            let address = Address::of(index, entry.location)?;
            let rest = page.iter().skip(number + 1);
            fetcher.read_ahead(address, rest.map(|(entry, _)| entry.location));
            fetcher.frame(address, received_in).ok()
        });
        received.min()
    }

    /// When the first of a binding's deferred messages was refused; those of which that cannot be
    /// read are left out.
    fn first_refusal(&self, fetcher: &mut Fetcher, slot: SlotId) -> Option<Timestamp> {
        let index = &self.found.index;
        let name = index.name(slot);
        let page = index.page(slot, View::Deferred, 0, usize::MAX, u64::MAX);
        let refused = page.iter().filter_map(|(_, info)| {
            let address = Address::of(index, (*info)?)?;
            match fetcher.frame(address, |frame| info_in(frame, &name)) {
                Ok(Info::Deferred(info)) => Some(info.first_refusal),
                Ok(Info::Dead(_)) | Err(_) => None,
            }
        });
        refused.min()
    }

    fn fetch(
        &mut self,
        slot: SlotId,
        view: View,
        entry: Seat,
        info: Option<Location>,
    ) -> Result<Seated, FetchError> {
        let index = &self.found.index;
        let address = |location| Address::of(index, location).ok_or(FetchError::Gone);
        let message = self.fetcher.frame(address(entry.location)?, message_in)?;
        let info = match info.filter(|_| view != View::Queue) {
            None => None,
            Some(info) => {
                let name = index.name(slot);
                let info = address(info)?;
                Some(self.fetcher.frame(info, |frame| info_in(frame, &name))?)
            }
        };
        let (deferred, dead_letter) = match info {
            None => (None, None),
            Some(Info::Deferred(info)) => (Some(info), None),
            Some(Info::Dead(info)) => (None, Some(info)),
        };
        Ok(Seated {
            seq: Seq::new(entry.seq),
            message: Ok(Arc::new(message)),
            deferred,
            dead_letter,
        })
    }

    fn unreadable(&self, error: FetchError, entry: Seat) -> Seated {
        let address = Address::of(&self.found.index, entry.location);
        Seated {
            seq: Seq::new(entry.seq),
            message: Err(error.into_store_error(&self.layout, entry.seq, address)),
            deferred: None,
            dead_letter: None,
        }
    }
}

/// Whether a file that was just there is gone or shorter.
const fn is_of_change(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

fn quarantine(disk: &dyn Disk, layout: &Layout) -> Result<Vec<QuarantineFile>, OpenError> {
    let folder = layout.quarantine();
    let mut names = disk
        .list(&folder)
        .map_err(|source| io_error("list", &folder, source))?;
    names.sort_unstable();
    let mut files = Vec::new();
    for name in names {
        let file = folder.join(name);
        let bytes = disk
            .open(&file, Access::Read)
            .and_then(|file| file.len())
            .map_err(|source| io_error("look at", &file, source))?;
        files.push(QuarantineFile { file, bytes });
    }
    Ok(files)
}
