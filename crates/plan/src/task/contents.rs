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

    /// The number that 64 random bits stand for.
    pub fn number(self, bits: u64) -> f64 {
        const UNIT: f64 = 1.0 / 65536.0;
        match self {
            Contents::Normal => (0..4).map(|part| ((bits >> (16 * part)) & 0xffff) as f64 * UNIT * 2.0 - 1.0).sum(),
            Contents::Uniform => (bits >> 32) as f64 / f64::from(1_u32 << 31) - 1.0,
            Contents::Integers => (bits % 9) as f64 - 4.0,
            Contents::Weights => (bits >> 32) as f64 / (f64::from(u32::MAX) + 1.0) + 0.5,
        }
    }
}
