//! Matrices of products: what they hold, and what becomes of it.

use std::{fmt, str::FromStr};

use crate::conformance::{
    inputs::{InputClass, mix},
    oracle::{Expected, oracle},
};
use passmuster_plan::{
    algorithms::TensorParallelFusion,
    collective::{Bounded, Element, Product, ReduceOp, Roundings, from_name, smallest_subnormal, unit_roundoff},
    contract::Contract,
    words::UnknownName,
};

/// Which numbers matrices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numbers {
    /// From -4 to 4: sums of up to 2^20 products are exact in f32, in every order.
    Integers,
    /// Multiples of 2^-23 from -1 to 1, rounded to the type.
    Fractions,
}

impl Numbers {
    /// Both.
    pub const ALL: [Numbers; 2] = [Numbers::Integers, Numbers::Fractions];

    /// The name in ids.
    pub const fn name(self) -> &'static str {
        match self {
            Numbers::Integers => "integers",
            Numbers::Fractions => "fractions",
        }
    }

    /// The elements of a matrix.
    pub(super) fn draw<T: Element<Acc = f32>>(self, seed: u64, count: u64) -> Vec<T> {
        let number = |word: u64| match self {
            Numbers::Integers => (word % 9) as f32 - 4.0,
            Numbers::Fractions => (word >> 40) as f32 / (1 << 23) as f32 - 1.0,
        };
        (0..count).map(|index| T::narrow(number(mix(seed ^ mix(index))))).collect()
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Numbers {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Numbers, UnknownName> {
        from_name(&Numbers::ALL, name, "inputs", |numbers| numbers.name())
    }
}

/// The sum of one element of C, exact where numbers are integers, and of the magnitudes of its terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    sum: f64,
    size: f64,
}

/// Every element of A x B, of as many rows as `a` holds.
pub(super) fn multiply<T: Element>(product: &Product, a: &[T], b: &[T]) -> Vec<Term> {
    let (columns, depth) = (product.columns as usize, product.depth as usize);
    let b = product.rows_of_b(b.iter().map(|x| x.to_f64()).collect());
    let of_row = |row: &[T]| {
        let (mut sums, mut sizes) = (vec![0.0; columns], vec![0.0; columns]);
        for (a, b) in row.iter().map(|x| x.to_f64()).zip(b.chunks_exact(columns)) {
            for ((sum, size), b) in sums.iter_mut().zip(&mut sizes).zip(b) {
                *sum += a * b;
                *size += f64::abs(a * b);
            }
        }
        sums.into_iter().zip(sizes).map(|(sum, size)| Term { sum, size })
    };
    a.chunks_exact(depth).flat_map(of_row).collect()
}

/// What elements of C are judged by.
pub(super) struct Judge {
    pub half: TensorParallelFusion,
    pub numbers: Numbers,
    pub contract: Contract,
    /// Terms of a sum.
    pub depth: u64,
}

impl Judge {
    /// What an element may be that is made of one product, or of one of each rank.
    ///
    /// Integers: what the contract makes of products, each exact and then rounded. Fractions: each product is off by no more than the additions in f32 (each
    /// off by 2^-23 of what is added: tensor cores may truncate) and one rounding; what is added then, again by such additions and the roundings of the
    /// contract.
    pub(super) fn expect<T: Element<Acc = f32>>(&self, products: &[Term]) -> Expected<T> {
        let rounded = || products.iter().map(|term| T::narrow(term.sum as f32));
        let exact = match (self.numbers, self.half) {
            (Numbers::Integers, TensorParallelFusion::Gather) => return Expected::Value(rounded().next().expect("one product")),
            (Numbers::Integers, TensorParallelFusion::Scatter) => {
                let products: Vec<T> = rounded().collect();
                return oracle(&self.contract, ReduceOp::Sum, T::DTYPE, InputClass::Natural).expect(&products);
            }
            (Numbers::Fractions, _) => products.iter().map(|term| term.sum).sum(),
        };
        let unit = unit_roundoff(T::DTYPE);
        let rounding = |value: f64| unit * value + smallest_subnormal(T::DTYPE);
        let of_product = |term: &Term| {
            let added = self.depth as f64 * ADDITION * term.size;
            added + rounding(term.sum.abs() + added)
        };
        let bound = match self.half {
            TensorParallelFusion::Gather => of_product(&products[0]),
            TensorParallelFusion::Scatter => {
                let (off, size) = products.iter().fold((0.0, 0.0), |(off, size), term| {
                    let product = of_product(term);
                    (off + product, size + term.sum.abs() + product)
                });
                let added = off + products.len() as f64 * ADDITION * size;
                let once = rounding(f64::abs(exact) + added);
                let hops = products.len().saturating_sub(1) as i32;
                added
                    + match self.contract.roundings {
                        Roundings::Once => once,
                        Roundings::OnceToNeighbour => 2.0 * once,
                        // Partial sums, which may be larger than the sum, have the roundings before them.
                        Roundings::PerHop => f64::from(hops) * rounding((size + added) * (1.0 + unit).powi(hops)),
                    }
            }
        };
        Expected::Within(Bounded { exact, bound })
    }
}

