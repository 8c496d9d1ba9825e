//! What cases run on: payload = f(seed, rank, index, call), by one integer hash that kernels/conformance/inputs.cuh repeats on devices to
//! the bit. Nothing is stored: code that checks a result, or says what is wrong with it, draws the inputs again.
//!
//! No class suffices alone: tagged sums are exact and show misplaced data but hide rounding, natural data
//! shows roundings but hides order, probes show order, special values show what is done to NaN, -0, infinities and subnormals. Every call
//! has a payload of its own, since stale data that repeats is bit for bit the right data.

use std::{fmt, ops::Range, str::FromStr, thread};

use serde::{Deserialize, Serialize};

use passmuster_plan::{
    abi::enumeration,
    collective::{DType, Drawn, Element, ReduceOp, from_name, largest_bits, multiplied},
    plan::{Arg, Launch, Op, Region},
    with_element,
    words::UnknownName,
};

/// What kind of values ranks contribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InputClass {
    /// Integers so small that sums, and sums of two payloads' sums, are exact in every order. Of types that hold too few of them for all ranks,
    /// some ranks have zeros, in turn.
    Tagged,
    /// Sums of four uniform numbers: mean 0, standard deviation 1.155, within -4 to 4. Integers: all bits, so that sums wrap.
    Natural,
    /// One rank holds a large value, another its opposite, the others small ones: what is added between the two is lost, so the
    /// result tells the order. All small for fewer than three ranks. Sums of `e4m3` are exact in f32, and tell a sum in f16. Integers: all
    /// bits.
    Probe,
    /// NaN, infinities, signed zeros, subnormals, overflow, ties, and the bit patterns that kernels reserve. Integers: the extremes.
    Special,
}

impl InputClass {
    /// Every class, in the order of reports.
    pub const ALL: [InputClass; 4] = [InputClass::Tagged, InputClass::Natural, InputClass::Probe, InputClass::Special];

    /// The name in case ids and reports.
    pub const fn name(self) -> &'static str {
        match self {
            InputClass::Tagged => "tagged",
            InputClass::Natural => "natural",
            InputClass::Probe => "probe",
            InputClass::Special => "special",
        }
    }

    /// `Class` of inputs.cuh.
    const fn code(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for InputClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for InputClass {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<InputClass, UnknownName> {
        from_name(&InputClass::ALL, name, "input class", |c| c.name())
    }
}

/// What a payload is in relation to the one without transform: properties that compare two calls use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transform {
    /// The payload itself.
    #[default]
    None,
    /// Every element with the other sign: the sign bit flipped, integers wrapping.
    Negate,
    /// Every element times this power of two, -126 to 127; integers modulo their width, wrapping. Special values stay as they are.
    Scale(i32),
    /// Plus the payload of this other call, element by element, rounded to the element type: exact for tagged payloads. Special values
    /// stay as they are.
    Plus(u32),
    /// One element of one rank comes from another call.
    Flip {
        /// Whose element.
        rank: u32,
        /// Which.
        index: u64,
    },
}

impl Transform {
    /// What kernels call each, in the order of their numbers.
    const NAMES: [&str; 5] = ["NONE", "NEGATE", "SCALE", "PLUS", "FLIP"];

    /// The number that a kernel gets.
    const fn code(self) -> u32 {
        match self {
            Transform::None => 0,
            Transform::Negate => 1,
            Transform::Scale(_) => 2,
            Transform::Plus(_) => 3,
            Transform::Flip { .. } => 4,
        }
    }
}

/// What inputs and the kernel that makes them agree on: the text of kernels/conformance/abi.cuh, but for what kernels of orders leave.
pub(crate) fn header() -> String {
    let classes = InputClass::ALL.map(|class| (class.name().to_uppercase(), u64::from(class.code())));
    let classes: Vec<(&str, u64)> = classes.iter().map(|(name, code)| (&**name, *code)).collect();
    let transforms: Vec<(&str, u64)> = Transform::NAMES.into_iter().zip(0..).collect();
    [
        enumeration("What kind of values an input has.", "Class", &classes),
        enumeration("What an input is in relation to the one without transform.", "Transform", &transforms),
    ]
    .concat()
}

