//! Sums of which the ISA leaves order and rounding to the hardware, and how they are made here.

use passmuster_ptx::MatrixProduct;

use super::{fault::ExecError, matrix, multimem::MultimemReduction};
use crate::{
    choice::Choice,
    numerics::tensor_core::{Rule, Unit},
};

/// How sums are made that the PTX ISA leaves open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Arithmetic {
    /// By `multimem.ld_reduce`, of floating-point numbers.
    pub multimem: MultimemReduction,
    /// By `mma.sync` and `wgmma`, of floating-point numbers.
    pub tensor_cores: TensorCores,
}

/// How tensor cores add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TensorCores {
    /// As H100 and H200 do, to the bit ([`tensor_core`](crate::numerics::tensor_core)).
    #[default]
    Hopper,
    /// As other hardware may, and no less precise. A seed says the order of terms and how many are added at once, the same for all instructions of a form.
    /// A kernel that relies on Hopper's order may then give other bits.
    Bound,
}

impl TensorCores {
    /// Every mode.
    pub const ALL: [TensorCores; 2] = [TensorCores::Hopper, TensorCores::Bound];

    /// Its name on the command line and in records.
    pub const fn name(self) -> &'static str {
        match self {
            TensorCores::Hopper => "hopper",
            TensorCores::Bound => "bound",
        }
    }
}

impl std::str::FromStr for TensorCores {
    type Err = String;
    fn from_str(name: &str) -> Result<TensorCores, String> {
        by_name(&TensorCores::ALL, TensorCores::name, "way of tensor cores", name)
    }
}

/// The one of a name.
pub(super) fn by_name<T: Copy>(all: &[T], name_of: fn(T) -> &'static str, what: &str, name: &str) -> Result<T, String> {
    all.iter().copied().find(|&one| name_of(one) == name).ok_or_else(|| {
        let allowed: Vec<&str> = all.iter().map(|&one| name_of(one)).collect();
        format!("unknown {what} `{name}`: expected one of {}", allowed.join(", "))
    })
}

/// What makes these sums in a launch: the modes, and the choices that they leave.
#[derive(Debug)]
pub(super) struct Adder {
    pub(super) arithmetic: Arithmetic,
    /// Of the tensor cores.
    chip: u64,
    pub(super) choice: Choice,
}

impl Adder {
    pub(super) fn new(arithmetic: Arithmetic, [chip, launch]: [u64; 2]) -> Adder {
        Adder { arithmetic, chip, choice: Choice::of_seed(launch) }
    }

    /// How a unit adds the products of one instruction.
    pub(super) fn rule(&self, unit: Unit, product: &MatrixProduct) -> Result<Rule, ExecError> {
        let rule = matrix::rule(unit, product)?;
        Ok(match self.arithmetic.tensor_cores {
            TensorCores::Hopper => rule,
            TensorCores::Bound => rule.drawn(&mut Choice::of_seed(self.chip), product.k as usize),
        })
    }
}
