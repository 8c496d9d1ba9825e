//! `multimem.ld_reduce`, `multimem.st` and `multimem.red` (PTX ISA 9.7.9.14).
//!
//! An address in a multicast window stands for one place on each replica. Each place is accessed on its own, in the order in which the window
//! lists its replicas, which in a group is that of the ranks.
//!
//! # Readings of the PTX ISA
//! Where the ISA is silent or leaves a choice, this is what was chosen.
//!
//! | matter | reading | source |
//! |---|---|---|
//! | order and rounding of sums | a mode of the machine: [`MultimemReduction`] | ISA multimem: order and rounding unspecified |
//! | precision of a sum without `.acc` | every addition rounds to the type of the data | ISA multimem, "intermediate accumulation" |
//! | `.acc::f32` | additions in f32, then one conversion to the type | the same; the conversion's rounding is open |
//! | `.acc::f16` of e4m3 and e5m2 | additions in f16, then one conversion to the type | the same |
//! | 8-bit results beyond the largest finite number | become that, as with `cvt.satfinite` | ISA silent |
//! | minima and maxima of f16, bf16, e4m3 and e5m2 | as min and max without `.NaN`: NaN loses, -0 below +0 | ISA silent |
//! | subnormals of f32 | kept, in `multimem.red` too, though `red` flushes them in global memory | ISA silent |
//! | overflow of integer sums | wraps | ISA silent, as atom |
//! | atomicity | one access a replica; all together are no single transaction | ISA 8.3 names no class of operation |
//! | vectors | one access of up to 16 bytes of a replica | ISA 8.2.2 leaves the order of elements open |
//! | `multimem.red` | one atomic read and write on each replica | the same |
//! | other address than one of a multicast window | an error, as is a window's in other instructions | ISA 8.2.3: undefined |

use super::{
    access::{Combiner, combined},
    arithmetic::{Adder, by_name},
    executor::Executor,
    fault::ExecError,
    registers::{LANES, Row, lanes_of},
};
use crate::{
    choice::Choice,
    memory::{self, GlobalAddr},
    numerics::{Bf16, F16, F32, F64, Float, Fp8, Mode, Rounding, exact_sum, float_to_float},
    races::Effect,
};
use passmuster_ptx::{Access, Address, AtomicOp, Operand, Register, Semantics, Type};

/// How `multimem.ld_reduce` adds floating-point numbers, which the PTX ISA leaves to the hardware. Integers, minima and maxima are the same in
/// every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultimemReduction {
    /// `((r0 + r1) + r2) + ...` in order of the ranks, rounding to nearest even at each addition: in f32 with `.acc::f32`, and then
    /// once more to the type of the data; without it in that type.
    #[default]
    RankAscending,
    /// The exact sum, rounded once to nearest even, with or without `.acc::f32`; a sum of zero is +0. Close to what was measured on GB200.
    ExactOnce,
    /// Anything that hardware may do: each access draws a tree of additions and one direction for all of its roundings, or the exact sum
    /// rounded once in that direction. Kernels that rely on one order, or on two reads of the same data being equal, differ from themselves.
    Bound,
}

impl MultimemReduction {
    /// Every mode.
    pub const ALL: [MultimemReduction; 3] = [MultimemReduction::RankAscending, MultimemReduction::ExactOnce, MultimemReduction::Bound];

    /// Its name on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            MultimemReduction::RankAscending => "rank_ascending",
            MultimemReduction::ExactOnce => "exact_once",
            MultimemReduction::Bound => "bound",
        }
    }
}

impl std::str::FromStr for MultimemReduction {
    type Err = String;
    fn from_str(name: &str) -> Result<MultimemReduction, String> {
        by_name(&MultimemReduction::ALL, MultimemReduction::name, "multimem reduction", name)
    }
}

/// How one access adds: all of its elements alike.
#[derive(Clone, Debug)]
enum Way {
    Ascending,
    Exact(Rounding),
    Tree(Choice, Rounding),
}

