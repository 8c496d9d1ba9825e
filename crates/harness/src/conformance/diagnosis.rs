//! What is wrong with wrong elements. Every hypothesis is an equality test: the result that some bug would give, from the inputs drawn
//! again, against what is there. Those that explain the most are reported with the share they explain; the rest is ruled out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    elements::{short, slice_of},
    inputs::{Format, InputClass, Payload, RankPayload},
    oracle::Oracle,
};
use numbers::{Bits, Numbers};
use passmuster_plan::{
    collective::{DType, ReduceOp, Shape, largest, unit_roundoff},
    machine::CANARY,
};

mod numbers;

/// An explanation and the share of the wrong elements that it explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// For people: `rank 3's contribution is missing`.
    pub explanation: String,
    /// 0 to 1.
    pub coverage: f64,
}

/// The most explanations that are reported.
const MOST_EXPLANATIONS: usize = 3;
/// An explanation of less than this share is no explanation.
const WORTH_SAYING: f64 = 0.2;
/// One of less than this is ruled out. Between the two, or of less than half of the best one's share, it fits by chance.
const RULED_OUT: f64 = 0.02;
/// Elements of a tile, as kernels commonly cut them.
const TILE: i64 = 4096;
/// A hypothesis that fits none of this many elements, evenly spread, is not tried on the others.
const TRIAL: usize = 32;
/// The most wrong elements that hypotheses are tried on.
const MOST_SITES: usize = 512;

/// Families that are about zeros themselves; what any other says is a zero, many bugs would make one.
const ABOUT_ZEROS: [&str; 4] = [SIGN_OF_ZERO, FLUSHED, NAN_LOST, ZERO];
const SIGN_OF_ZERO: &str = "sign of zero";
const FLUSHED: &str = "flushed subnormals";
const NAN_LOST: &str = "NaN lost";
const ZERO: &str = "zero";
/// This many explained zeros are no chance.
const SEVERAL: usize = 4;

/// What is known about a call whose result is wrong.
pub(super) struct Evidence<'a> {
    oracle: &'a Oracle,
    dtype: DType,
    numbers: &'static dyn Numbers,
    op: ReduceOp,
    payload: &'a Payload,
    shape: &'a Shape,
    outputs: &'a [Vec<u8>],
    ranks: Vec<RankPayload>,
    previous: Option<Vec<RankPayload>>,
}

/// One wrong element of one rank.
struct Site {
    index: u64,
    rank: u32,
    got: Bits,
    inputs: Vec<Bits>,
    /// The rank-ascending reference, rounded once.
    reference: Bits,
}

type Fits<'a> = Box<dyn Fn(&Site) -> bool + 'a>;

struct Hypothesis<'a> {
    /// What is ruled out when nothing of it fits.
    family: &'static str,
    explanation: String,
    fits: Fits<'a>,
}

struct Hypotheses<'a>(Vec<Hypothesis<'a>>);

impl Hypothesis<'_> {
    /// The sites that it explains; none where that may well be chance, for no more than a zero or two, or the sign of some, is explained.
    fn explained(&self, sites: &[Site], numbers: &dyn Numbers) -> usize {
        let fitting = || sites.iter().filter(|site| (self.fits)(site));
        // Those that are wrong by more than the sign of a zero.
        let telling = || fitting().filter(|site| !numbers.same_value(site.got, site.reference));
        let is_zero = |site: &Site| numbers.value(site.got) == 0.0;
        let is_chance = !ABOUT_ZEROS.contains(&self.family) && telling().all(is_zero) && telling().count() < SEVERAL;
        if is_chance { 0 } else { fitting().count() }
    }
}

impl<'a> Hypotheses<'a> {
    fn add(&mut self, family: &'static str, explanation: impl Into<String>, fits: impl Fn(&Site) -> bool + 'a) {
        self.0.push(Hypothesis { family, explanation: explanation.into(), fits: Box::new(fits) });
    }
}

