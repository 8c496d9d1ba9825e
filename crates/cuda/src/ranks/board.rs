//! What the processes of a job tell each other while a run goes on: words in memory that all of them map. A look at one takes nanoseconds, where a message takes
//! tens of microseconds, so ranks start as close together as threads do.
//!
//! Each process writes words of its own only: the number of the last run that it is ready for, and of the last one that it is not going to finish.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use passmuster_bootstrap::{Bootstrap, BootstrapError};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// Bytes of a process's words.
const BYTES: usize = 4096;

/// Places of a process's words, each on a line of the processor's cache of its own.
const ARRIVED: usize = 0;
const STOPPED: usize = 128 / size_of::<AtomicU64>();

/// The words of all processes.
pub(crate) struct Board {
    rank: usize,
    pages: Vec<Page>,
}

impl Board {
    /// Meets the others, so that each has everybody's words.
    ///
    /// # Errors
    /// Of the exchange, and `SetUp` where there is no memory.
    pub(crate) fn open(bootstrap: &mut dyn Bootstrap) -> Result<Board, BootstrapError> {
        let rank = bootstrap.rank();
        let wrong = |of: usize, why: &dyn std::fmt::Display| BootstrapError::SetUp(format!("shared words of rank {of}: {why}"));
        let file = create().map_err(|error| wrong(rank, &error))?;
        let files = bootstrap.all_gather_descriptors("shared words", &[file])?;
        let map = |(of, files): (usize, Vec<OwnedFd>)| match &files[..] {
            [file] => Page::map(file).map_err(|error| wrong(of, &error)),
            files => Err(wrong(of, &format!("{} descriptors came: expected 1", files.len()))),
        };
        Ok(Board { rank, pages: files.into_iter().enumerate().map(map).collect::<Result<_, _>>()? })
    }

    /// This process is ready to begin a run. What it wrote before is visible to a process that learns of it.
    pub(crate) fn arrive(&self, run: u64) {
        self.pages[self.rank].word(ARRIVED).store(run, Ordering::Release);
    }

    /// Whether the first `world` ranks are ready to begin a run.
    pub(crate) fn have_arrived(&self, run: u64, world: usize) -> bool {
        self.pages.iter().take(world).all(|page| page.word(ARRIVED).load(Ordering::Acquire) >= run)
    }

    /// This process is not going to finish a run: the others need not wait for it.
    pub(crate) fn stop(&self, run: u64) {
        self.pages[self.rank].word(STOPPED).store(run, Ordering::Release);
    }

    /// Whether some process is not going to finish a run.
    pub(crate) fn has_stopped(&self, run: u64) -> bool {
        self.pages.iter().any(|page| page.word(STOPPED).load(Ordering::Acquire) >= run)
    }
}

/// Makes the memory of a process's words, all zero. Nobody can make it smaller.
fn create() -> io::Result<OwnedFd> {
    let file = memfd_create("passmuster", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, BYTES as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

/// The words of one process, mapped.
struct Page(NonNull<u8>);

// SAFETY: the mapping belongs to this value, and is accessed by atomic operations alone.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Maps what a process has made.
    ///
    /// # Errors
    /// Of the system; `InvalidData` for what is smaller, or may become so.
    fn map(file: impl AsFd) -> io::Result<Page> {
        if fstat(&file)?.st_size < BYTES as i64 || !fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("no {BYTES} bytes that stay")));
        }
        // SAFETY: a new mapping at a place that the system chooses touches nothing that is there. The file has as many bytes and keeps them.
        let start = unsafe { mmap(std::ptr::null_mut(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)? };
        NonNull::new(start.cast()).map(Page).ok_or_else(|| io::Error::other("a mapping at null"))
    }

    fn word(&self, place: usize) -> &AtomicU64 {
        assert!(place < BYTES / size_of::<AtomicU64>());
        // SAFETY: it lies within the mapping, which starts at a page, and everybody accesses it by atomic operations alone.
        unsafe { &*self.0.as_ptr().cast::<AtomicU64>().add(place) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference to it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), BYTES) };
    }
}

/// Boards of processes, as if they had met: each maps all pages itself.
#[cfg(test)]
pub(crate) fn boards(world: usize) -> Vec<Board> {
    let files: Vec<OwnedFd> = (0..world).map(|_| create().unwrap()).collect();
    (0..world).map(|rank| Board { rank, pages: files.iter().map(|file| Page::map(file).unwrap()).collect() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, ranks begin a run before all are ready, or wait for one that is not part of it, or for one that has given up.
    #[test]
    fn a_run_begins_when_its_ranks_are_there() {
        let boards = boards(3);
        boards[0].arrive(1);
        assert!(!boards[1].have_arrived(1, 2) && boards[1].have_arrived(1, 1));
        boards[1].arrive(1);
        assert!(boards.iter().all(|board| board.have_arrived(1, 2) && !board.have_arrived(1, 3)));
        assert!(!boards[0].have_arrived(2, 2));
        boards[2].stop(2);
        assert!(boards.iter().all(|board| board.has_stopped(2) && !board.has_stopped(3)));
    }

    /// If this fails, a process that cuts its memory short ends the others by a signal.
    #[test]
    fn memory_that_may_become_smaller_is_refused() {
        let file = memfd_create("short", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, BYTES as u64).unwrap();
        assert_eq!(Page::map(&file).map(drop).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
