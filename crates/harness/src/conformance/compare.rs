//! Holding results against what the contract allows, and calls against each other. One scan goes over the elements of either; what is
//! wrong with an element is the caller's closure.

mod display;

use std::{ops::Range, thread};

use serde::{Deserialize, Serialize};

use super::{
    diagnosis::{Diagnosis, Evidence, diagnose},
    elements::{contribute, number, read, short, slice_of},
    inputs::{Payload, RankPayload},
    oracle::{Expected, oracle, same_bits, same_value},
    verdict::Place,
};
use passmuster_plan::{
    collective::{DType, Destination, Element, ReduceOp, Shape, Sources, largest, smallest_subnormal, unit_roundoff},
    contract::Contract,
    with_element,
};

/// Elements above which a scan uses several threads.
const THREADING_PAYS: u64 = 1 << 18;
/// The most wrong elements that are looked at one by one, evenly spread over all wrong ones.
const MOST_PLACES: usize = 512;
/// The most wrong elements that a report shows.
const MOST_SAMPLES: usize = 8;

/// How the results of a call differ from what its contract allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Elements of each rank's output.
    pub total: u64,
    /// Elements that are wrong on some rank.
    pub wrong: u64,
    /// Ranks with a wrong element.
    pub ranks: Vec<u32>,
    /// Whether all ranks have the same bytes.
    pub ranks_agree: bool,
    /// How elements were judged.
    pub judged: String,
    /// The first wrong element.
    pub first: ElementPos,
    /// The last wrong element.
    pub last: ElementPos,
    /// The first wrong elements, with what was expected.
    pub samples: Vec<Sample>,
    /// What would explain the wrong elements, best first.
    pub diagnosis: Vec<Diagnosis>,
    /// Explanations that fit hardly any of them.
    pub ruled_out: Vec<String>,
}

/// Where an element is. Packs are counted from the start of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementPos {
    /// Index of the element.
    pub index: u64,
    /// Byte offset in the output.
    pub byte: u64,
    /// Index of the 16-byte pack.
    pub pack: u64,
    /// Element within the pack.
    pub lane: u64,
    /// The rank that owns it where the elements are cut into one slice a rank, all but the last ones of `ceil(total / world)`. None in a
    /// collective of which each rank gets a part of its own.
    pub owner: Option<u64>,
}

impl ElementPos {
    /// The place of element `index` where each rank owns `slice` elements, if it does.
    fn new(index: u64, dtype: DType, slice: Option<u64>) -> ElementPos {
        let byte = index * dtype.size();
        ElementPos { index, byte, pack: byte / 16, lane: byte % 16 / dtype.size(), owner: slice.map(|slice| index / slice) }
    }
}

/// One wrong element.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Index of the element.
    pub index: u64,
    /// On which rank; the first of those that agree.
    pub rank: u32,
    /// What was expected: bits (where the contract decides them) and value.
    pub expected: Shown,
    /// What is there.
    pub got: Shown,
    /// `|got - expected|`, where both are finite.
    pub error: Option<f64>,
    /// The error in units of the last place of the expected value.
    pub ulps: Option<f64>,
    /// The largest error allowed; 0 where the result must be equal.
    pub bound: f64,
    /// What the ranks contributed, in rank order.
    pub inputs: Vec<String>,
    /// The first of those ranks: not 0 where elements of one rank are copied.
    pub from: u32,
}

/// An element for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The bits in hexadecimal, as wide as the type; empty where only a value is known.
    pub bits: String,
    /// The shortest decimal that names this value in its type.
    pub value: String,
}

impl Mismatch {
    /// The first wrong element that was looked at.
    pub fn place(&self) -> Option<Place> {
        let Sample { rank, index, ref expected, ref got, .. } = *self.samples.first()?;
        Some(Place { rank, element: index, bit: got.first_other_bit(expected) })
    }
}

impl Difference {
    /// The first element that differs, of this rank.
    pub fn place(&self, rank: u32) -> Option<Place> {
        let (element, want, got) = self.samples.first()?;
        Some(Place { rank, element: *element, bit: got.first_other_bit(want) })
    }
}

