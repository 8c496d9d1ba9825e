//! Tensor maps in the emulator's form.

use passmuster_emulator::tensor_map::{self as emulated, ElementType, Interleave, MOST_DIMENSIONS, Swizzle};
use passmuster_plan::plan::{Outside, TensorMap};

/// The bytes of a map of memory at `address`, as words.
///
/// # Errors
/// What the driver would not make a map of.
pub(super) fn encoded(map: &TensorMap, address: u64) -> Result<[u64; 16], String> {
    let emulated = emulated(map, address);
    emulated.check().map_err(|why| format!("{map}: {why}"))?;
    Ok(emulated.to_words())
}

fn emulated(map: &TensorMap, address: u64) -> emulated::TensorMap {
    fn filled<const N: usize, T: Copy>(values: &[T], rest: T) -> [T; N] {
        std::array::from_fn(|dimension| values.get(dimension).copied().unwrap_or(rest))
    }
    emulated::TensorMap {
        element: ElementType::ALL[map.dtype.tensor_map() as usize],
        dimensions: map.extents.len().min(MOST_DIMENSIONS + 1),
        address,
        extents: filled(&map.extents, 1),
        strides: filled(&map.byte_strides(), 0),
        box_extents: filled(&map.tile, 1),
        element_strides: filled(&map.all_element_strides(), 1),
        interleave: match map.interleave {
            16 => Interleave::B16,
            32 => Interleave::B32,
            _ => Interleave::None,
        },
        swizzle: match map.swizzle {
            32 => Swizzle::B32,
            64 => Swizzle::B64,
            128 => Swizzle::B128,
            _ => Swizzle::None,
        },
        fills_with_nans: map.outside == Outside::Nans,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::plan::{Edge, edges};

    /// If this fails, plans are refused whose maps the emulator makes, or the other way round.
    #[test]
    fn the_emulator_makes_what_the_driver_makes() {
        for Edge { what, map, address, is_made } in edges() {
            let made = encoded(&map, address);
            assert_eq!(made.is_ok(), is_made, "{what}: {map}: {made:?}");
        }
    }
}
