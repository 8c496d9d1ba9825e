use std::{borrow::Cow, collections::BTreeMap};

use proptest::prelude::*;

use super::*;

/// Rank 3's `input` of 100 bytes, and the memory it is in.
fn one(init: Init) -> (Memory, Address) {
    let mut memory = Memory::new();
    let address = memory.allocate(Owner::new(3, 0, "input"), 100, init);
    (memory, address)
}

fn before(address: Address, bytes: u64) -> Address {
    Address(address.0 - bytes)
}

#[test]
fn accesses_end_exactly_where_the_buffer_does() {
    let (mut memory, address) = one(Init::Zero);
    assert_eq!(memory.load::<4>(address.plus(96), 3), Ok([0; 4]));
    assert_eq!(memory.load::<1>(address.plus(99), 3), Ok([0]));
    assert_eq!(memory.store::<4>(address.plus(96), 3, [1, 2, 3, 4]), Ok(()));
    assert_eq!(memory.read(address.plus(98), 2, 3).as_deref(), Ok(&[3, 4][..]));
    let refused = |offset, bytes| AccessError::OutOfBounds { buffer: "input".into(), rank: 3, offset, bytes, size: 100 };
    assert_eq!(memory.load::<1>(address.plus(100), 3), Err(refused(100, 1)));
    assert_eq!(memory.load::<8>(address.plus(96), 3), Err(refused(96, 8)), "spans the end");
    assert_eq!(memory.load::<4>(before(address, 4), 3), Err(refused(-4, 4)));
    assert_eq!(memory.write(before(address, 1), 3, &[0, 0]), Err(refused(-1, 2)), "spans the start");
    assert_eq!(memory.load::<4>(address.plus(1 << 34), 3), Err(refused(1 << 34, 4)), "far astray it is still this buffer");
    assert_eq!(refused(-4, 4).to_string(), "4 bytes at rank 3 input-4 are out of bounds: the buffer has 100 bytes");
}

/// If this fails, what lies beyond 4 GiB is taken for what lies in front of it, or a test needs as much memory as it names.
#[test]
fn beyond_4_gib_is_another_place() {
    let (size, far) = (9 << 30, (1 << 32) + 64);
    let mut memory = Memory::new();
    let address = memory.allocate(Owner::new(3, 0, "input"), size, Init::Uninitialised);
    assert_eq!(memory.store(address.plus(far), 3, [7; 8]), Ok(()));
    assert_eq!(memory.load::<8>(address.plus(far), 3), Ok([7; 8]));
    let uninitialised = |offset, first| {
        let buffer = "input".into();
        Err(AccessError::Uninitialised { buffer, rank: 3, offset, bytes: 8, first })
    };
    assert_eq!(memory.load::<8>(address.plus(64), 3), uninitialised(64, 64));
    assert_eq!(memory.load::<8>(address.plus(far + 8), 3), uninitialised(far as i64 + 8, far + 8));
    assert_eq!(memory.copy(address.plus(far - 4), address.plus(2 * far), 8, 3), Ok(()));
    assert_eq!(memory.load::<4>(address.plus(2 * far + 4), 3), Ok([7; 4]));
    assert_eq!(memory.load::<8>(address.plus(2 * far), 3), uninitialised(2 * far as i64, 2 * far));
    memory.track_written(address, false).unwrap();
    assert_eq!(memory.load::<4>(address.plus(64), 3), Ok([0; 4]));
    memory.track_written(address, true).unwrap();
    assert_eq!(memory.load::<4>(address.plus(2 * far), 3), Ok([0; 4]), "all counts as written");
    let refused = AccessError::OutOfBounds { buffer: "input".into(), rank: 3, offset: size as i64 - 4, bytes: 8, size };
    assert_eq!(memory.store(address.plus(size - 4), 3, [0; 8]), Err(refused));
}

/// If this fails, the end of the largest buffer is an address of the next one, and a write of nothing there is refused.
#[test]
fn largest_buffer_has_its_end() {
    let start = one(Init::Zero).1;
    let at = |bytes: u64| (start.plus(bytes).window(), start.plus(bytes).offset());
    assert_eq!(at(MOST_BYTES), (start.window(), MOST_BYTES));
    assert_ne!(at(MOST_BYTES + 1).0, start.window(), "it could be larger");
}