impl Shown {
    /// The lowest bit in which it differs from another, where both have bits.
    fn first_other_bit(&self, other: &Shown) -> Option<u32> {
        let bits = |shown: &Shown| u64::from_str_radix(shown.bits.strip_prefix("0x")?, 16).ok();
        let differ = bits(self)? ^ bits(other)?;
        (differ != 0).then(|| differ.trailing_zeros())
    }

    fn of<T: Element>(element: T) -> Shown {
        Shown { bits: format!("{:#01$x}", element.bits(), 2 + 2 * size_of::<T>()), value: text(element) }
    }
}

/// An element as a decimal number: all digits of an integer, the shortest that names a float.
fn text<T: Element>(element: T) -> String {
    if T::DTYPE.is_float() { decimal(T::DTYPE, element.to_f64()) } else { integer(element).to_string() }
}

/// The value of an integer.
fn integer<T: Element>(element: T) -> i128 {
    let above = 128 - 8 * T::DTYPE.size();
    let shifted = i128::from(element.bits()) << above;
    if T::DTYPE.is_signed() { shifted >> above } else { i128::from(element.bits()) }
}

/// The shortest decimal that is nearer to `value` than to its neighbours in the type.
fn decimal(dtype: DType, value: f64) -> String {
    let near = 0.25 * ulp(dtype, value);
    let shortest = (0..17).map(|digits| format!("{value:.digits$e}").parse().unwrap_or(value)).find(|x: &f64| (x - value).abs() < near);
    number(if value == 0.0 { value } else { shortest.unwrap_or(value) })
}

/// Compares the outputs of all ranks that get a result, little endian, with what the contract allows for the payload in a call of this shape.
/// Returns `None` where all conform.
///
/// # Panics
/// If there is not one output of [`Shape::output`] elements for each rank of the payload.
pub fn compare(contract: &Contract, op: ReduceOp, payload: &Payload, shape: &Shape, outputs: &[Vec<u8>]) -> Option<Mismatch> {
    assert_eq!((outputs.len(), shape.world), (payload.world as usize, payload.world), "one output a rank");
    for (rank, output) in outputs.iter().enumerate() {
        assert_eq!(output.len() as u64, shape.output() * payload.dtype.size(), "bytes of rank {rank}'s output");
    }
    with_element!(payload.dtype, T => compare_elements::<T>(contract, op, payload, shape, outputs))
}

fn compare_elements<T: Element>(
    contract: &Contract,
    op: ReduceOp,
    payload: &Payload,
    shape: &Shape,
    outputs: &[Vec<u8>],
) -> Option<Mismatch> {
    let oracle = oracle(contract, op, payload.dtype, payload.class);
    let ranks = payload.contributions(op);
    let all_alike = shape.collective.gives_all_ranks_the_same();
    let ranks_agree = all_alike && outputs.iter().all(|output| *output == outputs[0]);
    let judged = if ranks_agree { &outputs[..1] } else { outputs };
    let receivers = shape.receivers();
    let received: Vec<u64> = (0..shape.world).map(|rank| shape.received(rank)).collect();
    let tally = scan(shape.output(), |range, tally| {
        let mut inputs = Vec::with_capacity(ranks.len());
        for index in range {
            let mut wrong = 0;
            // Ranks that are to have the same are compared with one answer.
            for (group, outputs) in judged.chunks(if all_alike { judged.len() } else { 1 }).enumerate() {
                if !receivers.contains(&(group as u32)) || index >= received[group] {
                    continue;
                }
                inputs.clear();
                contribute(shape, &ranks, group as u32, index, &mut inputs);
                let expected = oracle.expect(&inputs);
                for (rank, output) in (group..).zip(outputs) {
                    wrong |= u128::from(!expected.accepts(read::<T>(output, index))) << rank;
                }
            }
            tally.add(index, wrong);
        }
    });
    let first = tally.first?;
    let evidence = Evidence::new(&oracle, op, payload, shape, outputs);
    let places: Vec<(u64, u32)> = tally.places.iter().flat_map(|&(index, mask)| ranks_in(mask).map(move |rank| (index, rank))).collect();
    let (diagnosis, ruled_out) = diagnose(&evidence, &places);
    let slice = all_alike.then(|| slice_of(shape.output(), shape.world.into()));
    Some(Mismatch {
        total: shape.output(),
        wrong: tally.wrong,
        ranks: if ranks_agree { (0..payload.world).collect() } else { ranks_in(tally.ranks).collect() },
        ranks_agree,
        judged: oracle.to_string(),
        first: ElementPos::new(first, payload.dtype, slice),
        last: ElementPos::new(tally.last, payload.dtype, slice),
        samples: samples(&tally.head, |index, rank| {
            let mut inputs: Vec<T> = Vec::new();
            contribute(shape, &ranks, rank, index, &mut inputs);
            let Sources { ranks: of, index: at } = shape.sources(rank, index);
            let from = of.start;
            let texts = of.map(|from| contribution_text::<T>(&ranks[from as usize], at)).collect();
            sample((index, rank), (from, texts), oracle.expect(&inputs), read(&outputs[rank as usize], index))
        }),
        diagnosis,
        ruled_out,
    })
}

