//! What kernels include.

/// Headers of the kernels, by name: `reduce.cuh`. `passmuster compile` gives them to kernels of other crates as `passmuster/reduce.cuh`.
pub static HEADERS: &[(&str, &str)] = &[
    ("abi.cuh", include_str!("../kernels/common/abi.cuh")),
    ("any.cuh", include_str!("../kernels/common/any.cuh")),
    ("copies.cuh", include_str!("../kernels/common/copies.cuh")),
    ("copy_entries.cuh", include_str!("../kernels/common/copy_entries.cuh")),
    ("dtype.cuh", include_str!("../kernels/common/dtype.cuh")),
    ("dtypes.cuh", include_str!("../kernels/common/dtypes.cuh")),
    ("elements.cuh", include_str!("../kernels/common/elements.cuh")),
    ("entries.cuh", include_str!("../kernels/common/entries.cuh")),
    ("fp8.cuh", include_str!("../kernels/common/fp8.cuh")),
    ("lamport.cuh", include_str!("../kernels/common/lamport.cuh")),
    ("lines.cuh", include_str!("../kernels/common/lines.cuh")),
    ("mbarrier.cuh", include_str!("../kernels/common/mbarrier.cuh")),
    ("multimem.cuh", include_str!("../kernels/common/multimem.cuh")),
    ("multimem_entries.cuh", include_str!("../kernels/common/multimem_entries.cuh")),
    ("reduce.cuh", include_str!("../kernels/common/reduce.cuh")),
    ("signals.cuh", include_str!("../kernels/common/signals.cuh")),
    ("slices.cuh", include_str!("../kernels/common/slices.cuh")),
    ("types.cuh", include_str!("../kernels/common/types.cuh")),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a kernel of another crate cannot include a header that the kernels here have.
    #[test]
    fn every_header_is_there_for_kernels_of_other_crates() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/common")).unwrap();
        let mut names: Vec<String> = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(HEADERS.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn the_headers_that_are_checked_in_are_those_of_the_tables() {
        let header = passmuster_plan::collective::header();
        assert!(include_str!("../kernels/common/dtypes.cuh") == header, "cargo xtask kernels writes kernels/common/dtypes.cuh");
        assert!(include_str!("../kernels/common/abi.cuh") == crate::abi::header(), "cargo xtask kernels writes kernels/common/abi.cuh");
    }
}