impl Adder {
    /// How the next access adds.
    fn way(&mut self) -> Way {
        match self.arithmetic.multimem {
            MultimemReduction::RankAscending => Way::Ascending,
            MultimemReduction::ExactOnce => Way::Exact(Rounding::Nearest),
            MultimemReduction::Bound => {
                let rounding = Rounding::ALL[self.choice.below(Rounding::ALL.len())];
                match self.choice.below(4) {
                    0 => Way::Exact(rounding),
                    _ => Way::Tree(Choice::of_seed(self.choice.draw()), rounding),
                }
            }
        }
    }
}

impl Way {
    /// The sum of terms in `F`, added in `A`.
    fn sum<F: Float, A: Float>(&self, terms: &[u64]) -> u64 {
        let wide = |term: &u64| float_to_float::<F, A>(F::lower(*term), Mode::NEAREST);
        let (sum, rounding) = match self {
            Way::Exact(rounding) => return F::raise(exact_sum::<F>(terms.iter().map(|&term| F::lower(term)), *rounding)),
            Way::Ascending => (terms.iter().map(wide).reduce(|a, b| A::add(a, b, Mode::NEAREST)), Rounding::Nearest),
            Way::Tree(choice, rounding) => {
                let mut choice = choice.clone();
                let mut parts: Vec<A::Bits> = terms.iter().map(wide).collect();
                while parts.len() > 1 {
                    let part = parts.swap_remove(choice.below(parts.len()));
                    let other = choice.below(parts.len());
                    parts[other] = A::add(part, parts[other], Mode::rounded(*rounding));
                }
                (parts.pop(), *rounding)
            }
        };
        F::raise(sum.map_or(F::lower(0), |sum| float_to_float::<A, F>(sum, Mode::rounded(rounding))))
    }

    /// The sum of 8-bit numbers, added in f16 where `wide` says so. Sums of two are exact in f64, in which they are computed, and so are those
    /// of all ranks.
    fn sum_of_fp8(&self, format: Fp8, wide: bool, terms: impl Iterator<Item = u8>) -> u8 {
        let widen = |half: u16| float_to_float::<F16, F64>(half, Mode::NEAREST);
        let exactly = |a, b| F64::add(a, b, Mode::NEAREST);
        let mut parts: Vec<u64> = terms.map(|term| widen(format.widened(term))).collect();
        let add = |a, b, rounding| match wide {
            true => widen(float_to_float::<F64, F16>(exactly(a, b), Mode::rounded(rounding))),
            false => widen(format.widened(format.rounded::<F64>(exactly(a, b), rounding))),
        };
        let (sum, rounding) = match self {
            // A sum of zero is +0.
            Way::Exact(rounding) => (Some(parts.into_iter().fold(0, exactly)), *rounding),
            Way::Ascending => (parts.into_iter().reduce(|a, b| add(a, b, Rounding::Nearest)), Rounding::Nearest),
            Way::Tree(choice, rounding) => {
                let mut choice = choice.clone();
                while parts.len() > 1 {
                    let part = parts.swap_remove(choice.below(parts.len()));
                    let other = choice.below(parts.len());
                    parts[other] = add(part, parts[other], *rounding);
                }
                (parts.pop(), *rounding)
            }
        };
        format.rounded::<F64>(sum.unwrap_or(0), rounding)
    }

    /// Each byte of an element of all replicas, reduced.
    fn reduce_fp8(&self, op: AtomicOp, (format, bytes): (Fp8, u32), wide: bool, terms: &[u64]) -> Result<u64, ExecError> {
        let mut reduced = 0;
        for at in (0..8 * bytes).step_by(8) {
            let bytes = terms.iter().map(|term| (term >> at) as u8);
            let byte = match op {
                AtomicOp::Add => self.sum_of_fp8(format, wide, bytes),
                _ => {
                    let halves = bytes.map(|byte| Ok(u64::from(format.widened(byte))));
                    let chosen = halves.reduce(|a, b| combined(op, Type::F16, a?, b?, Combiner::Thread)).unwrap_or(Ok(0))?;
                    format.rounded::<F16>(chosen as u16, Rounding::Nearest)
                }
            };
            reduced |= u64::from(byte) << at;
        }
        Ok(reduced)
    }