/// Explains the wrong elements at `places` (index and rank): the best explanations, and the families that are ruled out.
pub(super) fn diagnose(evidence: &Evidence<'_>, places: &[(u64, u32)]) -> (Vec<Diagnosis>, Vec<String>) {
    let sites: Vec<Site> =
        places.iter().step_by(places.len().div_ceil(MOST_SITES).max(1)).map(|&(index, rank)| evidence.site(index, rank)).collect();
    let trial = sites.len().div_ceil(TRIAL).max(1);
    let mut families: Vec<(&'static str, f64)> = Vec::new();
    let mut found: Vec<Diagnosis> = Vec::new();
    for hypothesis in evidence.hypotheses(&sites) {
        let plausible = sites.iter().step_by(trial).any(|site| (hypothesis.fits)(site));
        let fitting = if plausible { hypothesis.explained(&sites, evidence.numbers) } else { 0 };
        let coverage = fitting as f64 / sites.len().max(1) as f64;
        match families.iter_mut().find(|(family, _)| *family == hypothesis.family) {
            Some((_, most)) => *most = most.max(coverage),
            None => families.push((hypothesis.family, coverage)),
        }
        if coverage >= WORTH_SAYING {
            found.push(Diagnosis { explanation: hypothesis.explanation, coverage });
        }
    }
    // Stable: of two that explain as much, the more specific one stands first.
    found.sort_by(|a, b| b.coverage.total_cmp(&a.coverage));
    let best = found.first().map_or(0.0, |best| best.coverage);
    found.retain(|other| other.coverage > 0.5 * best);
    found.truncate(MOST_EXPLANATIONS);
    // Where no input is special, nobody thinks of it.
    let is_thought_of = |family: &str| family != SIGN_OF_ZERO || evidence.payload.class == InputClass::Special;
    let ruled_out = families.into_iter().filter(|(family, most)| *most < RULED_OUT && is_thought_of(family));
    (found, ruled_out.map(|(family, _)| family.to_owned()).collect())
}

impl<'a> Evidence<'a> {
    pub(super) fn new(oracle: &'a Oracle, op: ReduceOp, payload: &'a Payload, shape: &'a Shape, outputs: &'a [Vec<u8>]) -> Evidence<'a> {
        let ranks_of = |payload: &Payload| payload.contributions(op);
        Evidence {
            oracle,
            dtype: payload.dtype,
            numbers: numbers::of(payload.dtype),
            op,
            payload,
            shape,
            outputs,
            ranks: ranks_of(payload),
            previous: payload.call.checked_sub(1).map(|call| ranks_of(&payload.of_call(call))),
        }
    }

    fn site(&self, index: u64, rank: u32) -> Site {
        let inputs = self.inputs(rank, index);
        let reference = self.numbers.reduced(self.op, &inputs);
        Site { index, rank, got: self.numbers.read(&self.outputs[rank as usize], index), inputs, reference }
    }

    /// What element `index` of `rank`'s output is made of.
    fn inputs(&self, rank: u32, index: u64) -> Vec<Bits> {
        self.inputs_of(&self.ranks, rank, index)
    }

    /// The same of another call's payload.
    fn inputs_of(&self, ranks: &[RankPayload], rank: u32, index: u64) -> Vec<Bits> {
        self.numbers.inputs(self.shape, ranks, rank, index)
    }

    /// What `from` would contribute to an element if it were one of those that it is made of: its element of the same index.
    fn contribution(&self, ranks: &[RankPayload], from: usize, rank: u32, index: u64) -> Bits {
        self.numbers.contribution(&ranks[from], self.shape.sources(rank, index).index)
    }

    /// Whether `got` is what the contract allows for other inputs.
    fn allows(&self, inputs: &[Bits], got: Bits) -> bool {
        // What parts leave of an output is made of nothing.
        !inputs.is_empty() && self.numbers.promised(self.oracle, inputs, got)
    }

    /// Whether `got` is the reduction of these, in their order, to the bit.
    fn is_reduced(&self, op: ReduceOp, inputs: &[Bits], got: Bits) -> bool {
        self.numbers.same_bits(got, self.numbers.reduced(op, inputs))
    }

    /// Elements of a rank's slice where there is one slice a rank.
    fn slice(&self) -> u64 {
        slice_of(self.shape.output(), self.ranks.len() as u64)
    }

    /// The index `distance` further, if there is such an element.
    fn moved(&self, index: u64, distance: i64) -> Option<u64> {
        index.checked_add_signed(distance).filter(|moved| *moved < self.shape.output())
    }

    fn hypotheses(&'a self, sites: &[Site]) -> Vec<Hypothesis<'a>> {
        let mut all = Hypotheses(Vec::new());
        self.signs_of_zero(&mut all);
        self.specials(&mut all);
        self.slots(&mut all);
        if self.op.reduces() {
            self.misplaced_ranks(&mut all);
        }
        if self.op == ReduceOp::PremulSum {
            self.factors(&mut all);
        }
        self.stale(&mut all);
        self.misplaced_elements(&mut all);
        self.not_written(&mut all);
        if self.op.reduces() {
            self.never_reduced(&mut all);
            self.arithmetic(&mut all, sites);
        }
        self.bits(&mut all);
        all.0
    }

    fn signs_of_zero(&'a self, all: &mut Hypotheses<'a>) {
        if !self.dtype.is_float() {
            return;
        }
        let minus = Format::of(self.dtype).sign;
        for (explanation, got, expected) in [("+0 where -0 was expected", 0, minus), ("-0 where +0 was expected", minus, 0)] {
            all.add(SIGN_OF_ZERO, explanation, move |site| (site.got, site.reference) == (got, expected));
        }
    }

    fn specials(&'a self, all: &mut Hypotheses<'a>) {
        if self.payload.class != InputClass::Special || !self.dtype.is_float() {
            return;
        }
        let Format { sign, normal, infinity, .. } = Format::of(self.dtype);
        let (op, numbers) = (self.op, self.numbers);
        let flush = move |x: Bits| if x & !sign < normal { x & sign } else { x };
        all.add(FLUSHED, "subnormals are flushed to zero", move |site| {
            let inputs: Vec<Bits> = site.inputs.iter().map(|x| flush(*x)).collect();
            let flushed = numbers.reduced(op, &inputs);
            numbers.same_bits(site.got, flush(flushed)) || numbers.same_bits(site.got, flushed)
        });
        let is_nan = move |x: Bits| numbers.value(x).is_nan();
        all.add(NAN_LOST, "a NaN was lost", move |site| is_nan(site.reference) && !is_nan(site.got));
        if !op.reduces() {
            all.add("NaN payload", "a NaN has another payload", move |site| is_nan(site.reference) && is_nan(site.got));
        }
        if self.dtype.saturates() {
            all.add("saturation", "an infinity or a NaN instead of the largest finite number", |site| {
                numbers.value(site.reference).abs() == largest(self.dtype) && !numbers.value(site.got).is_finite()
            });
        } else {
            all.add("saturation", "the largest finite number instead of an infinity", move |site| {
                Some(site.reference & !sign) == infinity && numbers.value(site.got).abs() == largest(self.dtype)
            });
        }
    }

    /// Where ranks have slots, or elements are one rank's: one was taken for another.
    fn slots(&'a self, all: &mut Hypotheses<'a>) {
        if self.shape.slots() == (1, 1) && self.op.reduces() {
            return;
        }
        for k in 0..self.ranks.len() {
            if !self.op.reduces() {
                all.add("wrong slot", format!("rank {k}'s input stands there"), move |site| {
                    site.got == self.contribution(&self.ranks, k, site.rank, site.index)
                });
            }
            if !self.shape.collective.gives_all_ranks_the_same() {
                all.add("wrong slot", format!("the result that rank {k} should have"), move |site| {
                    self.allows(&self.inputs(k as u32, site.index), site.got)
                });
            }
        }
    }

    fn misplaced_ranks(&'a self, all: &mut Hypotheses<'a>) {
        let world = self.ranks.len();
        if world < 2 {
            return;
        }
        for k in 0..world {
            all.add("missing rank", format!("rank {k}'s contribution is missing"), move |site| {
                let mut inputs = site.inputs.clone();
                // An average without a rank is still divided by the world size.
                if self.op == ReduceOp::Avg {
                    inputs[k] = 0;
                } else {
                    inputs.remove(k);
                }
                self.allows(&inputs, site.got)
            });
        }
        if !self.op.rounds() {
            return;
        }
        for k in 0..world {
            for missing in (0..world).filter(|missing| *missing != k) {
                let explanation = format!("rank {k} is counted twice, rank {missing} not at all");
                all.add("duplicate rank", explanation, move |site| {
                    let mut inputs = site.inputs.clone();
                    inputs[missing] = inputs[k];
                    self.allows(&inputs, site.got)
                });
            }
            all.add("duplicate rank", format!("rank {k} is counted twice"), move |site| {
                let mut inputs = site.inputs.clone();
                inputs.push(inputs[k]);
                inputs.len() <= passmuster_plan::plan::MAX_RANKS && self.op != ReduceOp::Avg && self.allows(&inputs, site.got)
            });
        }
    }

    /// Of pre-multiplied sums: a rank, or all, did not multiply, did so twice, or took a factor that is another rank's.
    fn factors(&'a self, all: &mut Hypotheses<'a>) {
        let (world, numbers) = (self.ranks.len(), self.numbers);
        let factors: Vec<Bits> = self.ranks.iter().map(|rank| numbers.factor(rank)).collect();
        let one = numbers.one();
        // What the ranks multiply by, once and again.
        let mut add = |explanation: String, once: Vec<Bits>, again: Vec<Bits>| {
            all.add("factor", explanation, move |site| {
                let index = self.shape.sources(site.rank, site.index).index;
                let product = |rank: usize| numbers.product(&self.ranks[rank], index, [once[rank], again[rank]]);
                self.allows(&(0..world).map(product).collect::<Vec<Bits>>(), site.got)
            });
        };
        let nothing = vec![one; world];
        add("no rank has multiplied".into(), nothing.clone(), nothing.clone());
        add("every rank has multiplied twice".into(), factors.clone(), factors.clone());
        let with = |of: &[Bits], rank: usize, factor: Bits| (0..world).map(|at| if at == rank { factor } else { of[at] }).collect();
        for k in 0..world {
            add(format!("rank {k} has not multiplied"), with(&factors, k, one), nothing.clone());
            add(format!("rank {k} has multiplied twice"), factors.clone(), with(&nothing, k, factors[k]));
            if world > 1 {
                add(format!("every rank has rank {k}'s factor"), vec![factors[k]; world], nothing.clone());
            }
            for other in (0..world).filter(|other| *other != k) {
                add(format!("rank {k} has rank {other}'s factor"), with(&factors, k, factors[other]), nothing.clone());
            }
        }
    }

    fn stale(&'a self, all: &mut Hypotheses<'a>) {
        let (Some(previous), Some(call)) = (&self.previous, self.payload.call.checked_sub(1)) else { return };
        all.add("stale call", format!("the result of call {call}, the one before"), move |site| {
            self.allows(&self.inputs_of(previous, site.rank, site.index), site.got)
        });
        if !self.op.reduces() {
            return;
        }
        for k in 0..previous.len() {
            all.add("stale call", format!("rank {k}'s data is that of call {call}, the one before"), move |site| {
                let mut inputs = site.inputs.clone();
                inputs[k] = self.contribution(previous, k, site.rank, site.index);
                self.allows(&inputs, site.got)
            });
        }
    }

    fn misplaced_elements(&'a self, all: &mut Hypotheses<'a>) {
        let (lanes, slice, world) = (16 / self.dtype.size(), self.slice(), self.ranks.len() as u64);
        let distances: BTreeSet<i64> = [1, lanes as i64, TILE, slice as i64].into_iter().flat_map(|d| [d, -d]).collect();
        for &distance in &distances {
            all.add("shift", format!("element i holds the result of element i{distance:+}"), move |site| {
                self.moved(site.index, distance).is_some_and(|from| self.allows(&self.inputs(site.rank, from), site.got))
            });
            for k in (0..self.ranks.len()).filter(|_| self.op.reduces()) {
                all.add("shift", format!("element i has rank {k}'s element i{distance:+}"), move |site| {
                    let Some(from) = self.moved(site.index, distance) else { return false };
                    let mut inputs = site.inputs.clone();
                    inputs[k] = self.contribution(&self.ranks, k, site.rank, from);
                    self.allows(&inputs, site.got)
                });
            }
        }
        let with_slices = if self.shape.collective.gives_all_ranks_the_same() { world } else { 0 };
        for a in 0..with_slices {
            for b in a + 1..world {
                all.add("swapped slices", format!("the slices of ranks {a} and {b} are swapped"), move |site| {
                    let owner = site.index / slice;
                    let other = if owner == a { b } else { a };
                    let from = other * slice + site.index % slice;
                    (owner == a || owner == b) && from < self.shape.output() && self.allows(&self.inputs(site.rank, from), site.got)
                });
            }
        }
        all.add("lanes", "the result of another lane of the 16-byte pack", move |site| {
            let pack = site.index / lanes * lanes;
            let others = (pack..self.shape.output().min(pack + lanes)).filter(|other| *other != site.index);
            others.into_iter().any(|other| self.allows(&self.inputs(site.rank, other), site.got))
        });
    }

    fn not_written(&'a self, all: &mut Hypotheses<'a>) {
        for (byte, what) in [(CANARY, "canary"), (0xff, "poison"), (0x7b, "poison")] {
            let pattern = self.numbers.read(&[byte; 8], 0);
            let explanation = format!("not written: the {what} byte {byte:#04x} is still there");
            all.add("not written", explanation, move |site| site.got == pattern);
        }
        all.add(ZERO, "zero", |site| site.got == 0 && self.numbers.value(site.reference) != 0.0);
    }

    fn never_reduced(&'a self, all: &mut Hypotheses<'a>) {
        if self.ranks.len() < 2 {
            return;
        }
        if self.outputs.iter().any(|output| *output != self.outputs[0]) {
            all.add("unreduced input", "each rank's own input, not reduced", |site| {
                self.numbers.same_bits(site.got, site.inputs[site.rank as usize])
            });
        }
        for k in 0..self.ranks.len() {
            all.add("unreduced input", format!("rank {k}'s input alone"), move |site| self.numbers.same_bits(site.got, site.inputs[k]));
        }
    }

    fn arithmetic(&'a self, all: &mut Hypotheses<'a>, sites: &[Site]) {
        let (op, numbers) = (self.op, self.numbers);
        if op.adds() && self.dtype.is_float() {
            all.add("rounding", "rounded to the element type at every addition, in rank order", move |site| {
                numbers.same_bits(site.got, numbers.reduced_per_hop(op, &site.inputs))
            });
            all.add("rounding", "truncated instead of rounded to nearest", move |site| {
                op == ReduceOp::Sum && numbers.same_bits(site.got, numbers.sum_truncated(&site.inputs))
            });
            let rotated = move |site: &Site, by: usize| {
                let mut inputs = site.inputs.clone();
                inputs.rotate_left(by);
                self.is_reduced(op, &inputs, site.got)
            };
            let slice = self.slice();
            all.add("order", "added in another order: the slice's owner first, then round", move |site| {
                rotated(site, (site.index / slice) as usize)
            });
            all.add("order", "added in another order: each rank itself first, then round", move |site| rotated(site, site.rank as usize));
            all.add("order", "added in descending rank order", move |site| {
                let inputs: Vec<Bits> = site.inputs.iter().rev().copied().collect();
                self.is_reduced(op, &inputs, site.got)
            });
            all.add("order", "added in another order: one of the rotations", move |site| {
                (1..site.inputs.len()).any(|by| rotated(site, by))
            });
        }
        for other in ReduceOp::ALL.into_iter().filter(|other| *other != op) {
            let explanation = match (op, other) {
                (ReduceOp::Avg, ReduceOp::Sum) => "not divided by the world size".to_owned(),
                (ReduceOp::Sum, ReduceOp::Avg) => "divided by the world size: the avg instead of the sum".to_owned(),
                _ => format!("the {other} instead of the {op}"),
            };
            all.add("operator", explanation, move |site| self.is_reduced(other, &site.inputs, site.got));
        }
        if op == ReduceOp::Avg {
            all.add("scale", "divided by the world size twice", move |site| {
                numbers.same_value(site.got, numbers.divided(site.reference, site.inputs.len() as u32))
            });
        }
        // Less than the slack from 1 is an error of rounding, not of scale.
        let slack = 8.0 * unit_roundoff(self.dtype);
        if let Some(factor) = self.common_factor(sites).filter(|factor| (factor - 1.0).abs() > 1.5 * slack) {
            all.add("scale", format!("the result times {factor:.4}"), move |site| {
                let (got, want) = (numbers.value(site.got), numbers.value(site.reference) * factor);
                got != 0.0 && got.is_finite() && (got - want).abs() <= slack * want.abs()
            });
        }
    }

    /// The factor between result and reference at the largest reference, where there are enough elements for that to mean something.
    fn common_factor(&self, sites: &[Site]) -> Option<f64> {
        let values = sites.iter().map(|site| (self.numbers.value(site.got), self.numbers.value(site.reference)));
        let finite = values.filter(|(got, reference)| got.is_finite() && reference.is_finite());
        let (got, reference) = finite.max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))?;
        let factor = got / reference;
        (sites.len() >= 4 && factor.is_finite() && factor != 0.0).then_some(factor)
    }

    fn bits(&'a self, all: &mut Hypotheses<'a>) {
        all.add("one ulp", "one ulp off", |site| site.got.abs_diff(site.reference) == 1);
        all.add("bit flip", "one bit is flipped", |site| (site.got ^ site.reference).count_ones() == 1);
    }
}

impl std::fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} % of wrong elements fit)", self.explanation, short((self.coverage * 1000.0).floor() / 10.0))
    }
}

#[cfg(test)]
mod tests;
