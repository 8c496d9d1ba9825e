//! Tensor maps in the driver's form.

use std::ffi::c_void;

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};

use super::driver::{CudaError, Driver, call};
use passmuster_collectives::{collective::DType, plan::TensorMap};

/// Encodes a map that was found valid, of memory at `address`. What of a box lies outside the tensor is loaded as zeros.
///
/// # Errors
/// The driver's, with the map.
pub(super) fn encode(driver: &'static Driver, map: &TensorMap, address: u64) -> Result<[u64; 16], CudaError> {
    let elements = match map.dtype {
        DType::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::F64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::I32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::U64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        // Copies do not look into bytes.
        DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    let swizzle = match map.swizzle {
        32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let (strides, neighbours) = (map.strides(), vec![1u32; map.tile.len()]);
    let mut encoded = CUtensorMap { opaque: [0; 16] };
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
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
        )
    )
    .map_err(|error| error.during(map))?;
    Ok(encoded.opaque)
}
