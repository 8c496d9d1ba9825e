//! A GPU and what it has: streams, memory, kernels, graphs and tensor maps. It imports only `vendor`.

pub(crate) mod copies;
pub(crate) mod device;
pub(crate) mod graphs;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod scratch;
pub(crate) mod stream;
pub(crate) mod tensor_map;