    /// One element of all replicas, reduced; `wide` is `.acc::f32`, or of 8-bit types `.acc::f16`.
    fn reduce(&self, (op, ty, wide): (AtomicOp, Type, bool), terms: &[u64]) -> Result<u64, ExecError> {
        match ty {
            Type::E4m3 | Type::E4m3x2 | Type::E4m3x4 => return self.reduce_fp8(op, (Fp8::E4m3, ty.bytes()), wide, terms),
            Type::E5m2 | Type::E5m2x2 | Type::E5m2x4 => return self.reduce_fp8(op, (Fp8::E5m2, ty.bytes()), wide, terms),
            _ => {}
        }
        let half = match (ty, wide) {
            (Type::F16 | Type::F16x2, false) => Way::sum::<F16, F16>,
            (Type::F16 | Type::F16x2, true) => Way::sum::<F16, F32>,
            (Type::Bf16 | Type::Bf16x2, false) => Way::sum::<Bf16, Bf16>,
            _ => Way::sum::<Bf16, F32>,
        };
        Ok(match (op, ty) {
            (AtomicOp::Add, Type::F32) => self.sum::<F32, F32>(terms),
            (AtomicOp::Add, Type::F64) => self.sum::<F64, F64>(terms),
            (AtomicOp::Add, Type::F16 | Type::Bf16) => half(self, terms),
            (AtomicOp::Add, Type::F16x2 | Type::Bf16x2) => {
                let upper: Vec<u64> = terms.iter().map(|term| term >> 16).collect();
                half(self, terms) | half(self, &upper) << 16
            }
            _ => {
                let reduced = terms.iter().map(|&term| Ok(term)).reduce(|a, b| combined(op, ty, a?, b?, Combiner::Thread));
                reduced.unwrap_or(Ok(0))?
            }
        })
    }
}

/// An element of a vector, in the low bits.
fn element<const N: usize>(bytes: &[u8; N], part: usize, width: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(&bytes[part * width..][..width]);
    u64::from_le_bytes(wide)
}