fn samples<S>(head: &[(u64, u128)], sample: impl Fn(u64, u32) -> S) -> Vec<S> {
    head.iter().map(|&(index, mask)| sample(index, mask.trailing_zeros())).collect()
}

/// An input for people, with what it is multiplied by.
fn contribution_text<T: Element>(rank: &RankPayload, index: u64) -> String {
    let input = text(rank.input::<T>(index));
    rank.factor::<T>().map_or(input.clone(), |factor| format!("{input}*{}", text(factor)))
}

fn sample<T: Element>((index, rank): (u64, u32), (from, inputs): (u32, Vec<String>), expected: Expected<T>, got: T) -> Sample {
    let bounded = expected.shown().expect("nothing is wrong where nothing is promised");
    let error = match expected {
        // f64 does not tell all integers of 64 bits apart.
        Expected::Copy(want) | Expected::Bits(want) | Expected::Value(want) if !T::DTYPE.is_float() => {
            integer(got).abs_diff(integer(want)) as f64
        }
        _ => (got.to_f64() - bounded.exact).abs(),
    };
    Sample {
        index,
        rank,
        expected: match expected {
            Expected::Copy(want) | Expected::Bits(want) | Expected::Value(want) => Shown::of(want),
            Expected::OneOf { values, .. } => Shown::of(values[0]),
            Expected::Within(_) | Expected::Anything(_) => Shown { bits: String::new(), value: decimal(DType::F64, bounded.exact) },
        },
        got: Shown::of(got),
        error: error.is_finite().then_some(error),
        ulps: error.is_finite().then(|| error / ulp(T::DTYPE, bounded.exact)),
        bound: bounded.bound,
        inputs,
        from,
    }
}

/// The distance between numbers of the type around `value`.
fn ulp(dtype: DType, value: f64) -> f64 {
    if !dtype.is_float() {
        return 1.0;
    }
    // f64's own exponent serves every type: subnormal f64 have ulps of the smallest anyway.
    let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
    (2.0 * unit_roundoff(dtype) * f64::from(exponent).exp2()).max(smallest_subnormal(dtype))
}

/// What holds between the outputs of two calls, `base` and `other`. NaN are equal to each other throughout. `Third` is a third call's
/// output, or stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation<Third> {
    /// Equal to the bit.
    Equal,
    /// Equal as numbers: signs of zeros are not compared.
    EqualValue,
    /// Equal to the bit but for this element of this rank, or of every rank, whatever that is.
    EqualBut(Destination),
    /// `other = -base`. Signs of zeros are not compared.
    Negated,
    /// `other = base * 2^k`, as [`super::Transform::Scale`]. Elements that are subnormal or were so before they were rounded, or overflow, on
    /// either side are not compared to the bit: the former to within half of the smallest subnormal, scaled; the latter not at all.
    Scaled(i32),
    /// `other = base + this`, rounded once: exact for tagged payloads.
    Plus(Third),
}

/// How outputs that ought to be related are not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// What ought to hold.
    pub relation: String,
    /// Elements compared.
    pub total: u64,
    /// Elements that differ.
    pub wrong: u64,
    /// Where ranks are compared: those that differ from rank 0. Empty otherwise.
    pub ranks: Vec<u32>,
    /// The first element that differs; it has an owner where ranks were compared.
    pub first: ElementPos,
    /// The last element that differs.
    pub last: ElementPos,
    /// The first elements that differ: index, what ought to be there, what is.
    pub samples: Vec<(u64, Shown, Shown)>,
}