/// The inputs of all ranks in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// What kind of values.
    pub class: InputClass,
    /// Type of the elements.
    pub dtype: DType,
    /// Number of ranks; classes depend on it, so that sums stay exact.
    pub world: u32,
    /// Seed of the case.
    pub seed: u64,
    /// Number of the call in the case, below 2^31.
    pub call: u32,
    /// What was done to it.
    pub transform: Transform,
}

/// Elements above which bytes are made by several threads.
const THREADING_PAYS: u64 = 1 << 20;

impl Payload {
    /// Element `index` of what `rank` contributes.
    ///
    /// # Panics
    /// If `T` is not the payload's type.
    pub fn element<T: Element>(&self, rank: u32, index: u64) -> T {
        assert_eq!(T::DTYPE, self.dtype, "the payload's type");
        self.rank(rank).element(index)
    }

    /// A range of elements of what `rank` contributes.
    ///
    /// # Panics
    /// If `T` is not the payload's type.
    pub fn elements<T: Element>(&self, rank: u32, range: Range<u64>) -> Vec<T> {
        assert_eq!(T::DTYPE, self.dtype, "the payload's type");
        let drawn = self.rank(rank);
        range.map(|index| drawn.element(index)).collect()
    }

    /// A range of elements of what `rank` contributes, little endian.
    pub fn bytes(&self, rank: u32, range: Range<u64>) -> Vec<u8> {
        let size = self.dtype.size() as usize;
        let count = range.end.saturating_sub(range.start);
        let mut bytes = vec![0; count as usize * size];
        let threads = if count < THREADING_PAYS { 1 } else { thread::available_parallelism().map_or(1, |n| n.get()) };
        let each = (count as usize).div_ceil(threads).max(1);
        with_element!(self.dtype, T => {
            let drawn = &self.rank(rank);
            let write = |start: u64, part: &mut [u8]| {
                for (index, bytes) in (start..).zip(part.chunks_exact_mut(size)) {
                    bytes.copy_from_slice(&drawn.element::<T>(index).bits().to_le_bytes()[..size]);
                }
            };
            thread::scope(|scope| {
                let mut parts = (range.start..).step_by(each).zip(bytes.chunks_mut(each * size));
                let own = parts.next();
                for (start, part) in parts {
                    scope.spawn(move || write(start, part));
                }
                if let Some((start, part)) = own {
                    write(start, part);
                }
            });
        });
        bytes
    }

    /// The launch by which `rank` writes elements `0..count` of its payload to `region`: the bits of [`Payload::bytes`].
    ///
    /// # Panics
    /// If the region is not `count` elements long.
    pub fn fill(&self, rank: u32, region: Region, count: u64) -> Op {
        assert_eq!(region.bytes, count * self.dtype.size(), "{region} is not {count} elements of {}", self.dtype);
        let transform = match self.transform {
            Transform::Flip { rank: flipped, .. } if flipped != rank => Transform::None,
            of_rank => of_rank,
        };
        let argument = match transform {
            Transform::None | Transform::Negate => 0,
            Transform::Scale(exponent) => i64::from(exponent) as u64,
            Transform::Plus(call) => u64::from(call),
            Transform::Flip { index, .. } => index,
        };
        Op::Launch(Launch {
            module: "conformance/fill".into(),
            entry: format!("fill_{}", self.dtype),
            grid: (count.div_ceil(u64::from(FILL_THREADS)).clamp(1, 1024) as u32).into(),
            block: FILL_THREADS.into(),
            cluster: None,
            dynamic_shared: 0,
            waits_for_peers: false,
            programmatic: false,
            registers: None,
            variables: Vec::new(),
            args: vec![
                Arg::Address(region),
                Arg::U64(count),
                Arg::U64(self.seed),
                Arg::U32(self.class.code()),
                Arg::U32(rank),
                Arg::U32(self.world),
                Arg::U32(self.call),
                Arg::U32(transform.code()),
                Arg::U64(argument),
            ],
        })
    }

