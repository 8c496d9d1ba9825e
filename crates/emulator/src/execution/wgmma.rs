//! Products of warpgroups (PTX ISA 9.7.15): started by an instruction, done later and in order.
//!
//! Each warp does its own 16 of the 64 rows, by a queue of its own ([`Products`]), which has turns as warps have: so it may read shared memory and write registers late.
//! Four warps in a row are a warpgroup; that they start the same products is noted by their block ([`Agreement`]).
//!
//! From `wgmma.fence` on, the registers that other instructions touch are noted until nothing is under way and one of a product's has been touched. Before and after
//! that nothing is looked at.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
};

use passmuster_ptx::{Instruction, MatrixProduct, MatrixSource, Operand, Register, Type};

use super::{
    arithmetic::Adder,
    executor::{Executor, place},
    fault::{ExecError, Fault},
    grid::Launch,
    matrix::{register_of, rows, sums_of},
    registers::{LANES, Registers, Row},
};
use crate::{
    memory::{self, Memory},
    numerics::tensor_core::{Elements, MOST_DEPTH, Unit, multiply},
    races::{FlightId, Races},
};

/// Warps of a warpgroup.
pub(super) const WARPS: usize = 4;

/// Rows that a warp does.
const ROWS: u32 = 16;

/// Bytes of a row that an instruction multiplies, and of what descriptors are made of.
const DEPTH: u32 = 32;
const CHUNK: u32 = 16;

fn wrong(why: impl Into<String>) -> ExecError {
    ExecError::Asynchronous { lane: None, why: why.into() }
}

/// A matrix in shared memory (PTX ISA 9.7.15.5.1.2): where its 16-byte chunks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Descriptor {
    start: u32,
    leading: u32,
    stride: u32,
    base: u32,
    /// Chunks in a row of the pattern: 1 where nothing is swizzled.
    pattern: u32,
}

/// Bits of descriptors that say something.
const MEANT: u64 = 0x3fff | 0x3fff << 16 | 0x3fff << 32 | 7 << 49 | 3 << 62;

/// Addresses in descriptors wrap at this.
const WINDOW: u32 = 1 << 18;

impl Descriptor {
    fn of(bits: u64) -> Result<Descriptor, ExecError> {
        if bits & !MEANT != 0 {
            return Err(wrong(format!("a descriptor {bits:#018x}, of which the bits {:#x} are not zero", bits & !MEANT)));
        }
        let field = |shift: u32| ((bits >> shift & 0x3fff) << 4) as u32;
        let pattern = [1, 8, 4, 2][(bits >> 62) as usize];
        let base = (bits >> 49 & 7) as u32;
        if base >= pattern {
            return Err(wrong(format!("a descriptor {bits:#018x} with base offset {base}, where the pattern has {pattern} rows")));
        }
        Ok(Descriptor { start: field(0), leading: field(16), stride: field(32), base, pattern })
    }

    /// The offset in shared memory of the place of a chunk.
    fn swizzled(self, offset: u32) -> u32 {
        let address = (self.start + offset) % WINDOW;
        address ^ ((address >> 7).wrapping_sub(self.base) & (self.pattern - 1)) << 4
    }

    /// A chunk of elements with k contiguous: of a row, the first or the second.
    fn along_k(self, row: u32, half: u32) -> u32 {
        let right = if self.pattern == 1 { self.leading } else { CHUNK };
        self.swizzled(row % 8 * self.pattern * CHUNK + row / 8 * self.stride + half * right)
    }

    /// A chunk of elements with rows contiguous, eight of them: of an index of k.
    fn along_rows(self, eight: u32, k: u32) -> u32 {
        let Descriptor { leading, stride, pattern, .. } = self;
        let (of_eight, of_k) = if pattern == 1 { (stride, leading) } else { (leading, stride) };
        self.swizzled(eight % pattern * CHUNK + eight / pattern * of_eight + k % 8 * pattern * CHUNK + k / 8 * of_k)
    }

