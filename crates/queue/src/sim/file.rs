//! One file of the disk.

use std::io;

use super::{Op, Random, SimFile, Write, off, write};
use crate::disk::DiskFile;

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.sim().inodes[self.inode].seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let sim = self.disk.sim();
        if sim.is_off() {
            return Err(off());
        }
        if sim.unreadable.as_ref() == Some(&self.path) {
            return Err(io::Error::other("a bad sector"));
        }
        let seen = &sim.inodes[self.inode].seen;
        let from = offset as usize;
        let bytes = seen
            .get(from..from + buffer.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut sim = self.disk.sim();
        let was_off = sim.is_off();
        let powered = sim.operate();
        if was_off {
            return powered;
        }
        let at = offset as usize;
        let end = sim.inodes[self.inode].seen.len();
        assert!(at <= end, "a hole between {end} and {at}");
        let grows = (at + bytes.len()).saturating_sub(sim.inodes[self.inode].seen.len()) as u64;
        let short = grows.saturating_sub(sim.room()) as usize;
        // A write on which the power goes may have got anywhere.
        let written = &bytes[..bytes.len() - short];
        sim.note(|| Op::Write(self.inode, at, written.to_vec()));
        let inode = &mut sim.inodes[self.inode];
        write(&mut inode.seen, at, written);
        inode.unsafe_writes.push(Write::Bytes(at, written.to_vec()));
        powered?;
        if short > 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        let mut sim = self.disk.sim();
        sim.operate()?;
        if sim.failing_cuts > 0 {
            sim.failing_cuts -= 1;
            return Err(io::Error::other("no cut"));
        }
        sim.note(|| Op::Cut(self.inode, len as usize));
        let inode = &mut sim.inodes[self.inode];
        inode.seen.resize(len as usize, 0);
        inode.unsafe_writes.push(Write::Cut(len as usize));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut sim = self.disk.passed();
        sim.operate()?;
        if sim.failing_syncs > 0 {
            sim.failing_syncs -= 1;
            sim.random += 1;
            let mut random = Random::new(sim.random);
            let inode = &mut sim.inodes[self.inode];
            // The pages are marked clean: a later sync says well and does nothing for them.
            inode.safe = inode.image(&mut random);
            inode.unsafe_writes.clear();
            return Err(io::Error::other("a failing disk"));
        }
        sim.note(|| Op::Sync(self.inode));
        sim.inodes[self.inode].sync();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.write_at(&vec![0; len as usize], 0)
    }
}