#[test]
fn nothing_may_lie_at_the_end() {
    let (mut memory, address) = one(Init::Uninitialised);
    assert_eq!(memory.read(address.plus(100), 0, 3).as_deref(), Ok(&[][..]));
    assert_eq!(memory.fill(address.plus(100), 0, 3, 1), Ok(()));
    assert_eq!(memory.copy(address, address.plus(100), 0, 3), Ok(()));
    assert!(memory.read(address.plus(101), 0, 3).is_err());
    let empty = memory.allocate(Owner::new(0, 0, "empty"), 0, Init::Zero);
    assert!(memory.resolve(empty, 0, 0).is_ok() && memory.load::<1>(empty, 0).is_err());
}

#[test]
fn strays_are_unmapped() {
    let (memory, address) = one(Init::Zero);
    assert_eq!(memory.load::<4>(Address(0), 3), Err(AccessError::Unmapped { address: Address(0), nearest: None }));
    assert_eq!(memory.load::<4>(Address(64), 3).unwrap_err().to_string(), "0x40 is no address of any buffer");
    let stray = Address(address.0 + (5 << 36));
    let error = memory.load::<4>(stray, 3).unwrap_err();
    assert_eq!(error, AccessError::Unmapped { address: stray, nearest: Some("rank 3 input".into()) });
    assert!(error.to_string().ends_with("; the nearest is rank 3 input"), "{error}");
    assert!(memory.load::<4>(Address(u64::MAX - 3), 3).is_err());
}

#[test]
fn peers_need_a_mapping() {
    let (mut memory, address) = one(Init::Zero);
    let refused = AccessError::NotMappedOnRank { buffer: "input".into(), rank: 3, accessing: 5, offset: 8 };
    assert_eq!(memory.load::<4>(address.plus(8), 5), Err(refused.clone()));
    assert_eq!(memory.store::<4>(address.plus(8), 5, [0; 4]), Err(refused.clone()));
    memory.map(address, 5, true).unwrap();
    assert_eq!(memory.store::<4>(address.plus(8), 5, [7; 4]), Ok(()));
    assert_eq!(memory.load::<4>(address.plus(8), 3), Ok([7; 4]), "it is the same memory");
    memory.map(address, 5, false).unwrap();
    assert_eq!(memory.load::<4>(address.plus(8), 5), Err(refused));
    assert!(memory.load::<4>(address, 64).is_err(), "a rank that there cannot be");
}

#[test]
fn freed_memory_is_known_and_never_comes_back() {
    let (mut memory, address) = one(Init::Zero);
    memory.free(address).unwrap();
    let next = memory.allocate(Owner::new(3, 1, "input"), 100, Init::Zero);
    assert_ne!(next, address);
    let refused = AccessError::UseAfterFree { buffer: "input".into(), rank: 3, offset: 4 };
    assert_eq!(memory.load::<4>(address.plus(4), 3), Err(refused));
    assert!(matches!(memory.free(address), Err(AccessError::UseAfterFree { .. })), "twice");
    assert_eq!(memory.describe(address.plus(4)), "rank 3 input+4 (freed)");
    assert!(matches!(memory.free(next.plus(4)), Err(AccessError::NotAStart { offset: 4, .. })));
}

#[test]
fn instructions_need_alignment_and_stretches_do_not() {
    let (memory, address) = one(Init::Zero);
    let refused = AccessError::Misaligned { buffer: "input".into(), rank: 3, offset: 4, bytes: 8 };
    assert_eq!(memory.load::<8>(address.plus(4), 3), Err(refused));
    assert!(memory.load::<16>(address.plus(8), 3).is_err() && memory.load::<16>(address.plus(16), 3).is_ok());
    assert!(memory.read(address.plus(3), 8, 3).is_ok());
}