/// Where ranks' outputs differ from rank 0's. Returns `None` where they are equal to the bit, but for the payloads of NaN.
///
/// # Panics
/// If outputs differ in length.
pub fn ranks_disagree(outputs: &[Vec<u8>], dtype: DType) -> Option<Difference> {
    let (base, others) = outputs.split_first()?;
    assert!(others.iter().all(|other| other.len() == base.len()), "outputs differ in length");
    if others.iter().all(|other| other == base) {
        return None;
    }
    with_element!(dtype, T => {
        let tally = scan(elements(base, dtype), |range, tally| {
            for index in range {
                let want = read::<T>(base, index);
                let wrong = |rank: usize| u128::from(!same_bits(read(&outputs[rank], index), want)) << rank;
                tally.add(index, (1..outputs.len()).fold(0, |mask, rank| mask | wrong(rank)));
            }
        });
        let shown = |index, rank| (index, Shown::of(read::<T>(base, index)), Shown::of(read::<T>(&outputs[rank as usize], index)));
        let slice = slice_of(elements(base, dtype), outputs.len() as u64);
        difference("all ranks have the same bits", &tally, shown, elements(base, dtype), dtype, Some(slice))
            .map(|found| Difference { ranks: ranks_in(tally.ranks).collect(), ..found })
    })
}

/// Where the outputs of two calls on one rank are not related as they ought to be. Returns `None` where they are.
///
/// # Panics
/// If outputs differ in length.
pub fn relation_broken(relation: Relation<&[u8]>, dtype: DType, base: &[u8], other: &[u8]) -> Option<Difference> {
    assert_eq!(base.len(), other.len(), "outputs differ in length");
    if relation == Relation::Equal && base == other {
        return None;
    }
    with_element!(dtype, T => {
        let count = elements(base, dtype);
        let tally = scan(count, |range, tally| {
            for index in range {
                tally.add(index, u128::from(!related::<T>(relation, index, read(base, index), read(other, index))));
            }
        });
        let shown = |index, _| (index, Shown::of(relation.of::<T>(index, read(base, index))), Shown::of(read::<T>(other, index)));
        difference(&relation.name(), &tally, shown, count, dtype, None)
    })
}

impl<Third> Relation<Third> {
    /// What it comes to on one rank.
    pub fn on(self, rank: u32) -> Relation<Third> {
        match self {
            Relation::EqualBut(Destination { rank: Some(only), .. }) if only != rank => Relation::Equal,
            other => other,
        }
    }

    /// The same relation with the third call's output, where it has one, found by `find`.
    pub fn with_third<Found>(self, find: impl FnOnce(Third) -> Found) -> Relation<Found> {
        match self {
            Relation::Equal => Relation::Equal,
            Relation::EqualValue => Relation::EqualValue,
            Relation::EqualBut(element) => Relation::EqualBut(element),
            Relation::Negated => Relation::Negated,
            Relation::Scaled(exponent) => Relation::Scaled(exponent),
            Relation::Plus(third) => Relation::Plus(find(third)),
        }
    }
}

impl Relation<&[u8]> {
    /// What the other call's element ought to be.
    fn of<T: Element>(&self, index: u64, base: T) -> T {
        match *self {
            Relation::Equal | Relation::EqualValue | Relation::EqualBut(_) => base,
            Relation::Negated => base.negate(),
            Relation::Scaled(exponent) => T::narrow(T::scale(base.widen(), exponent)),
            Relation::Plus(addend) => T::narrow(T::add(base.widen(), read::<T>(addend, index).widen())),
        }
    }

    fn name(&self) -> String {
        match self {
            Relation::Equal => "equal to the bit".into(),
            Relation::EqualValue => "equal".into(),
            Relation::EqualBut(Destination { index, .. }) => format!("equal to the bit but for element {index}"),
            Relation::Negated => "the negated result".into(),
            Relation::Scaled(exponent) => format!("the result times 2^{exponent}"),
            Relation::Plus(_) => "the sum of the two results".into(),
        }
    }
}