impl Executor<'_> {
    /// The places that a lane's access of `bytes` bytes stands for.
    fn replicas(&self, lane: usize, address: u64, bytes: usize) -> Result<Vec<GlobalAddr>, ExecError> {
        let places = self.memory.resolve_multicast(memory::Address(address), bytes as u64, self.rank());
        Ok(places.map_err(|error| ExecError::Access(Some(lane as u32), error))?.collect())
    }

    /// Tells the race check of an access: one a replica.
    fn touched_replicas(
        &mut self,
        lanes: u32,
        access: &Access,
        (ty, bytes): (Type, u32),
        addresses: &Row<u64>,
        effect: Effect,
    ) -> Result<(), ExecError> {
        if self.races.is_none() {
            return Ok(());
        }
        let mut of_replicas: Vec<Row<u64>> = Vec::new();
        for lane in lanes_of(lanes) {
            for (replica, place) in self.replicas(lane, addresses[lane], bytes as usize)?.into_iter().enumerate() {
                if of_replicas.len() <= replica {
                    of_replicas.push([0; LANES]);
                }
                of_replicas[replica][lane] = place.allocation.address().plus(place.offset).0;
            }
        }
        for addresses in of_replicas {
            self.touched(lanes, access, (ty, bytes, true), &addresses, effect);
        }
        Ok(())
    }

    /// `multimem.ld_reduce`. Returns whether it polls.
    pub(super) fn multimem_load_reduce(
        &mut self,
        lanes: u32,
        form: (AtomicOp, Type, bool),
        access: &Access,
        destinations: &[Option<Register>],
        address: Address,
    ) -> Result<bool, ExecError> {
        let bytes = form.1.bytes() * destinations.len() as u32;
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        let strong = access.semantics != Semantics::Weak;
        let polls = match bytes {
            4 => self.load_reduce_bytes::<4>(lanes, form, destinations, &addresses, strong),
            8 => self.load_reduce_bytes::<8>(lanes, form, destinations, &addresses, strong),
            16 => self.load_reduce_bytes::<16>(lanes, form, destinations, &addresses, strong),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched_replicas(lanes, access, (form.1, bytes), &addresses, Effect::Load)?;
        Ok(polls)
    }

    fn load_reduce_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        form: (AtomicOp, Type, bool),
        destinations: &[Option<Register>],
        addresses: &Row<u64>,
        strong: bool,
    ) -> Result<bool, ExecError> {
        let width = form.1.bytes() as usize;
        let mut values = [[0; N]; LANES];
        for lane in lanes_of(lanes) {
            let places = self.replicas(lane, addresses[lane], N)?;
            let loaded: Result<Vec<[u8; N]>, _> = places.iter().map(|&place| self.memory.load_at(place, self.rank())).collect();
            let loaded = loaded.map_err(|error| ExecError::Access(Some(lane as u32), error))?;
            let way = self.adder.way();
            for part in 0..destinations.len() {
                let terms: Vec<u64> = loaded.iter().map(|bytes| element(bytes, part, width)).collect();
                let reduced = way.reduce(form, &terms)?;
                values[lane][part * width..][..width].copy_from_slice(&reduced.to_le_bytes()[..width]);
            }
        }
        self.spread(lanes, form.1, destinations, &values);
        Ok(strong && self.polls(lanes, addresses, &values))
    }

    /// `multimem.st`.
    pub(super) fn multimem_store(
        &mut self,
        lanes: u32,
        ty: Type,
        access: &Access,
        address: Address,
        sources: &[Operand],
    ) -> Result<(), ExecError> {
        let bytes = ty.bytes() * sources.len() as u32;
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        match bytes {
            4 => self.multimem_store_bytes::<4>(lanes, ty, access, sources, &addresses),
            8 => self.multimem_store_bytes::<8>(lanes, ty, access, sources, &addresses),
            16 => self.multimem_store_bytes::<16>(lanes, ty, access, sources, &addresses),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched_replicas(lanes, access, (ty, bytes), &addresses, Effect::Store { agrees: false })
    }

    fn multimem_store_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        ty: Type,
        access: &Access,
        sources: &[Operand],
        addresses: &Row<u64>,
    ) -> Result<(), ExecError> {
        let values = self.gather::<N>(ty, sources);
        let author = self.author();
        self.release(access.semantics, access.scope);
        for lane in lanes_of(lanes) {
            for place in self.replicas(lane, addresses[lane], N)? {
                if access.semantics == Semantics::Weak {
                    self.memory.put_late(place, author, values[lane]);
                } else {
                    self.memory.publish_place(place);
                    self.memory.put(place, values[lane]);
                }
            }
        }
        self.turn.wrote = true;
        Ok(())
    }

    /// `multimem.red`.
    pub(super) fn multimem_reduce(
        &mut self,
        lanes: u32,
        form: (AtomicOp, Type),
        access: &Access,
        address: Address,
        sources: &[Operand],
    ) -> Result<(), ExecError> {
        let bytes = form.1.bytes() * sources.len() as u32;
        let addresses = self.addresses(access.space, address, lanes, bytes)?;
        self.release(access.semantics, access.scope);
        match bytes {
            4 => self.multimem_reduce_bytes::<4>(lanes, form, sources, &addresses),
            8 => self.multimem_reduce_bytes::<8>(lanes, form, sources, &addresses),
            16 => self.multimem_reduce_bytes::<16>(lanes, form, sources, &addresses),
            _ => Err(ExecError::unsupported(format!("an access of {bytes} bytes"))),
        }?;
        self.touched_replicas(lanes, access, (form.1, bytes), &addresses, Effect::Atomic { wrote: lanes, returns: false })
    }

    fn multimem_reduce_bytes<const N: usize>(
        &mut self,
        lanes: u32,
        (op, ty): (AtomicOp, Type),
        sources: &[Operand],
        addresses: &Row<u64>,
    ) -> Result<(), ExecError> {
        let operands = self.gather::<N>(ty, sources);
        let width = ty.bytes() as usize;
        for lane in lanes_of(lanes) {
            for place in self.replicas(lane, addresses[lane], N)? {
                self.memory.publish_place(place);
                let (old, new) = loop {
                    let old = self.memory.load_at::<N>(place, self.rank()).map_err(|error| ExecError::Access(Some(lane as u32), error))?;
                    let mut new = old;
                    for part in 0..sources.len() {
                        let result = combined(op, ty, element(&old, part, width), element(&operands[lane], part, width), Combiner::Thread)?;
                        new[part * width..][..width].copy_from_slice(&result.to_le_bytes()[..width]);
                    }
                    if self.memory.replace(place, old, new) {
                        break (old, new);
                    }
                };
                self.turn.wrote |= new != old;
            }
        }
        Ok(())
    }
}
