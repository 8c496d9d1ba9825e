//! Outputs of a task against what the reference and the contract allow.

use passmuster_plan::{
    collective::Element,
    task::{Allowed, Computed, TaskCall},
    with_element,
};

use super::dtype_of;

/// Of how many elements the bound is as large as what it bounds, of those that have one. An author who says that an output may be anything knows that it is not
/// judged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Vacuous {
    elements: u64,
    of: u64,
}

impl Vacuous {
    fn add(&mut self, allowed: Allowed, magnitude: f64) {
        let is_vacuous = match allowed {
            Allowed::Rounded(_) => false,
            Allowed::Within(value, bound) => bound > 0.0 && bound >= magnitude.max(value.abs()),
            Allowed::Anything => return,
        };
        self.of += 1;
        self.elements += u64::from(is_vacuous);
    }

    /// Why little was judged: of more than half of the elements anything near zero would pass.
    pub(super) fn reason(self) -> Option<String> {
        (2 * self.elements > self.of).then(|| {
            format!("of {} of {} elements the contract allows an error as large as the value: that judges nothing", self.elements, self.of)
        })
    }
}

/// What is wrong with an output of a rank, in a line.
///
/// # Errors
/// A contract whose numbers have no value.
pub(super) fn wrong(
    call: &TaskCall,
    tensor: usize,
    rank: u32,
    computed: &Computed,
    bytes: &[u8],
    vacuous: &mut Vacuous,
) -> Result<Option<String>, String> {
    with_element!(dtype_of(call, tensor), T => wrong_elements::<T>(call, tensor, rank, computed, bytes, vacuous))
}

/// Whether all elements of an output may be what they are.
pub(super) fn accepts(call: &TaskCall, tensor: usize, rank: u32, computed: &Computed, bytes: &[u8]) -> bool {
    wrong(call, tensor, rank, computed, bytes, &mut Vacuous::default()).is_ok_and(|wrong| wrong.is_none())
}

fn wrong_elements<T: Element>(
    call: &TaskCall,
    tensor: usize,
    rank: u32,
    computed: &Computed,
    bytes: &[u8],
    vacuous: &mut Vacuous,
) -> Result<Option<String>, String> {
    let of = &call.task.tensors()[tensor];
    let allows = of.acceptance.of_rank(call, rank, T::DTYPE)?;
    let mut wrong = 0;
    let mut first = None;
    for (at, (element, &value)) in bytes.chunks_exact(size_of::<T>()).map(T::from_bytes).zip(&computed.values).enumerate() {
        let magnitude = computed.magnitudes.as_ref().map_or(value.abs(), |sizes| sizes[at]);
        let allowed = allows(value, magnitude);
        vacuous.add(allowed, magnitude);
        let is_right = match allowed {
            Allowed::Rounded(value) => {
                let expected = T::from_f64(value);
                // Which sign a zero has, an exact sum does not say.
                element.bits() == expected.bits() || element.to_f64() == 0.0 && expected.to_f64() == 0.0
            }
            Allowed::Within(value, bound) => (element.to_f64() - value).abs() <= bound,
            Allowed::Anything => true,
        };
        if !is_right {
            wrong += 1;
            first.get_or_insert((at, element.to_f64(), allowed));
        }
    }
    let Some((at, got, allowed)) = first else { return Ok(None) };
    let expected = match allowed {
        Allowed::Rounded(value) => format!("expected {}", T::from_f64(value).to_f64()),
        Allowed::Within(value, bound) => format!("the reference is {value}, at most {bound:.3e} away"),
        Allowed::Anything => "expected anything".into(),
    };
    let place = place(call.shape(tensor, rank), at as u64);
    let all = computed.values.len();
    Ok(Some(format!("rank {rank}: {wrong} of {all} elements of {} are wrong, first {}{place}: {got}, {expected}", of.name, of.name)))
}

/// The place of an element in a tensor of a shape: `[3, 17]`.
fn place(shape: &[u64], mut at: u64) -> String {
    let mut indices: Vec<String> = Vec::new();
    for side in shape.iter().rev() {
        indices.push((at % side.max(&1)).to_string());
        at /= side.max(&1);
    }
    indices.reverse();
    format!("[{}]", indices.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a task whose outputs are mostly unspecified is never judged.
    #[test]
    fn what_may_be_anything_is_not_counted() {
        let mut vacuous = Vacuous::default();
        (0..9).for_each(|_| vacuous.add(Allowed::Anything, 1.0));
        vacuous.add(Allowed::Within(2.0, 0.1), 2.0);
        assert_eq!(vacuous.reason(), None);
        (0..2).for_each(|_| vacuous.add(Allowed::Within(2.0, 2.0), 2.0));
        let reason = vacuous.reason().unwrap();
        assert!(reason.starts_with("of 2 of 3 elements"), "{reason}");
    }
}