#[test]
fn reading_what_nobody_wrote_is_an_error_until_it_is_written() {
    let (mut memory, address) = one(Init::Uninitialised);
    memory.store::<4>(address.plus(60), 3, [9; 4]).unwrap();
    memory.store::<2>(address.plus(64), 3, [9; 2]).unwrap();
    assert_eq!(memory.load::<4>(address.plus(60), 3), Ok([9; 4]));
    let refused = |offset, bytes, first| AccessError::Uninitialised { buffer: "input".into(), rank: 3, offset, bytes, first };
    assert_eq!(memory.load::<4>(address.plus(64), 3), Err(refused(64, 4, 66)));
    assert_eq!(memory.read(address.plus(61), 8, 3), Err(refused(61, 8, 66)));
    assert_eq!(memory.peek::<4>(memory.resolve(address.plus(64), 4, 3).unwrap()), [9, 9, CANARY, CANARY]);
    memory.track_written(address, false).unwrap();
    assert_eq!(memory.load::<4>(address, 3), Ok([CANARY; 4]));
    memory.track_written(address, true).unwrap();
    assert_eq!(memory.load::<4>(address, 3), Ok([CANARY; 4]), "what was there counts as written");
    assert_eq!(one(Init::Canary).0.load::<4>(address, 3), Ok([CANARY; 4]));
}

#[test]
fn copies_carry_along_what_was_never_written() {
    let (mut memory, from) = one(Init::Uninitialised);
    memory.write(from, 3, &[1, 2, 3]).unwrap();
    let to = memory.allocate(Owner::new(3, 0, "output"), 100, Init::Uninitialised);
    memory.fill(to, 100, 3, 0).unwrap();
    memory.copy(from, to.plus(10), 5, 3).unwrap();
    assert_eq!(memory.read(to, 13, 3).unwrap()[9..], [0, 1, 2, 3]);
    assert!(matches!(memory.read(to, 100, 3), Err(AccessError::Uninitialised { first: 13, .. })));
    assert!(memory.copy(from, to.plus(96), 5, 3).is_err(), "past the end of the destination");
    memory.copy(from, from.plus(1), 3, 3).unwrap();
    assert_eq!(memory.read(from, 4, 3).as_deref(), Ok(&[1, 1, 2, 3][..]), "overlapping");
}

#[test]
fn multicast_and_unicast_addresses_are_not_interchangeable() {
    let (mut memory, first) = one(Init::Zero);
    let second = memory.allocate(Owner::new(4, 0, "input"), 100, Init::Zero);
    let window = memory.multicast(Owner::new(3, 0, "input.multicast"), 64, &[first, second]).unwrap();
    let places: Vec<GlobalAddr> = memory.resolve_multicast(window.plus(8), 8, 3).unwrap().collect();
    assert_eq!(places, [memory.resolve(first.plus(8), 8, 3).unwrap(), memory.resolve(second.plus(8), 8, 4).unwrap()]);
    let misuse = memory.load::<4>(window.plus(8), 3).unwrap_err();
    assert_eq!(misuse, AccessError::MulticastUsedAsUnicast { window: "input.multicast".into(), offset: 8 });
    let misuse = memory.resolve_multicast(first.plus(8), 4, 3).err().unwrap();
    assert_eq!(misuse, AccessError::UnicastUsedAsMulticast { buffer: "input".into(), rank: 3, offset: 8 });
    let refusal = |memory: &Memory, address, rank| memory.resolve_multicast(address, 8, rank).err().unwrap();
    assert!(matches!(refusal(&memory, window, 4), AccessError::NotMappedOnRank { accessing: 4, .. }));
    assert!(matches!(refusal(&memory, window.plus(64), 3), AccessError::OutOfBounds { offset: 64, .. }));
    assert!(matches!(refusal(&memory, window.plus(4), 3), AccessError::Misaligned { .. }));
    assert!(memory.multicast(Owner::new(3, 0, "wide"), 101, &[first]).is_err(), "a replica is smaller");
    assert!(memory.multicast(Owner::new(3, 0, "nested"), 8, &[window]).is_err());
    assert_eq!(memory.describe(window), "rank 3 input.multicast+0 (multicast)");
    memory.free(second).unwrap();
    assert!(matches!(refusal(&memory, window, 3), AccessError::UseAfterFree { rank: 4, .. }));
}

