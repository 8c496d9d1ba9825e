//! Resolving addresses, and access to single values and to stretches of bytes.

use std::borrow::Cow;

use super::{AccessError, Address, Allocation, AllocationId, GlobalAddr, Kind, Memory};

/// What was read and is to be written elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Those of them that were never written, ascending.
    pub missing: Vec<u64>,
}

impl Memory {
    /// The place of `bytes` bytes at an address that `rank` accesses. Bytes may be zero: then the address may also be the buffer's end.
    ///
    /// # Errors
    /// In this order: `Unmapped`, `UseAfterFree`, `MulticastUsedAsUnicast`, `NotMappedOnRank`, `OutOfBounds`.
    #[inline]
    pub fn resolve(&self, address: Address, bytes: u64, rank: usize) -> Result<GlobalAddr, AccessError> {
        let index = address.window().wrapping_sub(1);
        let offset = address.offset();
        match self.allocations.get(index) {
            Some(allocation) if allocation.lets(rank) && allocation.holds(offset, bytes) => {
                Ok(GlobalAddr { allocation: AllocationId::of_index(index), offset })
            }
            _ => Err(self.refusal(address, bytes, rank)),
        }
    }

    /// The place of an instruction's access of `bytes` bytes, a power of two, to which it must be aligned.
    ///
    /// # Errors
    /// As [`Memory::resolve`], then `Misaligned`.
    #[inline]
    pub fn resolve_aligned(&self, address: Address, bytes: u64, rank: usize) -> Result<GlobalAddr, AccessError> {
        let place = self.resolve(address, bytes, rank)?;
        if place.offset & (bytes - 1) == 0 { Ok(place) } else { Err(self.misaligned(place, bytes)) }
    }

    /// The places that an aligned access to a multicast address stands for, one a replica, in the order in which the window was given them.
    ///
    /// # Errors
    /// `Unmapped`, `UseAfterFree` (also of a replica), `UnicastUsedAsMulticast`, `NotMappedOnRank`, `OutOfBounds`, `Misaligned`.
    pub fn resolve_multicast(&self, address: Address, bytes: u64, rank: usize) -> Result<impl Iterator<Item = GlobalAddr>, AccessError> {
        let id = self.find(address).ok_or_else(|| self.unmapped(address))?;
        let Allocation { owner, size, ranks, kind, .. } = &self.allocations[id.index()];
        let (buffer, owned_by, offset) = (owner.name.clone(), owner.rank, address.offset() as i64);
        let replicas = match kind {
            Kind::Multicast(replicas) => replicas,
            Kind::Freed => return Err(AccessError::UseAfterFree { buffer, rank: owned_by, offset }),
            Kind::Unicast => return Err(AccessError::UnicastUsedAsMulticast { buffer, rank: owned_by, offset }),
        };
        if !has(*ranks, rank) {
            return Err(AccessError::NotMappedOnRank { buffer, rank: owned_by, accessing: rank, offset });
        }
        if !fits(*size, address.offset(), bytes) {
            return Err(self.out_of_bounds(id, offset, bytes));
        }
        if offset as u64 & (bytes - 1) != 0 {
            return Err(self.misaligned(GlobalAddr { allocation: id, offset: offset as u64 }, bytes));
        }
        for replica in replicas {
            let Allocation { owner, kind, .. } = &self.allocations[replica.index()];
            if matches!(kind, Kind::Freed) {
                return Err(AccessError::UseAfterFree { buffer: owner.name.clone(), rank: owner.rank, offset });
            }
        }
        Ok(replicas.iter().map(move |&allocation| GlobalAddr { allocation, offset: offset as u64 }))
    }

    /// The place `offset` bytes into a buffer that is known otherwise than by a 64-bit address, as shared memory is.
    ///
    /// # Errors
    /// `UseAfterFree`, `MulticastUsedAsUnicast`, `OutOfBounds`.
    pub fn place(&self, allocation: AllocationId, offset: u64, bytes: u64) -> Result<GlobalAddr, AccessError> {
        let Allocation { owner, size, kind, .. } = &self.allocations[allocation.index()];
        match kind {
            Kind::Unicast if fits(*size, offset, bytes) => Ok(GlobalAddr { allocation, offset }),
            Kind::Unicast => Err(self.out_of_bounds(allocation, offset as i64, bytes)),
            Kind::Multicast(_) => Err(AccessError::MulticastUsedAsUnicast { window: owner.name.clone(), offset: offset as i64 }),
            Kind::Freed => Err(AccessError::UseAfterFree { buffer: owner.name.clone(), rank: owner.rank, offset: offset as i64 }),
        }
    }

    /// Reads `N` bytes (1, 2, 4, 8, 16 or 32), which must be aligned to `N`.
    ///
    /// # Errors
    /// As [`Memory::resolve_aligned`], then `Uninitialised`.
    #[inline]
    pub fn load<const N: usize>(&self, address: Address, rank: usize) -> Result<[u8; N], AccessError> {
        const { assert!(N.is_power_of_two() && N <= 32) };
        self.load_at(self.resolve_aligned(address, N as u64, rank)?, rank)
    }