    /// The bits of what `rank` multiplies its elements by in a pre-multiplied sum: the same in all calls of a case. At most 1 in magnitude, so that
    /// products overflow nowhere where elements do not; of integers any number.
    pub fn factor(&self, rank: u32) -> u64 {
        let drawn = |rank| Source::new(&Payload { class: InputClass::Natural, ..*self }, rank, FACTORS);
        with_element!(self.dtype, T => match self.class {
            _ if !T::DTYPE.is_float() => drawn(rank).natural::<T>(0).bits(),
            // Exact, and so are sums of such products. None is as good as another, or as none, or as itself twice.
            InputClass::Tagged => {
                let turn = (u64::from(rank) + word(drawn(COMMON).own, 0, 0)) % 3;
                let [halves, sign] = [[1, -1], [1, 1], [2, -1]][turn as usize];
                T::narrow(T::scale(T::from_i64(halves * sign), -1)).bits()
            }
            // All ranks have one, or the large pair of a probe would not cancel.
            InputClass::Probe => quarter(drawn(COMMON).natural::<T>(0)).bits(),
            InputClass::Natural | InputClass::Special => quarter(drawn(rank).natural::<T>(0)).bits(),
        })
    }

    /// The same payload of another call.
    pub fn of_call(&self, call: u32) -> Payload {
        Payload { call, ..*self }
    }

    /// What one rank contributes, with everything that does not depend on the index at hand.
    pub(super) fn rank(&self, rank: u32) -> RankPayload {
        let other = match self.transform {
            Transform::Plus(call) => call,
            _ => self.call ^ OTHER_CALL,
        };
        let (base, other) = (Source::new(self, rank, self.call), Source::new(self, rank, other));
        RankPayload { base, other, transform: self.transform, factor: None }
    }

    /// What each rank contributes to a reduction: in a pre-multiplied sum, its products.
    pub(super) fn contributions(&self, op: ReduceOp) -> Vec<RankPayload> {
        let factor = |rank| (op == ReduceOp::PremulSum).then(|| self.factor(rank));
        (0..self.world).map(|rank| RankPayload { factor: factor(rank), ..self.rank(rank) }).collect()
    }
}

/// Threads of a block of the filling kernel.
const FILL_THREADS: u32 = 256;
/// Where a flipped element comes from: no case has that many calls.
const OTHER_CALL: u32 = 0x8000_0000;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// In a call's place: what factors are drawn from. No case has that many calls.
const FACTORS: u32 = 0x7fff_ffff;
/// In a rank's place: what all ranks draw alike.
const COMMON: u32 = u32::MAX;

/// The finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn key(seed: u64, who: u32, call: u32) -> u64 {
    mix(seed ^ mix((u64::from(who) << 32 | u64::from(call)).wrapping_add(GOLDEN)))
}

/// Words 0 and 1 of an element.
fn word(key: u64, index: u64, k: u64) -> u64 {
    mix(key.wrapping_add(index.wrapping_mul(2).wrapping_add(k).wrapping_mul(GOLDEN)))
}

/// What one rank contributes to one call, transform included.
pub(super) struct RankPayload {
    base: Source,
    other: Source,
    transform: Transform,
    /// What every element is multiplied by, if it is.
    factor: Option<u64>,
}

impl RankPayload {
    /// What it contributes at `index`.
    pub(super) fn element<T: Element>(&self, index: u64) -> T {
        let input = self.input(index);
        self.factor.map_or(input, |factor| multiplied(input, T::of_bits(factor)))
    }

    /// The factor, where there is one.
    pub(super) fn factor<T: Element>(&self) -> Option<T> {
        self.factor.map(T::of_bits)
    }

    /// What its input has at `index`.
    pub(super) fn input<T: Element>(&self, index: u64) -> T {
        let special = self.base.class == InputClass::Special;
        match self.transform {
            Transform::Negate => self.base.draw::<T>(index).negate(),
            Transform::Scale(exponent) if !special => T::narrow(T::scale(self.base.draw::<T>(index).widen(), exponent)),
            Transform::Plus(_) if !special => T::narrow(T::add(self.base.draw::<T>(index).widen(), self.other.draw::<T>(index).widen())),
            Transform::Flip { rank, index: flipped } if rank == self.base.rank && flipped == index => self.other.draw(index),
            Transform::None | Transform::Scale(_) | Transform::Plus(_) | Transform::Flip { .. } => self.base.draw(index),
        }
    }
}

/// What one rank draws in one call.
struct Source {
    class: InputClass,
    own: u64,
    common: u64,
    rank: u32,
    world: u32,
}

/// The largest magnitude of a tagged element, and how many of `world` ranks have elements other than zero. Two sums of that many such elements
/// add up exactly.
pub(super) fn tagged_reach(dtype: DType, world: u32) -> (u64, u32) {
    let half = (1u64 << dtype.drawn().tagged_bits) / 2;
    let reach = (half / u64::from(world)).max(1);
    (reach, u64::from(world).min(half / reach) as u32)
}

