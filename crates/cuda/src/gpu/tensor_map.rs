//! Tensor maps in the driver's form.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use crate::vendor::{
    driver::{CudaError, Driver, call},
    loader::LoadError,
};
use passmuster_plan::plan::{Outside, TensorMap};

/// The driver's types, by the numbers that [`DType::tensor_map`](passmuster_plan::collective::DType::tensor_map) has.
const TYPES: [CUtensorMapDataType; 10] = [
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
];

/// Encodes a map whose lists have the lengths that they must have, of memory at `address`.
///
/// # Errors
/// The driver's, with the map.
pub(crate) fn encode(driver: &'static Driver, map: &TensorMap, address: u64) -> Result<[u64; 16], CudaError> {
    let elements = TYPES[map.dtype.tensor_map() as usize];
    let swizzle = match map.swizzle {
        32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        0 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        _ => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let interleave = match map.interleave {
        16 => CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_16B,
        32 => CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_32B,
        _ => CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
    };
    let fill = match map.outside {
        Outside::Zeros => CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        Outside::Nans => CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    };
    let (strides, neighbours) = (map.byte_strides(), map.all_element_strides());
    let mut encoded = CUtensorMap { opaque: [0; 16] };
    // SAFETY: extents, tile and steps of elements are as many as the rank, strides one less; all outlive the call. The host does not follow the address.
    unsafe {
        call!(
            driver,
            cuTensorMapEncodeTiled(
                &mut encoded,
                elements,
                map.extents.len() as u32,
                std::ptr::without_provenance_mut::<c_void>(address as usize),
                map.extents.as_ptr(),
                strides.as_ptr(),
                map.tile.as_ptr(),
                neighbours.as_ptr(),
                interleave,
                swizzle,
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                fill
            )
        )
    }
    .map_err(|error| error.during(map))?;
    Ok(encoded.opaque)
}

/// Whether the driver makes a map of memory at an address; for tests of what refuses maps.
///
/// # Errors
/// Where there is no driver.
#[doc(hidden)]
pub fn is_made(map: &TensorMap, address: u64) -> Result<bool, LoadError> {
    Driver::get().map(|driver| encode(driver, map, address).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::collective::DType;

    /// If this fails, TMA fills what lies outside a tensor with other bits than those of zero, or moves elements of another width.
    #[test]
    fn types_have_the_driver_s_numbers() {
        for (number, of) in TYPES.iter().enumerate() {
            assert_eq!(*of as usize, number);
        }
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.size() > 1) {
            let name = format!("{:?}", TYPES[dtype.tensor_map() as usize]);
            assert!(name.ends_with(&(8 * dtype.size()).to_string()), "{dtype}: {name}");
            assert_eq!(
                [name.contains("FLOAT"), name.contains("BFLOAT"), name.contains("UINT")],
                [dtype.is_float(), dtype == DType::BF16, !dtype.is_signed()]
            );
        }
        assert!(DType::ALL.iter().all(|dtype| (dtype.size() == 1) == (dtype.tensor_map() == 0)));
    }
}