    /// Reads, as `rank` sees them, the `N` bytes at a place that was resolved for as many and is aligned to `N`.
    ///
    /// # Errors
    /// `Uninitialised`.
    ///
    /// # Panics
    /// As [`Memory::peek`].
    #[inline(always)]
    pub fn load_at<const N: usize>(&self, place: GlobalAddr, rank: usize) -> Result<[u8; N], AccessError> {
        let from = place.offset as usize;
        let allocation = &self.allocations[place.allocation.index()];
        let Some(bytes) = allocation.bytes.get(from..from + N) else { return self.load_shared(place) };
        if let Some(written) = &allocation.written
            && !written.has::<N>(place.offset)
        {
            return Err(self.uninitialised(place, N as u64));
        }
        Ok(self.seen(place, rank, bytes.try_into().expect("a slice of this length")))
    }

    /// Writes `N` bytes (1, 2, 4, 8, 16 or 32), which must be aligned to `N`.
    ///
    /// # Errors
    /// As [`Memory::resolve_aligned`].
    #[inline]
    pub fn store<const N: usize>(&mut self, address: Address, rank: usize, value: [u8; N]) -> Result<(), AccessError> {
        const { assert!(N.is_power_of_two() && N <= 32) };
        let place = self.resolve_aligned(address, N as u64, rank)?;
        self.put(place, value);
        Ok(())
    }

    /// The `N` bytes at a place that was resolved for as many, written or not.
    ///
    /// # Panics
    /// When they are not there, because the place was resolved for fewer or the buffer was freed since.
    #[inline(always)]
    pub fn peek<const N: usize>(&self, place: GlobalAddr) -> [u8; N] {
        let from = place.offset as usize;
        match self.allocations[place.allocation.index()].bytes.get(from..from + N) {
            Some(bytes) => bytes.try_into().expect("a slice of this length"),
            None => self.peek_shared(place),
        }
    }

    /// Sets the `N` bytes at a place that was resolved for as many and is aligned to `N`.
    ///
    /// # Panics
    /// As [`Memory::peek`].
    #[inline(always)]
    pub fn put<const N: usize>(&mut self, place: GlobalAddr, value: [u8; N]) {
        debug_assert!(place.offset.is_multiple_of(N as u64));
        let from = place.offset as usize;
        let allocation = &mut self.allocations[place.allocation.index()];
        let Some(bytes) = allocation.bytes.get_mut(from..from + N) else { return self.put_shared(place, value) };
        bytes.copy_from_slice(&value);
        if let Some(written) = &mut allocation.written {
            written.set::<N>(place.offset);
        }
    }

    /// As [`Memory::put`] of up to 16 bytes, where `old` was found: of what other processes may write, only if it is still there. Whether it did.
    ///
    /// # Panics
    /// As [`Memory::peek`].
    #[inline]
    pub fn replace<const N: usize>(&mut self, place: GlobalAddr, old: [u8; N], new: [u8; N]) -> bool {
        if self.allocations[place.allocation.index()].shared.is_some() {
            return self.replace_shared(place, old, new);
        }
        self.put(place, new);
        true
    }