impl Source {
    fn new(payload: &Payload, rank: u32, call: u32) -> Source {
        Source {
            class: payload.class,
            own: key(payload.seed, rank, call),
            common: key(payload.seed, COMMON, call),
            rank,
            world: payload.world,
        }
    }

    fn draw<T: Element>(&self, index: u64) -> T {
        match (self.class, T::DTYPE) {
            (InputClass::Tagged, _) => self.tagged(index),
            (InputClass::Natural, _) => self.natural(index),
            (InputClass::Probe, dtype) if dtype.is_float() => self.probe(index),
            (InputClass::Probe, _) => T::of_bits(word(self.own, index, 0)),
            (InputClass::Special, dtype) if dtype.is_float() => {
                self.special_bits(dtype, index).map_or_else(|| self.natural(index), T::of_bits)
            }
            (InputClass::Special, _) => self.special_integer(index),
        }
    }

    fn tagged<T: Element>(&self, index: u64) -> T {
        let (reach, holders) = tagged_reach(T::DTYPE, self.world);
        let turn = (u64::from(self.rank) + word(self.common, index, 0)) % u64::from(self.world);
        if holders < self.world && turn >= u64::from(holders) {
            return T::of_bits(0);
        }
        let drawn = ((u128::from(word(self.own, index, 0)) * u128::from(2 * reach + 1)) >> 64) as i64;
        T::narrow(T::from_i64(if T::DTYPE.is_signed() { drawn - reach as i64 } else { drawn }))
    }

    fn natural<T: Element>(&self, index: u64) -> T {
        let word_0 = word(self.own, index, 0);
        if !T::DTYPE.is_float() {
            return T::of_bits(high_bits(T::DTYPE, word_0));
        }
        let high = (word_0 & 0xffff) + (word_0 >> 16 & 0xffff) + (word_0 >> 32 & 0xffff) + (word_0 >> 48);
        let sum = ((high << 44) + (word(self.own, index, 1) >> 20)) as i64 - ((131_070 << 44) + (1 << 43));
        T::narrow(T::scale(T::from_i64(sum), -59))
    }

    fn probe<T: Element>(&self, index: u64) -> T {
        let Drawn { large, counts: count, small, .. } = T::DTYPE.drawn();
        let times_two_to = |value: i64, exponent| T::narrow(T::scale(T::from_i64(value), exponent));
        if self.world >= 3 {
            let (first, second) = pick(word(self.common, index, 0), self.world);
            if self.rank == first {
                return times_two_to(1, large);
            }
            if self.rank == second {
                return times_two_to(-1, large);
            }
        }
        let drawn = word(self.common, index, 1);
        // An odd stride: eight ranks in a row differ.
        let turn = self.rank.wrapping_mul((drawn >> 3) as u32 | 1).wrapping_add(drawn as u32) & 7;
        times_two_to(i64::from(1 + turn % count), small)
    }

    /// The bits of a special element, or none where it is natural. Where a type has no infinity its largest number takes the place.
    fn special_bits(&self, dtype: DType, index: u64) -> Option<u64> {
        let format = Format::of(dtype);
        let Format { sign, largest, normal, one, half_ulp, width, .. } = format;
        let infinity = format.infinity.unwrap_or(largest);
        let (common, own) = (word(self.common, index, 0), word(self.own, index, 0));
        let (first, second) = pick(common, self.world);
        let (is_first, is_second) = (self.rank == first, self.rank == second);
        let common_sign = if common & 1 == 1 { sign } else { 0 };
        let small = 1 + own % (normal - 1).min(7);
        let nan = format.nan(own);
        // Neighbours share a situation, so that reserved 32-bit words appear in narrower types too.
        let shared = if width == 8 { 2 } else { 1 };
        let situation = word(self.common, index >> shared, 1);
        match situation >> 60 {
            0 => Some(sign),
            1 => Some(if is_first { 0 } else { sign }),
            2 => is_first.then_some(nan),
            3 => Some(nan),
            4 => is_first.then_some(infinity),
            5 => is_first.then_some(infinity | sign),
            6 if is_first => Some(infinity),
            6 => is_second.then_some(infinity | sign),
            7 => Some(largest | common_sign),
            8 => Some(match (self.rank + self.world - first) % self.world {
                0 | 1 => largest,
                2 => largest | sign,
                _ => 0,
            }),
            9 => Some(small | common_sign),
            // In 8 bits, ranks with more than the smallest would soon have more than the first.
            10 if is_first => Some(normal),
            10 if width == 8 => Some(sign | 1),
            10 => Some(sign | small),
            11 => is_first.then_some(match width {
                8 => u64::from(index & 3 == 3) << 7,
                16 => (index & 1) << 15,
                32 => 0x8000_0000,
                _ => 0x8000_0000_8000_0000,
            }),
            12 => is_first.then_some({
                let bits = 8 * dtype.size();
                RARE_WORDS[(situation >> 58 & 3) as usize] >> (bits * index % 32) & u64::MAX >> (64 - bits)
            }),
            13 if is_first => Some(one),
            14 if is_first => Some(one + 1),
            13 | 14 => Some(if is_second { half_ulp } else { 0 }),
            _ => None,
        }
    }