    /// The chunks of `count` rows, a multiple of eight, from row `from` on.
    fn chunks(self, from: u32, count: u32, transposed: bool) -> Vec<u32> {
        match transposed {
            false => (from..from + count).flat_map(|row| [0, 1].map(|half| self.along_k(row, half))).collect(),
            true => (from / 8..(from + count) / 8).flat_map(|eight| (0..DEPTH / 2).map(move |k| self.along_rows(eight, k))).collect(),
        }
    }
}

/// The rows of elements of `bits` bits that chunks hold.
fn rows_of(chunks: &[[u8; 16]], bits: u32, transposed: bool) -> Vec<Elements> {
    let width = (bits / 8) as usize;
    let read = |chunk: &[u8; 16], number: usize| {
        let bytes = &chunk[number * width..(number + 1) * width];
        bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
    };
    let each = 16 / width;
    if !transposed {
        let row = |chunks: &[[u8; 16]]| {
            let mut row = [0; MOST_DEPTH];
            (0..2 * each).for_each(|k| row[k] = read(&chunks[k / each], k % each));
            row
        };
        return chunks.chunks_exact(2).map(row).collect();
    }
    let depth = (DEPTH / 2) as usize;
    let mut rows = vec![[0; MOST_DEPTH]; chunks.len() / depth * each];
    for (number, chunk) in chunks.iter().enumerate() {
        for part in 0..each {
            rows[number / depth * each + part][number % depth] = read(chunk, part);
        }
    }
    rows
}

/// Where a product has a factor.
#[derive(Clone, Debug)]
enum Factor {
    /// Places of words.
    Registers(Vec<usize>),
    /// Offsets of chunks in shared memory.
    Shared(Vec<u32>),
}

/// A product that a warp has started and not waited for.
#[derive(Clone, Debug)]
struct Started {
    product: MatrixProduct,
    negated: [bool; 2],
    transposed: [bool; 2],
    /// Places of words.
    sums: Vec<usize>,
    a: Factor,
    b: Vec<u32>,
    keeps: bool,
    race: Option<FlightId>,
    /// Function and operation.
    at: (usize, usize),
}

impl Started {
    /// Words that its first factor is in.
    fn factor(&self) -> &[usize] {
        if let Factor::Registers(places) = &self.a { places } else { &[] }
    }

    /// Words that it reads or writes.
    fn words(&self) -> impl Iterator<Item = usize> {
        self.sums.iter().chain(self.factor()).copied()
    }
}

/// A set of words.
#[derive(Clone, Debug, Default)]
struct Words(Vec<u64>);

impl Words {
    fn add(&mut self, place: usize) {
        if self.0.len() <= place / 64 {
            self.0.resize(place / 64 + 1, 0);
        }
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }
}

/// Products of a warp.
#[derive(Clone, Debug, Default)]
pub(super) struct Products {
    /// Started and not waited for; the first `done` of them are done.
    started: VecDeque<Started>,
    done: usize,
    /// How many of them each committed group has, and the one that is open.
    groups: VecDeque<usize>,
    open: usize,
    /// How many were ever started.
    count: u64,
    /// Whether registers are in order since a `wgmma.fence`, but for those that were touched since.
    fenced: bool,
    touched: Words,
    /// Sums and factors of what is started.
    busy: Words,
    /// Sums and factors of all that was started since the fence.
    used: Words,
    /// Whether the queue is among what has turns.
    pub(super) queued: bool,
}

impl Products {
    /// What decides what is done next.
    pub(super) fn hash_state(&self, hasher: &mut impl Hasher) {
        (self.started.len(), self.done, &self.groups, self.open, self.fenced).hash(hasher);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.done < self.started.len()
    }

    /// Whether registers that other instructions touch are noted.
    pub(super) fn watches(&self) -> bool {
        self.fenced || !self.started.is_empty()
    }

