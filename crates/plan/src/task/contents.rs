//! What a task's inputs are filled with.

/// The numbers that an input holds. They are drawn from the case's seed, for each call others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// Sums of four uniform numbers: mean 0, standard deviation 1.155, within -4 to 4.
    #[default]
    Normal,
    /// From -1 to 1.
    Uniform,
    /// Integers from -4 to 4: sums of a few are exact in every float.
    Integers,
    /// From 0.5 to 1.5, as weights of a norm are.
    Weights,
}

impl Contents {
    /// All of them.
    pub const ALL: [Contents; 4] = [Contents::Normal, Contents::Uniform, Contents::Integers, Contents::Weights];

    /// The name in a specification.
    pub const fn name(self) -> &'static str {
        match self {
            Contents::Normal => "normal",
            Contents::Uniform => "uniform",
            Contents::Integers => "integers",
            Contents::Weights => "weights",
        }
    }

    /// The number that 64 random bits stand for. It has as many digits as an f64, unless it is an integer: of fewer, sums would be exact in the types that
    /// kernels add in, and no order of additions would be seen.
    pub fn number(self, bits: u64) -> f64 {
        /// From 0 to 1.
        fn unit(bits: u64) -> f64 {
            (bits >> 11) as f64 / (1_u64 << 53) as f64
        }
        // Digits behind those of `bits`, from the same bits: an odd factor spreads them.
        let behind = unit(bits.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        match self {
            Contents::Normal => {
                let parts: f64 = (0..4).map(|part| ((bits >> (16 * part)) & 0xffff) as f64).sum();
                (parts / 32768.0 - 4.0) + behind / 32768.0
            }
            Contents::Uniform => (2.0 * unit(bits) - 1.0) + behind / (1_u64 << 52) as f64,
            Contents::Integers => (bits % 9) as f64 - 4.0,
            Contents::Weights => unit(bits) + 0.5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(contents: Contents, of: u64) -> impl Iterator<Item = f64> {
        (1..4001_u64).map(move |number| contents.number((number * 4 + of).wrapping_mul(0xd134_2543_de82_ef95)))
    }

    /// If this fails, a kernel that adds in another order each time passes.
    #[test]
    fn sums_show_their_order() {
        for contents in [Contents::Normal, Contents::Uniform, Contents::Weights] {
            let three: Vec<[f64; 3]> =
                numbers(contents, 0).zip(numbers(contents, 1)).zip(numbers(contents, 2)).map(|((a, b), c)| [a, b, c]).collect();
            let in_f64 = three.iter().filter(|[a, b, c]| (a + b) + c != (b + c) + a).count();
            let narrow = three.iter().map(|of| of.map(|value| value as f32));
            let in_f32 = narrow.filter(|[a, b, c]| (a + b) + c != (b + c) + a).count();
            assert!(in_f32 > 200 && in_f64 > 20, "{}: {in_f32} and {in_f64} of 4000", contents.name());
        }
    }

    #[test]
    fn numbers_are_within_their_range() {
        for (contents, least, most) in
            [(Contents::Normal, -4.0, 4.0), (Contents::Uniform, -1.0, 1.0), (Contents::Integers, -4.0, 4.0), (Contents::Weights, 0.5, 1.5)]
        {
            assert!(numbers(contents, 0).all(|number| (least..=most).contains(&number)), "{}", contents.name());
            assert!([0, u64::MAX].into_iter().all(|bits| (least..=most).contains(&contents.number(bits))));
        }
        let all: Vec<f64> = numbers(Contents::Normal, 3).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let deviation = (all.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / all.len() as f64).sqrt();
        assert!(mean.abs() < 0.1 && (deviation - 1.155).abs() < 0.05, "{mean} and {deviation}");
    }
}