    fn special_integer<T: Element>(&self, index: u64) -> T {
        let (drawn, top) = (word(self.own, index, 0), 1u64 << (8 * T::DTYPE.size() - 1));
        T::of_bits(match drawn & 7 {
            0 => top,
            1 => top - 1,
            2 => u64::MAX,
            3 => 0,
            4 => 1,
            5 => top | 1,
            6 => top - 2,
            _ => high_bits(T::DTYPE, drawn),
        })
    }
}

/// Words of 32 bits, each twice, that kernels of packs without flags have for something else: TensorRT-LLM's for a slot with nothing in it, and the three of
/// `kernels/common/lamport.cuh`. Narrower elements have a part of one each.
const RARE_WORDS: [u64; 4] = [0xfffa_fffa_fffa_fffa, u64::MAX, 0x7fff_ffff_7fff_ffff, 0x7fff_fffe_7fff_fffe];

/// Of a natural number, at most 1 in magnitude.
fn quarter<T: Element>(natural: T) -> T {
    T::narrow(T::scale(natural.widen(), -2))
}

/// The highest bits of a drawn word, as many as the type has.
fn high_bits(dtype: DType, drawn: u64) -> u64 {
    drawn >> (64 - 8 * dtype.size())
}

/// Two different ranks from a common word; the same one twice where there is only one.
fn pick(common: u64, world: u32) -> (u32, u32) {
    let world = u64::from(world);
    let first = ((common >> 32) * world) >> 32;
    let second = first + 1 + (((common & 0xffff_ffff) * (world - 1)) >> 32);
    (first as u32, (if second >= world { second - world } else { second }) as u32)
}

/// Bit patterns of a float type.
pub(super) struct Format {
    pub(super) sign: u64,
    /// `e4m3` has none.
    pub(super) infinity: Option<u64>,
    /// The largest finite number.
    pub(super) largest: u64,
    /// The smallest normal number.
    pub(super) normal: u64,
    /// A quiet NaN, and the bits that its payload may have besides.
    quiet: u64,
    payload: u64,
    one: u64,
    /// Half of the distance between one and the next number.
    half_ulp: u64,
    width: u32,
}

impl Format {
    pub(super) const fn of(dtype: DType) -> Format {
        let (width, precision) = (8 * dtype.size() as u32, dtype.precision());
        let bias = (1u64 << (width - precision - 1)) - 1;
        let (sign, normal) = (1 << (width - 1), 1 << (precision - 1));
        let infinity = sign - normal;
        // Without infinities, only the last pattern is no number.
        let (infinity, quiet, payload) =
            if dtype.has_infinity() { (Some(infinity), infinity | normal >> 1, (normal >> 1) - 1) } else { (None, sign - 1, 0) };
        let largest = largest_bits(dtype);
        let (one, half_ulp) = (bias << (precision - 1), (bias - precision as u64) << (precision - 1));
        Format { sign, infinity, largest, normal, quiet, payload, one, half_ulp, width }
    }

    /// A quiet NaN, with what it may have of this payload.
    pub(super) const fn nan(&self, payload: u64) -> u64 {
        self.quiet | payload & self.payload
    }

    /// What overflows: an infinity, or the largest number of a type that saturates.
    pub(super) const fn overflow(&self, dtype: DType) -> u64 {
        match self.infinity {
            Some(infinity) if !dtype.saturates() => infinity,
            _ => self.largest,
        }
    }
}

#[cfg(test)]
mod tests;