#[test]
fn addresses_are_described_by_rank_buffer_and_offset() {
    let (mut memory, address) = one(Init::Zero);
    let signals = memory.allocate(Owner::new(3, 0, "two_shot.signals"), 128, Init::Zero);
    assert_eq!(memory.describe(signals.plus(64)), "rank 3 two_shot.signals+64");
    assert_eq!(memory.describe(before(signals, 8)), "rank 3 two_shot.signals-8, out of bounds");
    assert_eq!(memory.describe(address.plus(100)), "rank 3 input+100, out of bounds");
    assert_eq!(memory.describe(Address(16)), "null+16");
    let place = memory.resolve(signals, 1, 3).unwrap();
    assert_eq!((memory.owner(place.allocation).rank, memory.size(place.allocation)), (3, 128));
    assert_eq!((place.allocation.index(), place.allocation.address()), (1, signals));
    assert_eq!(memory.place(place.allocation, 127, 1), Ok(GlobalAddr { offset: 127, ..place }));
    assert!(memory.place(place.allocation, 127, 2).is_err());
}

/// Contiguous or not, complete or not: a warp's access is its lanes' accesses.
#[test]
fn warps_access_what_their_lanes_do() {
    let mut memory = Memory::new();
    let base = memory.allocate(Owner::new(0, 0, "input"), 1024, Init::Uninitialised);
    let contiguous: [u64; WARP] = std::array::from_fn(|lane| base.0 + 16 + 16 * lane as u64);
    let values: [[u8; 16]; WARP] = std::array::from_fn(|lane| [lane as u8; 16]);
    memory.store_warp(&contiguous, u32::MAX, 0, &values).unwrap();
    let mut read = [[0; 16]; WARP];
    memory.load_warp(&contiguous, u32::MAX, 0, &mut read).unwrap();
    assert_eq!(read, values);
    assert!(memory.contiguous::<16>(&contiguous, u32::MAX, 0).is_some() && memory.contiguous::<16>(&contiguous, 1, 0).is_none());

    let mut scattered = contiguous;
    scattered.reverse();
    let mut read = [[0xaa; 16]; WARP];
    memory.load_warp(&scattered, 0x8000_0002, 0, &mut read).unwrap();
    assert_eq!((read[0], read[1], read[31]), ([0xaa; 16], [30; 16], [0; 16]));

    let beyond: [u64; WARP] = std::array::from_fn(|lane| base.0 + 528 + 16 * lane as u64);
    let error = memory.store_warp(&beyond, u32::MAX, 0, &values).unwrap_err();
    assert_eq!(error.lane, 31);
    assert!(matches!(error.error, AccessError::OutOfBounds { offset: 1024, .. }));
    let unwritten = memory.load_warp(&std::array::from_fn(|lane| base.0 + 4 * lane as u64), u32::MAX, 0, &mut [[0; 4]; WARP]);
    assert!(matches!(unwritten.unwrap_err(), LaneError { lane: 0, error: AccessError::Uninitialised { .. } }));
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(u64),
    Free(usize),
    Store4(usize, i64, [u8; 4]),
    Load4(usize, i64),
    Fill(usize, i64, u64, u8),
    Copy(usize, i64, usize, i64, u64),
    Read(usize, i64, u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let (buffer, offset, bytes) = (0usize..4, -4i64..140, 0u64..140);
    let action = prop_oneof![
        1 => (1u64..140).prop_map(Action::Allocate),
        1 => buffer.clone().prop_map(Action::Free),
        4 => (buffer.clone(), offset.clone(), any::<[u8; 4]>()).prop_map(|(b, o, v)| Action::Store4(b, o & !3, v)),
        4 => (buffer.clone(), offset.clone()).prop_map(|(b, o)| Action::Load4(b, o)),
        2 => (buffer.clone(), offset.clone(), bytes.clone(), any::<u8>()).prop_map(|(b, o, n, v)| Action::Fill(b, o, n, v)),
        2 => (buffer.clone(), offset.clone(), buffer.clone(), offset.clone(), bytes.clone())
            .prop_map(|(b, o, c, p, n)| Action::Copy(b, o, c, p, n)),
        4 => (buffer, offset, bytes).prop_map(|(b, o, n)| Action::Read(b, o, n)),
    ];
    proptest::collection::vec(action, 1..80)
}

/// A buffer as a map from offsets to bytes, `None` where nobody wrote.
#[derive(Default)]
struct Model(BTreeMap<i64, Option<u8>>);

impl Model {
    fn get(&self, offset: i64, bytes: u64) -> Option<Vec<Option<u8>>> {
        (offset..offset + bytes as i64).map(|at| self.0.get(&at).copied()).collect()
    }
    fn set(&mut self, offset: i64, values: &[Option<u8>]) -> bool {
        let there = self.get(offset, values.len() as u64).is_some();
        if there {
            (offset..).zip(values).for_each(|(at, &value)| {
                self.0.insert(at, value);
            });
        }
        there
    }
}

proptest! {
    #[test]
    fn memory_is_maps_of_bytes(actions in actions()) {
        let mut memory = Memory::new();
        let mut buffers: Vec<(Address, u64, Model)> = Vec::new();
        for action in actions {
            let known = |buffer: &usize| *buffer < buffers.len();
            let ends = |buffers: &[(Address, u64, Model)], buffer: usize, offset: i64| {
                !buffers[buffer].2.0.is_empty() && (0..=buffers[buffer].1 as i64).contains(&offset)
            };
            match action {
                Action::Allocate(bytes) => {
                    let address = memory.allocate(Owner::new(0, 0, "b"), bytes, Init::Uninitialised);
                    buffers.push((address, bytes, Model((0..bytes as i64).map(|at| (at, None)).collect())));
                }
                Action::Free(b) if known(&b) => {
                    prop_assert_eq!(memory.free(buffers[b].0).is_ok(), !buffers[b].2.0.is_empty());
                    buffers[b].2 = Model::default();
                }
                Action::Store4(b, offset, value) if known(&b) => {
                    let stored = memory.store(Address(buffers[b].0.0.wrapping_add_signed(offset)), 0, value).is_ok();
                    prop_assert_eq!(stored, buffers[b].2.set(offset, &value.map(Some)));
                }
                Action::Load4(b, offset) if known(&b) => {
                    let loaded = memory.load::<4>(Address(buffers[b].0.0.wrapping_add_signed(offset)), 0).ok();
                    let model = buffers[b].2.get(offset, 4).filter(|_| offset % 4 == 0);
                    let model = model.and_then(|bytes| bytes.into_iter().collect::<Option<Vec<u8>>>());
                    prop_assert_eq!(loaded.map(|bytes| bytes.to_vec()), model);
                }
                Action::Fill(b, offset, bytes, value) if known(&b) => {
                    let filled = memory.fill(Address(buffers[b].0.0.wrapping_add_signed(offset)), bytes, 0, value).is_ok();
                    let there = ends(&buffers, b, offset);
                    prop_assert_eq!(filled, there && buffers[b].2.set(offset, &vec![Some(value); bytes as usize]));
                }
                Action::Copy(b, from, c, to, bytes) if known(&b) && known(&c) => {
                    let [source, target] = [(b, from), (c, to)].map(|(b, o)| Address(buffers[b].0.0.wrapping_add_signed(o)));
                    let copied = memory.copy(source, target, bytes, 0).is_ok();
                    let there = ends(&buffers, b, from) && ends(&buffers, c, to);
                    let values = buffers[b].2.get(from, bytes).filter(|_| there);
                    prop_assert_eq!(copied, values.is_some_and(|values| buffers[c].2.set(to, &values)));
                }
                Action::Read(b, offset, bytes) if known(&b) => {
                    let read = memory.read(Address(buffers[b].0.0.wrapping_add_signed(offset)), bytes, 0).ok().map(Cow::into_owned);
                    let there = ends(&buffers, b, offset);
                    let model = buffers[b].2.get(offset, bytes).filter(|_| there);
                    prop_assert_eq!(read, model.and_then(|bytes| bytes.into_iter().collect::<Option<Vec<u8>>>()));
                }
                _ => {}
            }
        }
    }
}