/// What an addition in f32 may be off by, of the magnitudes that it adds.
const ADDITION: f64 = 1.0 / (1 << 23) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use passmuster_plan::collective::{DType, Layout};

    fn judge(half: TensorParallelFusion, numbers: Numbers) -> Judge {
        Judge { half, numbers, contract: if half == TensorParallelFusion::Gather { Contract::COPIED } else { Contract::ORDERED }, depth: 3 }
    }

    #[test]
    fn a_product_is_exact_in_both_layouts() {
        let product = Product { dtype: DType::BF16, rows: 2, columns: 3, depth: 5, layout: Layout::Nk };
        let elements = |numbers: &[i32]| -> Vec<bf16> { numbers.iter().map(|&x| bf16::from_f32(x as f32)).collect() };
        let a = elements(&[1, 2, 3, 4, 5, -1, 0, 1, 0, 2]);
        let b = elements(&[1, 0, 0, 0, 1, 2, 2, 2, 2, 2, -1, 1, -1, 1, -1]);
        let of = |terms: Vec<Term>| terms.iter().map(|term| (term.sum, term.size)).collect::<Vec<_>>();
        let expected = [(6.0, 6.0), (30.0, 30.0), (-3.0, 15.0), (1.0, 3.0), (4.0, 8.0), (-2.0, 4.0)];
        assert_eq!(of(multiply(&product, &a, &b)), expected);
        let turned = elements(&[1, 2, -1, 0, 2, 1, 0, 2, -1, 0, 2, 1, 1, 2, -1]);
        assert_eq!(of(multiply(&Product { layout: Layout::Kn, ..product }, &a, &turned)), expected);
    }

    /// If this fails, a wrong rounding or a term too many goes unseen.
    #[test]
    fn integers_are_to_the_bit_and_fractions_within_a_bound() {
        let terms = [Term { sum: 257.0, size: 257.0 }, Term { sum: -255.0, size: 255.0 }];
        let gathered = judge(TensorParallelFusion::Gather, Numbers::Integers).expect::<bf16>(&terms[..1]);
        // 257 is no bf16: ties go to even.
        assert!(gathered.accepts(bf16::from_f32(256.0)) && !gathered.accepts(bf16::from_f32(258.0)));
        let scattered = judge(TensorParallelFusion::Scatter, Numbers::Integers).expect::<bf16>(&terms);
        assert!(scattered.accepts(bf16::from_f32(1.0)) && !scattered.accepts(bf16::from_f32(2.0)));
        // The next f16 is 0.50049.
        let within = judge(TensorParallelFusion::Gather, Numbers::Fractions).expect::<f16>(&[Term { sum: 0.5001, size: 0.75 }]);
        assert!(within.accepts(f16::from_f32(0.5)) && !within.accepts(f16::from_f32(0.5005)));
        let terms = [Term { sum: 0.5001, size: 0.75 }, Term { sum: 0.25, size: 0.25 }];
        let within = judge(TensorParallelFusion::Scatter, Numbers::Fractions).expect::<f16>(&terms);
        assert!(within.accepts(f16::from_f32(0.75)) && within.accepts(f16::from_f32(0.7505)) && !within.accepts(f16::from_f32(0.7515)));
    }

    /// What NCCL's ring does with three ranks or more: 256 + 1 + 1 + 1 in bf16, rounded at each hop, is 256.
    #[test]
    fn sums_that_round_at_each_hop_are_off_by_more() {
        let terms = [256.0, 1.0, 1.0, 1.0].map(|sum| Term { sum, size: sum });
        let once = judge(TensorParallelFusion::Scatter, Numbers::Fractions);
        let per_hop = Judge { contract: Contract { roundings: Roundings::PerHop, ..once.contract }, ..once };
        let accepts = |judge: &Judge, value| judge.expect::<bf16>(&terms).accepts(bf16::from_f32(value));
        let once = judge(TensorParallelFusion::Scatter, Numbers::Fractions);
        assert_eq!([256.0, 258.0, 264.0].map(|value| accepts(&once, value)), [false, true, false]);
        assert_eq!([256.0, 258.0, 264.0].map(|value| accepts(&per_hop, value)), [true, true, false]);
    }

    #[test]
    fn numbers_are_what_their_names_say() {
        let integers = Numbers::Integers.draw::<f16>(7, 1000);
        assert!(integers.iter().all(|x| x.to_f64().fract() == 0.0 && x.to_f64().abs() <= 4.0) && integers.contains(&f16::from_f32(-4.0)));
        let fractions = Numbers::Fractions.draw::<f16>(7, 1000);
        let mean = fractions.iter().map(|x| x.to_f64()).sum::<f64>() / 1000.0;
        assert!(fractions.iter().all(|x| x.to_f64().abs() <= 1.0) && mean.abs() < 0.1, "{mean}");
        assert_ne!(fractions, Numbers::Fractions.draw::<f16>(8, 1000));
    }
}