    /// Reads a stretch of any length and alignment.
    ///
    /// # Errors
    /// As [`Memory::resolve`], then `Uninitialised`.
    pub fn read(&self, address: Address, bytes: u64, rank: usize) -> Result<Cow<'_, [u8]>, AccessError> {
        let place = self.resolve(address, bytes, rank)?;
        let read = self.bytes(place, bytes);
        if self.first_missing(place, bytes).is_some() { Err(self.uninitialised(place, bytes)) } else { Ok(read) }
    }

    /// The bytes of a stretch, written or not.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn peek_all(&self, address: Address, bytes: u64, rank: usize) -> Result<Cow<'_, [u8]>, AccessError> {
        Ok(self.bytes(self.resolve(address, bytes, rank)?, bytes))
    }

    /// The bytes at a place that was resolved for as many: a copy of those that other processes may write.
    fn bytes(&self, place: GlobalAddr, bytes: u64) -> Cow<'_, [u8]> {
        let allocation = &self.allocations[place.allocation.index()];
        match allocation.shared {
            None => Cow::Borrowed(&allocation.bytes[place.offset as usize..][..bytes as usize]),
            Some(_) => Cow::Owned(self.read_shared(place, bytes)),
        }
    }

    /// The first of these bytes that was never written.
    fn first_missing(&self, place: GlobalAddr, bytes: u64) -> Option<u64> {
        match &self.allocations[place.allocation.index()] {
            Allocation { shared: Some(_), .. } => self.first_missing_shared(place, bytes),
            Allocation { written, .. } => written.as_ref()?.first_missing(place.offset, bytes),
        }
    }

    /// Writes a stretch of any length and alignment.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn write(&mut self, address: Address, rank: usize, bytes: &[u8]) -> Result<(), AccessError> {
        let place = self.resolve(address, bytes.len() as u64, rank)?;
        match self.target(place, bytes.len() as u64) {
            Some(target) => target.copy_from_slice(bytes),
            None => self.write_shared(place, bytes),
        }
        Ok(())
    }

    /// Sets every byte of a stretch.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn fill(&mut self, address: Address, bytes: u64, rank: usize, byte: u8) -> Result<(), AccessError> {
        let place = self.resolve(address, bytes, rank)?;
        match self.target(place, bytes) {
            Some(target) => target.fill(byte),
            None => self.fill_shared(place, bytes, byte),
        }
        Ok(())
    }

    /// Copies a stretch, as if all of it were read before any is written. Bytes that were never written stay so at the destination.
    ///
    /// # Errors
    /// As [`Memory::resolve`], of the source first. Nothing is copied then.
    pub fn copy(&mut self, from: Address, to: Address, bytes: u64, rank: usize) -> Result<(), AccessError> {
        let taken = self.take(from, bytes, rank)?;
        self.give(to, &taken, rank)
    }

    /// Reads a stretch that is to be written elsewhere.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn take(&self, from: Address, bytes: u64, rank: usize) -> Result<Taken, AccessError> {
        let source = self.resolve(from, bytes, rank)?;
        let origin = &self.allocations[source.allocation.index()];
        if origin.shared.is_some() {
            return Ok(self.take_shared(source, bytes));
        }
        let mut values = origin.bytes[source.offset as usize..][..bytes as usize].to_vec();
        self.seen_stretch(source, rank, &mut values);
        let missing: Vec<u64> = match &origin.written {
            Some(written) if written.first_missing(source.offset, bytes).is_some() => {
                (0..bytes).filter(|byte| !written.get(source.offset + byte)).collect()
            }
            _ => Vec::new(),
        };
        Ok(Taken { bytes: values, missing })
    }

    /// Writes what was read elsewhere. Bytes that were never written there are not written here either.
    ///
    /// # Errors
    /// As [`Memory::resolve`].
    pub fn give(&mut self, to: Address, taken: &Taken, rank: usize) -> Result<(), AccessError> {
        let bytes = taken.bytes.len() as u64;
        let place = self.resolve(to, bytes, rank)?;
        let Some(target) = self.target(place, bytes) else {
            self.give_shared(place, taken);
            return Ok(());
        };
        target.copy_from_slice(&taken.bytes);
        if let Some(written) = &mut self.allocations[place.allocation.index()].written {
            taken.missing.iter().for_each(|byte| written.put(place.offset + byte, false));
        }
        Ok(())
    }

    /// The bytes at a place that are about to be overwritten, noted as written; none where other processes may write them.
    fn target(&mut self, place: GlobalAddr, bytes: u64) -> Option<&mut [u8]> {
        let allocation = &mut self.allocations[place.allocation.index()];
        if allocation.shared.is_some() {
            return None;
        }
        if let Some(written) = &mut allocation.written {
            written.set_all(place.offset, bytes);
        }
        Some(&mut allocation.bytes[place.offset as usize..][..bytes as usize])
    }

    /// Why [`Memory::resolve`] refuses.
    #[cold]
    fn refusal(&self, address: Address, bytes: u64, rank: usize) -> AccessError {
        let Some(id) = self.find(address) else { return self.unmapped(address) };
        let Allocation { owner, ranks, kind, .. } = &self.allocations[id.index()];
        let (buffer, offset) = (owner.name.clone(), address.offset() as i64);
        match kind {
            Kind::Freed => AccessError::UseAfterFree { buffer, rank: owner.rank, offset },
            Kind::Multicast(_) => AccessError::MulticastUsedAsUnicast { window: buffer, offset },
            Kind::Unicast if !has(*ranks, rank) => AccessError::NotMappedOnRank { buffer, rank: owner.rank, accessing: rank, offset },
            Kind::Unicast => self.out_of_bounds(id, offset, bytes),
        }
    }

    #[cold]
    fn misaligned(&self, place: GlobalAddr, bytes: u64) -> AccessError {
        let owner = self.owner(place.allocation);
        AccessError::Misaligned { buffer: owner.name.clone(), rank: owner.rank, offset: place.offset as i64, bytes }
    }

    #[cold]
    pub(super) fn uninitialised(&self, place: GlobalAddr, bytes: u64) -> AccessError {
        let Allocation { owner, .. } = &self.allocations[place.allocation.index()];
        let first = self.first_missing(place, bytes).unwrap_or(place.offset);
        AccessError::Uninitialised { buffer: owner.name.clone(), rank: owner.rank, offset: place.offset as i64, bytes, first }
    }
}

impl Allocation {
    /// Whether a rank may access it by unicast addresses: it is live and mapped there.
    #[inline(always)]
    fn lets(&self, rank: usize) -> bool {
        matches!(self.kind, Kind::Unicast) && has(self.ranks, rank)
    }

    #[inline(always)]
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        fits(self.size, offset, bytes)
    }
}

#[inline(always)]
fn has(ranks: u128, rank: usize) -> bool {
    rank < super::MAX_RANKS && ranks >> rank & 1 == 1
}

/// Whether `bytes` bytes at `offset`, which may have wrapped below zero, lie within `size`.
#[inline(always)]
fn fits(size: u64, offset: u64, bytes: u64) -> bool {
    offset <= size && bytes <= size - offset
}