fn related<T: Element>(relation: Relation<&[u8]>, index: u64, base: T, other: T) -> bool {
    let want = relation.of(index, base);
    match relation {
        Relation::EqualBut(free) if index == free.index => true,
        Relation::Equal | Relation::EqualBut(_) => same_bits(other, want),
        Relation::EqualValue | Relation::Negated | Relation::Plus(_) => same_value(other, want),
        Relation::Scaled(exponent) if T::DTYPE.is_float() => {
            let normal = T::of_bits(super::inputs::Format::of(T::DTYPE).normal).to_f64();
            let eta = smallest_subnormal(T::DTYPE);
            let overflowed = |x: &T| x.to_f64().is_infinite() || (T::DTYPE.saturates() && x.to_f64().abs() == largest(T::DTYPE));
            if [base, other, want].iter().any(overflowed) {
                true
            } else if base.to_f64().abs() <= normal || want.to_f64().abs() <= normal {
                (other.to_f64() - want.to_f64()).abs() <= 0.5 * eta * f64::from(exponent).exp2() + eta
            } else {
                same_bits(other, want)
            }
        }
        Relation::Scaled(_) => same_bits(other, want),
    }
}

fn difference(
    relation: &str,
    tally: &Tally,
    shown: impl Fn(u64, u32) -> (u64, Shown, Shown),
    total: u64,
    dtype: DType,
    slice: Option<u64>,
) -> Option<Difference> {
    Some(Difference {
        relation: relation.to_owned(),
        total,
        wrong: tally.wrong,
        ranks: Vec::new(),
        first: ElementPos::new(tally.first?, dtype, slice),
        last: ElementPos::new(tally.last, dtype, slice),
        samples: samples(&tally.head, shown),
    })
}

fn elements(bytes: &[u8], dtype: DType) -> u64 {
    bytes.len() as u64 / dtype.size()
}

fn ranks_in(mask: u128) -> impl Iterator<Item = u32> {
    (0..u128::BITS).filter(move |rank| mask >> rank & 1 == 1)
}

/// What a scan found wrong.
#[derive(Default)]
struct Tally {
    wrong: u64,
    /// Bit r: rank r has a wrong element.
    ranks: u128,
    first: Option<u64>,
    last: u64,
    /// The first wrong elements and the ranks where they are wrong.
    head: Vec<(u64, u128)>,
    /// Every `2^spacing`-th wrong element.
    places: Vec<(u64, u128)>,
    spacing: u32,
}

impl Tally {
    /// Notes which ranks are wrong at an index; indices ascend.
    fn add(&mut self, index: u64, ranks: u128) {
        if ranks == 0 {
            return;
        }
        self.first.get_or_insert(index);
        self.last = index;
        self.ranks |= ranks;
        if self.head.len() < MOST_SAMPLES {
            self.head.push((index, ranks));
        }
        if self.wrong.is_multiple_of(1 << self.spacing) {
            self.places.push((index, ranks));
        }
        self.wrong += 1;
        if self.places.len() > MOST_PLACES {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut keep = false;
        self.places.retain(|_| {
            keep = !keep;
            keep
        });
        self.spacing += 1;
    }

    /// Adds what was found in a later part.
    fn append(&mut self, mut later: Tally) {
        while self.spacing < later.spacing {
            self.thin();
        }
        while later.spacing < self.spacing {
            later.thin();
        }
        self.wrong += later.wrong;
        self.ranks |= later.ranks;
        if later.first.is_some() {
            self.first = self.first.or(later.first);
            self.last = later.last;
        }
        self.head.extend(later.head);
        self.head.truncate(MOST_SAMPLES);
        self.places.extend(later.places);
        if self.places.len() > MOST_PLACES {
            self.thin();
        }
    }
}

/// Goes over all elements, on several threads where that pays.
fn scan(count: u64, judge: impl Fn(Range<u64>, &mut Tally) + Sync) -> Tally {
    let threads = if count < THREADING_PAYS { 1 } else { thread::available_parallelism().map_or(1, |n| n.get() as u64) };
    let each = count.div_ceil(threads).max(1);
    let part = |part: u64| {
        let mut tally = Tally::default();
        judge(part * each..count.min((part + 1) * each), &mut tally);
        tally
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|n| scope.spawn(move || part(n))).collect();
        let mut tally = part(0);
        for other in others {
            tally.append(other.join().expect("judging an element does not panic"));
        }
        tally
    })
}

#[cfg(test)]
mod tests;
