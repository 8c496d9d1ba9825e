//! The registers of a warp: a row of 32 lanes for every slot.
//!
//! Operations are closures on one lane's values, applied to all lanes in a loop without branches; what inactive lanes compute is dropped
//! where the row is written. Closures must therefore be defined on any bits. Only what is too slow for that goes lane by lane.

use passmuster_ptx::{Class, Condition, Operand, Register, RegisterCounts};

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// A value of each lane.
pub(super) type Row<T> = [T; LANES];

/// Where a frame's slots start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Bases {
    pub(super) predicates: usize,
    pub(super) words: usize,
    pub(super) longs: usize,
    pub(super) quads: usize,
}

impl Bases {
    /// Where the frame above one with `counts` slots starts.
    pub(super) fn above(self, counts: RegisterCounts) -> Bases {
        Bases {
            predicates: self.predicates + usize::from(counts.predicates),
            words: self.words + usize::from(counts.words),
            longs: self.longs + usize::from(counts.longs),
            quads: self.quads + usize::from(counts.quads),
        }
    }
}

/// All slots of a warp, of all frames, and which frame is executed.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Registers {
    pub(super) bases: Bases,
    predicates: Vec<u32>,
    words: Vec<Row<u32>>,
    longs: Vec<Row<u64>>,
    quads: Vec<Row<u128>>,
}

/// What a slot of one class holds.
pub(super) trait Slot: Copy + Default + 'static {
    fn of_bits(bits: u64) -> Self;
    fn row(registers: &Registers, index: u16) -> &Row<Self>;
    fn row_mut(registers: &mut Registers, index: u16) -> &mut Row<Self>;
}

macro_rules! slot {
    ($ty:ty, $rows:ident) => {
        impl Slot for $ty {
            #[inline(always)]
            fn of_bits(bits: u64) -> $ty {
                bits as $ty
            }
            #[inline(always)]
            fn row(registers: &Registers, index: u16) -> &Row<$ty> {
                &registers.$rows[registers.bases.$rows + usize::from(index)]
            }
            #[inline(always)]
            fn row_mut(registers: &mut Registers, index: u16) -> &mut Row<$ty> {
                &mut registers.$rows[registers.bases.$rows + usize::from(index)]
            }
        }
    };
}

slot!(u32, words);
slot!(u64, longs);
slot!(u128, quads);