    /// Other instructions touch words.
    fn touch(&mut self, places: impl Iterator<Item = usize>) -> Result<(), ExecError> {
        for place in places {
            if self.busy.has(place) {
                return Err(wrong("it reads or writes a register of a wgmma.mma_async that wgmma.wait_group has not waited for"));
            }
            self.touched.add(place);
            if self.started.is_empty() && self.used.has(place) {
                // A fence is needed whatever comes; nothing more need be known.
                self.fenced = false;
            }
        }
        Ok(())
    }

    /// How many products a wait for all but the last `but` groups is for.
    fn waited(&self, but: u32) -> usize {
        let groups = self.groups.len().saturating_sub(but as usize);
        self.groups.iter().take(groups).sum()
    }

    /// Registers may be used that a new product is of.
    fn check(&self, new: &Started) -> Result<(), ExecError> {
        if !self.fenced {
            return Err(wrong("no wgmma.fence comes before it, or none since registers of products were read or written"));
        }
        if new.words().any(|place| self.touched.has(place)) {
            return Err(wrong("a register of it was read or written since the last wgmma.fence"));
        }
        let share = |one: &[usize], other: &[usize]| one.iter().any(|place| other.contains(place));
        for other in &self.started {
            if share(new.factor(), &other.sums) || share(&new.sums, other.factor()) {
                return Err(wrong("a register of it is one of another wgmma.mma_async that wgmma.wait_group has not waited for"));
            }
            let shape = |of: &Started| (of.product.m, of.product.n, of.product.k, of.product.sum);
            let same = new.sums == other.sums;
            if same && shape(new) != shape(other) || !same && share(&new.sums, &other.sums) {
                return Err(wrong("sums of it are those of a wgmma.mma_async of another shape that wgmma.wait_group has not waited for"));
            }
        }
        Ok(())
    }

    fn start(&mut self, new: Started) {
        for place in new.words() {
            self.busy.add(place);
            self.used.add(place);
        }
        self.count += 1;
        self.open += 1;
        self.started.push_back(new);
    }

    /// Forgets what was waited for; returns what it was to the race check.
    fn wait(&mut self, but: u32) -> Vec<FlightId> {
        let waited = self.waited(but);
        let groups = self.groups.len().saturating_sub(but as usize);
        self.groups.drain(..groups);
        self.done -= waited;
        let flights = self.started.drain(..waited).filter_map(|started| started.race).collect();
        self.busy = Words::default();
        self.started.iter().flat_map(Started::words).for_each(|place| self.busy.add(place));
        flights
    }

    /// Does the next product, if there is one. `shared` is where the block's shared memory is.
    pub(super) fn advance(
        &mut self,
        adder: &Adder,
        registers: &mut Registers,
        (launch, shared): (&Launch, u64),
        (block, warp): (u32, usize),
        memory: &Memory,
        races: Option<&mut Races>,
    ) -> Result<(), Fault> {
        let Some(next) = self.started.get(self.done) else { return Ok(()) };
        self.done += 1;
        let done = next.multiply(adder, registers, launch.program.rank, shared, memory, races);
        let (function, pc) = next.at;
        done.map_err(|error| error.at(place(launch, block, warp, &launch.program.module.functions[function].code[pc])))
    }
}

impl Started {
    fn multiply(
        &self,
        adder: &Adder,
        registers: &mut Registers,
        rank: usize,
        shared: u64,
        memory: &Memory,
        mut races: Option<&mut Races>,
    ) -> Result<(), ExecError> {
        let Started { product, sums, .. } = self;
        let mut read = |chunks: &[u32]| self.read(chunks, rank, shared, memory, races.as_deref_mut());
        let a = match &self.a {
            Factor::Registers(places) => {
                rows(&places.iter().map(|&place| *registers.word(place)).collect::<Vec<Row<u32>>>(), product.a.bits(), true)
            }
            Factor::Shared(chunks) => rows_of(&read(chunks)?, product.a.bits(), self.transposed[0]),
        };
        let b = rows_of(&read(&self.b)?, product.b.bits(), self.transposed[1]);
        if let (Some(races), Some(race)) = (races, self.race) {
            races.land(race);
        }
        let (columns, halves) = (product.n as usize, product.sum == Type::F16);
        let mut values = match self.keeps {
            true => sums_of(&sums.iter().map(|&place| *registers.word(place)).collect::<Vec<Row<u32>>>(), columns, halves),
            false => vec![0; ROWS as usize * columns],
        };
        multiply(&adder.rule(Unit::Warpgroup, product)?, product.k as usize, [&a, &b], self.negated, &mut values);
        for (number, &place) in sums.iter().enumerate() {
            *registers.word_mut(place) = register_of(&values, columns, halves, number);
        }
        Ok(())
    }