/// The lanes of a set, ascending.
pub(super) fn lanes_of(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = lanes.trailing_zeros();
        lanes &= lanes.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// A value of each lane. Unlike [`std::array::from_fn`] and `map` it is always inlined, and the loop over lanes becomes one of vectors.
#[inline(always)]
pub(super) fn row_of<T: Copy + Default>(f: impl Fn(usize) -> T) -> Row<T> {
    let mut row = [T::default(); LANES];
    for (lane, value) in row.iter_mut().enumerate() {
        *value = f(lane);
    }
    row
}

/// A source's row, or its constant in every lane. The last name is a place for the latter.
macro_rules! source {
    ($registers:expr, $operand:expr, $ty:ty, $splat:ident) => {
        match $operand {
            Operand::Register(register) => <$ty as Slot>::row($registers, register.index),
            Operand::Immediate(bits) => {
                $splat = [<$ty as Slot>::of_bits(bits); LANES];
                &$splat
            }
        }
    };
}

impl Registers {
    /// Makes room for a frame that starts at `bases`.
    pub(super) fn reserve(&mut self, bases: Bases, counts: RegisterCounts) {
        let top = bases.above(counts);
        self.predicates.resize(self.predicates.len().max(top.predicates), 0);
        self.words.resize(self.words.len().max(top.words), [0; LANES]);
        self.longs.resize(self.longs.len().max(top.longs), [0; LANES]);
        self.quads.resize(self.quads.len().max(top.quads), [0; LANES]);
    }

    /// The place of a word among those of all frames.
    pub(super) fn place_of(&self, register: Register) -> usize {
        self.bases.words + usize::from(register.index)
    }

    /// The word at a place among those of all frames.
    pub(super) fn word(&self, place: usize) -> &Row<u32> {
        &self.words[place]
    }

    /// The same, to be written.
    pub(super) fn word_mut(&mut self, place: usize) -> &mut Row<u32> {
        &mut self.words[place]
    }

    /// The lanes where a predicate register holds.
    #[inline(always)]
    pub(super) fn predicate(&self, register: Register) -> u32 {
        self.predicates[self.bases.predicates + usize::from(register.index)]
    }

    /// The lanes where a condition holds, inactive ones included.
    #[inline(always)]
    pub(super) fn condition(&self, condition: Condition) -> u32 {
        let holds = self.predicate(condition.register);
        if condition.negated { !holds } else { holds }
    }

    /// Sets a predicate register in some lanes.
    #[inline(always)]
    pub(super) fn set_predicate(&mut self, register: Register, lanes: u32, holds: u32) {
        let predicate = &mut self.predicates[self.bases.predicates + usize::from(register.index)];
        *predicate = *predicate & !lanes | holds & lanes;
    }

    /// Sets a register in some lanes.
    #[inline(always)]
    pub(super) fn write<T: Slot>(&mut self, register: Register, lanes: u32, values: &Row<T>) {
        let row = T::row_mut(self, register.index);
        if lanes == u32::MAX {
            *row = *values;
        } else {
            for (lane, (old, &new)) in row.iter_mut().zip(values).enumerate() {
                *old = if lanes >> lane & 1 == 1 { new } else { *old };
            }
        }
    }

    /// A copy of a source's values.
    #[inline(always)]
    pub(super) fn read<T: Slot>(&self, operand: Operand) -> Row<T> {
        let splat;
        *source!(self, operand, T, splat)
    }

    /// `destination = f(a)` in every lane.
    #[inline(always)]
    pub(super) fn map<A: Slot, D: Slot>(&mut self, lanes: u32, destination: Register, a: Operand, f: impl Fn(A) -> D) {
        let x;
        let a = source!(self, a, A, x);
        let result = row_of(|lane| f(a[lane]));
        self.write(destination, lanes, &result);
    }

    /// `destination = f(a, b)` in every lane.
    #[inline(always)]
    pub(super) fn map2<A: Slot, B: Slot, D: Slot>(
        &mut self,
        lanes: u32,
        destination: Register,
        [a, b]: [Operand; 2],
        f: impl Fn(A, B) -> D,
    ) {
        let (x, y);
        let (a, b) = (source!(self, a, A, x), source!(self, b, B, y));
        let result = row_of(|lane| f(a[lane], b[lane]));
        self.write(destination, lanes, &result);
    }

    /// `destination = f(a, b, c)` in every lane.
    #[inline(always)]
    pub(super) fn map3<A: Slot, B: Slot, C: Slot, D: Slot>(
        &mut self,
        lanes: u32,
        destination: Register,
        [a, b, c]: [Operand; 3],
        f: impl Fn(A, B, C) -> D,
    ) {
        let (x, y, z);
        let (a, b, c) = (source!(self, a, A, x), source!(self, b, B, y), source!(self, c, C, z));
        let result = row_of(|lane| f(a[lane], b[lane], c[lane]));
        self.write(destination, lanes, &result);
    }

    /// `destination = f(a)` in active lanes only: for what is slow.
    #[inline(always)]
    pub(super) fn each<A: Slot, D: Slot>(&mut self, lanes: u32, destination: Register, a: Operand, f: impl Fn(A) -> D) {
        let x;
        let a = source!(self, a, A, x);
        let mut result = [D::default(); LANES];
        lanes_of(lanes).for_each(|lane| result[lane] = f(a[lane]));
        self.write(destination, lanes, &result);
    }

    /// `destination = f(a, b)` in active lanes only: for what is slow.
    #[inline(always)]
    pub(super) fn each2<A: Slot, B: Slot, D: Slot>(
        &mut self,
        lanes: u32,
        destination: Register,
        [a, b]: [Operand; 2],
        f: impl Fn(A, B) -> D,
    ) {
        let (x, y);
        let (a, b) = (source!(self, a, A, x), source!(self, b, B, y));
        let mut result = [D::default(); LANES];
        lanes_of(lanes).for_each(|lane| result[lane] = f(a[lane], b[lane]));
        self.write(destination, lanes, &result);
    }

    /// `destination = f(a, b, c)` in active lanes only: for what is slow.
    #[inline(always)]
    pub(super) fn each3<T: Slot>(&mut self, lanes: u32, destination: Register, [a, b, c]: [Operand; 3], f: impl Fn(T, T, T) -> T) {
        let (x, y, z);
        let (a, b, c) = (source!(self, a, T, x), source!(self, b, T, y), source!(self, c, T, z));
        let mut result = [T::default(); LANES];
        lanes_of(lanes).for_each(|lane| result[lane] = f(a[lane], b[lane], c[lane]));
        self.write(destination, lanes, &result);
    }

    /// The lanes where `f(a, b)` holds, inactive ones included.
    #[inline(always)]
    pub(super) fn test2<T: Slot>(&self, [a, b]: [Operand; 2], f: impl Fn(T, T) -> bool) -> u32 {
        let (x, y);
        let (a, b) = (source!(self, a, T, x), source!(self, b, T, y));
        let holds: Row<u32> = row_of(|lane| u32::from(f(a[lane], b[lane])) << lane);
        holds.iter().fold(0, |bits, bit| bits | bit)
    }

    /// The low 64 bits of a source of any class; a predicate's are 0 and 1.
    pub(super) fn bits(&self, operand: Operand) -> Row<u64> {
        match operand {
            Operand::Immediate(bits) => [bits; LANES],
            Operand::Register(register) => match register.class {
                Class::Predicate => {
                    let holds = self.predicate(register);
                    row_of(|lane| u64::from(holds >> lane & 1))
                }
                Class::Word => {
                    let row = u32::row(self, register.index);
                    row_of(|lane| u64::from(row[lane]))
                }
                Class::Long => *u64::row(self, register.index),
                Class::Quad => {
                    let row = u128::row(self, register.index);
                    row_of(|lane| row[lane] as u64)
                }
            },
        }
    }

    /// All bits of a source of any class.
    pub(super) fn wide_bits(&self, operand: Operand) -> Row<u128> {
        match operand {
            Operand::Register(register) if register.class == Class::Quad => *u128::row(self, register.index),
            _ => {
                let bits = self.bits(operand);
                row_of(|lane| u128::from(bits[lane]))
            }
        }
    }

    /// Sets a register of any class to the low bits of the values.
    pub(super) fn write_bits(&mut self, register: Register, lanes: u32, values: &Row<u64>) {
        match register.class {
            Class::Predicate => {
                let holds = values.iter().enumerate().fold(0, |bits, (lane, value)| bits | ((value & 1) as u32) << lane);
                self.set_predicate(register, lanes, holds);
            }
            Class::Word => self.write(register, lanes, &row_of(|lane| values[lane] as u32)),
            Class::Long => self.write(register, lanes, values),
            Class::Quad => self.write(register, lanes, &row_of(|lane| u128::from(values[lane]))),
        }
    }

    /// Sets a register of any class to the low bits of one value.
    pub(super) fn fill(&mut self, register: Register, lanes: u32, value: u128) {
        match register.class {
            Class::Predicate => self.set_predicate(register, lanes, if value & 1 == 1 { u32::MAX } else { 0 }),
            Class::Word => self.write(register, lanes, &[value as u32; LANES]),
            Class::Long => self.write(register, lanes, &[value as u64; LANES]),
            Class::Quad => self.write(register, lanes, &[value; LANES]),
        }
    }

    /// Sets a register of any class to values of up to 128 bits.
    pub(super) fn write_wide_bits(&mut self, register: Register, lanes: u32, values: &Row<u128>) {
        match register.class {
            Class::Quad => self.write(register, lanes, values),
            _ => self.write_bits(register, lanes, &row_of(|lane| values[lane] as u64)),
        }
    }
}