    fn read(
        &self,
        chunks: &[u32],
        rank: usize,
        shared: u64,
        memory: &Memory,
        races: Option<&mut Races>,
    ) -> Result<Vec<[u8; 16]>, ExecError> {
        let failed = |error| ExecError::Access(None, error);
        let at = |chunk: u32| memory::Address(shared + u64::from(chunk));
        if let (Some(races), Some(race)) = (races, self.race) {
            let mut sorted = chunks.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            for stretch in sorted.chunk_by(|one, next| one + CHUNK == *next) {
                let bytes = u64::from(CHUNK) * stretch.len() as u64;
                let place = memory.resolve(at(stretch[0]), bytes, rank).map_err(failed)?;
                races.fly(race, place, bytes, false, true, None);
            }
        }
        chunks.iter().map(|&chunk| memory.load::<16>(at(chunk), rank).map_err(failed)).collect()
    }
}

/// What the warps of a warpgroup have to agree on: the instruction and its operands.
type Signature = ((usize, usize), [Option<u64>; 2], bool);

/// The products that some warps of a warpgroup have started and others have not.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreement {
    /// The number of the first of them.
    first: u64,
    /// Each with the warps that have started it, as bits.
    pending: VecDeque<(Signature, u8)>,
}

impl Agreement {
    /// A warp starts its product of this number.
    fn start(&mut self, warp: usize, number: u64, signature: Signature) -> Result<(), ExecError> {
        let index = (number - self.first) as usize;
        match self.pending.get_mut(index) {
            None => self.pending.push_back((signature, 1 << warp)),
            Some((other, came)) => {
                if *other != signature {
                    let what =
                        if other.0 != signature.0 { "they execute another" } else { "it has other descriptors there, or another scale-d" };
                    return Err(wrong(format!("other warps of its warpgroup do not execute the same: {what}")));
                }
                *came |= 1 << warp;
            }
        }
        while self.pending.front().is_some_and(|(_, came)| came.count_ones() as usize == WARPS) {
            self.pending.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// A warp that has started a product which others have not, and the function and operation.
    pub(super) fn unlike(&self) -> Option<(usize, (usize, usize))> {
        self.pending.front().map(|((at, ..), came)| (came.trailing_zeros() as usize, *at))
    }
}

/// The one value of all lanes.
fn uniform<T: Copy + PartialEq>(values: &[T; LANES], what: &str) -> Result<T, ExecError> {
    match values.iter().all(|value| *value == values[0]) {
        true => Ok(values[0]),
        false => Err(wrong(format!("{what} that is not the same in all threads of the warp"))),
    }
}

impl Executor<'_> {
    /// Notes the registers that an instruction touches which is no product.
    pub(super) fn watch_registers(&mut self) -> Result<(), ExecError> {
        let Some(products) = self.warp.products.as_deref_mut() else { return Ok(()) };
        let touched = self.launch.program.touched.get(self.frame.function).and_then(|operations| operations.get(self.pc));
        let bases = self.frame.bases.words;
        products.touch(touched.into_iter().flat_map(|words| words.iter()).map(|&word| bases + usize::from(word)))
    }

    /// Whether the products are done that `wgmma.wait_group` waits for.
    pub(super) fn products_are_done(&self, but: u32) -> bool {
        self.warp.products.as_deref().is_none_or(|products| products.waited(but) <= products.done)
    }

    /// Instructions of a warpgroup, all lanes of a warp of which are here.
    pub(super) fn of_warpgroup(&mut self, instruction: &Instruction) -> Result<(), ExecError> {
        match *instruction {
            Instruction::WarpgroupMultiply { product, negated, transposed, ref sums, ref a, b, keeps } => {
                self.start_product(product, (negated, transposed), sums, a, b, keeps)?;
            }
            Instruction::WarpgroupFence {} => {
                let products = self.warp.products.get_or_insert_default();
                (products.fenced, products.touched, products.used) = (true, Words::default(), products.busy.clone());
            }
            Instruction::WarpgroupCommit {} => {
                let products = self.warp.products.get_or_insert_default();
                products.groups.push_back(std::mem::take(&mut products.open));
            }
            Instruction::WarpgroupWait { groups } => {
                let flights = self.warp.products.as_deref_mut().map_or_else(Vec::new, |products| products.wait(groups));
                if let (Some(actor), false) = (self.block.actor, flights.is_empty()) {
                    let at = self.at(actor);
                    if let Some(races) = self.races.as_deref_mut() {
                        races.learn_products(at, &flights);
                    }
                }
            }
            _ => return Err(ExecError::unsupported(instruction.family())),
        }
        Ok(())
    }

    fn start_product(
        &mut self,
        product: MatrixProduct,
        (negated, transposed): ([bool; 2], [bool; 2]),
        sums: &[Register],
        a: &MatrixSource,
        b: Operand,
        keeps: Operand,
    ) -> Result<(), ExecError> {
        let registers = &self.warp.registers;
        let (group, warp) = (self.warp_index / WARPS, self.warp_index % WARPS);
        if ((group + 1) * WARPS * LANES) as u32 > self.launch.threads() {
            return Err(wrong(format!("it is an instruction of four warps, and the block has {} threads", self.launch.threads())));
        }
        let first = ROWS * warp as u32;
        let read = |operand: Operand| uniform(&registers.bits(operand), "a descriptor");
        let keeps = uniform(&registers.bits(keeps), "scale-d")? & 1 == 1;
        let chunks = |bits: u64, from: u32, count: u32, transposed: bool| -> Result<Vec<u32>, ExecError> {
            let chunks = Descriptor::of(bits)?.chunks(from, count, transposed);
            let (most, has) = (chunks.iter().copied().max().unwrap_or(0) + CHUNK, self.launch.shared_bytes);
            if u64::from(most) > has {
                return Err(wrong(format!(
                    "a descriptor {bits:#018x}, by which it reads up to byte {most} of the block's shared memory, which has {has}"
                )));
            }
            Ok(chunks)
        };
        let (a, a_bits) = match a {
            MatrixSource::Registers(of_a) => (Factor::Registers(of_a.iter().map(|&register| registers.place_of(register)).collect()), None),
            &MatrixSource::Shared(operand) => {
                let bits = read(operand)?;
                (Factor::Shared(chunks(bits, first, ROWS, transposed[0])?), Some(bits))
            }
        };
        let b_bits = read(b)?;
        let b = chunks(b_bits, 0, product.n, transposed[1])?;
        let sums = sums.iter().map(|&register| registers.place_of(register)).collect();
        let at = (self.frame.function, self.pc);
        let mut new = Started { product, negated, transposed, sums, a, b, keeps, race: None, at };
        let products = self.warp.products.get_or_insert_default();
        products.check(&new)?;
        let number = products.count;
        self.block.agreement(group).start(warp, number, (at, [a_bits, Some(b_bits)], keeps))?;
        new.race = match self.block.actor {
            Some(actor) => {
                let at = self.at(actor);
                self.races.as_deref_mut().and_then(|races| races.begin_product(at))
            }
            None => None,
        };
        self.warp.products.get_or_insert_default().start(new);
        Ok(())
    }
}
