//! Kernel arguments as bytes, laid out as C lays them out: what launches copy from.

use crate::plan::{Arg, MAX_RANKS, Region, TensorMap};

/// Arguments of one launch on one rank: their bytes, and where each top-level argument starts and how long it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Eight-byte words, so that every argument is aligned as its type is.
    words: Vec<u64>,
    /// Offset and size in bytes of each top-level argument.
    parts: Vec<(usize, usize)>,
}

/// What stands behind the names in a plan, for one rank.
pub struct Addresses<'a> {
    /// Address of a region on the rank.
    pub own: &'a dyn Fn(&Region) -> u64,
    /// Addresses of a region on all ranks, null past the world size.
    pub of: &'a dyn Fn(&Region) -> [u64; MAX_RANKS],
    /// Address of memory of the rank that holds these bytes.
    pub memory: &'a dyn Fn(&[u8]) -> u64,
    /// Multicast address of a region, on a machine that has them.
    pub multicast: &'a dyn Fn(&Region) -> u64,
    /// The machine's form of a tensor map.
    pub tensor_map: &'a dyn Fn(&TensorMap) -> [u64; 16],
    /// The limit for one wait, in nanoseconds.
    pub wait_limit: u64,
}

impl Arguments {
    /// Lays out `args`. Structs are padded to their widest member, as in C.
    pub fn lay_out(args: &[Arg], addresses: &Addresses<'_>) -> Arguments {
        let mut bytes = Vec::new();
        let mut parts = Vec::new();
        for arg in args {
            align(&mut bytes, alignment(arg));
            let start = bytes.len();
            append(&mut bytes, arg, addresses);
            parts.push((start, bytes.len() - start));
        }
        align(&mut bytes, 8);
        let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes"))).collect();
        Arguments { words, parts }
    }

    /// Sizes of the top-level arguments in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|&(_, size)| size)
    }

    /// The bytes of each top-level argument.
    pub fn parts(&self) -> impl Iterator<Item = Vec<u8>> {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.parts.iter().map(move |&(offset, size)| bytes[offset..offset + size].to_vec())
    }

    /// Pointers to the top-level arguments, valid while `self` is neither moved from nor dropped.
    pub fn pointers(&self) -> Vec<*mut std::ffi::c_void> {
        let base = self.words.as_ptr().cast::<u8>();
        self.parts.iter().map(|&(offset, _)| base.wrapping_add(offset).cast_mut().cast()).collect()
    }
}

/// What a launch's arguments want in memory, what is needed first standing first.
pub fn in_memory<'a>(args: impl IntoIterator<Item = &'a Arg>) -> Vec<&'a [Arg]> {
    fn of_arg(arg: &Arg) -> Vec<&[Arg]> {
        match arg {
            Arg::InMemory(fields) => in_memory(fields).into_iter().chain([fields.as_slice()]).collect(),
            Arg::Struct(fields) => in_memory(fields),
            _ => Vec::new(),
        }
    }
    args.into_iter().flat_map(of_arg).collect()
}

/// The bytes of fields that lie in memory.
pub fn memory_bytes(fields: &[Arg], addresses: &Addresses<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_fields(&mut bytes, fields, addresses);
    bytes
}

/// The tensor maps among a launch's arguments.
pub fn tensor_maps<'a>(args: impl IntoIterator<Item = &'a Arg>) -> Vec<&'a TensorMap> {
    args.into_iter().flat_map(Arg::leaves).filter_map(|arg| if let Arg::TensorMap(map) = arg { Some(map) } else { None }).collect()
}

fn alignment(arg: &Arg) -> usize {
    match arg {
        Arg::U8(_) => 1,
        Arg::U16(_) => 2,
        Arg::U32(_) => 4,
        Arg::ShiftedStride { bytes, .. } => *bytes as usize,
        Arg::Address(_) | Arg::AddressOf { .. } | Arg::Stride(_) | Arg::Peers(_) | Arg::PeerArray { .. } | Arg::InMemory(_) => 8,
        Arg::Multicast(_) | Arg::U64(_) | Arg::WaitLimit => 8,
        Arg::TensorMap(_) => 64,
        Arg::Struct(fields) => fields.iter().map(alignment).max().unwrap_or(1),
    }
}

fn align(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

/// Appends one argument; `bytes` is aligned for it, and offsets in it are offsets in the struct as far as alignment goes.
fn append(bytes: &mut Vec<u8>, arg: &Arg, addresses: &Addresses<'_>) {
    match arg {
        Arg::Address(region) => bytes.extend((addresses.own)(region).to_ne_bytes()),
        Arg::Peers(region) => append_addresses(bytes, region, MAX_RANKS, addresses),
        Arg::PeerArray { region, length } => append_addresses(bytes, region, *length as usize, addresses),
        Arg::AddressOf { region, rank } => bytes.extend((addresses.of)(region)[*rank as usize].to_ne_bytes()),
        Arg::Stride(region) => bytes.extend(stride(&(addresses.of)(region)).unwrap_or_default().to_ne_bytes()),
        Arg::ShiftedStride { region, shift, bytes: width } => {
            let stride = stride(&(addresses.of)(region)).unwrap_or_default();
            bytes.extend(&stride.checked_shr(*shift).unwrap_or_default().to_le_bytes()[..*width as usize]);
        }
        Arg::InMemory(fields) => bytes.extend((addresses.memory)(&memory_bytes(fields, addresses)).to_ne_bytes()),
        Arg::U8(value) => bytes.push(*value),
        Arg::U16(value) => bytes.extend(value.to_ne_bytes()),
        Arg::Multicast(region) => bytes.extend((addresses.multicast)(region).to_ne_bytes()),
        Arg::TensorMap(map) => (addresses.tensor_map)(map).iter().for_each(|word| bytes.extend(word.to_ne_bytes())),
        Arg::U32(value) => bytes.extend(value.to_ne_bytes()),
        Arg::U64(value) => bytes.extend(value.to_ne_bytes()),
        Arg::WaitLimit => bytes.extend(addresses.wait_limit.to_ne_bytes()),
        Arg::Struct(fields) => append_fields(bytes, fields, addresses),
    }
}

/// Appends the addresses of a region on the first `length` ranks.
fn append_addresses(bytes: &mut Vec<u8>, region: &Region, length: usize, addresses: &Addresses<'_>) {
    (addresses.of)(region).iter().take(length).for_each(|address| bytes.extend(address.to_ne_bytes()));
}

/// Appends the fields of a struct, padded to the widest.
fn append_fields(bytes: &mut Vec<u8>, fields: &[Arg], addresses: &Addresses<'_>) {
    for field in fields {
        align(bytes, alignment(field));
        append(bytes, field, addresses);
    }
    align(bytes, fields.iter().map(alignment).max().unwrap_or(1));
}

/// Whether the distances between ranks that a launch takes are what it can take: the same between all of them, in whole units, and not too many.
/// `addresses` has those of a region on all ranks.
///
/// # Errors
/// The first that is not, and where the ranks' memory lies.
pub fn check_strides<'a>(
    args: impl IntoIterator<Item = &'a Arg>,
    addresses: impl Fn(&Region) -> Result<[u64; MAX_RANKS], String>,
) -> Result<(), String> {
    args.into_iter().flat_map(Arg::leaves).try_for_each(|arg| match arg {
        Arg::Stride(region) => stride(&addresses(region)?).map(drop).map_err(String::from),
        Arg::ShiftedStride { region, shift, bytes } => {
            let stride = stride(&addresses(region)?)?;
            if stride != 0 && stride.trailing_zeros() < *shift {
                return Err(format!("the ranks' memory lies {stride:#x} bytes apart, which is no multiple of 2^{shift}"));
            }
            let units = stride.checked_shr(*shift).unwrap_or_default();
            let most = u64::MAX >> (64 - 8 * bytes);
            if units > most {
                return Err(format!("the ranks' memory lies {units:#x} times 2^{shift} bytes apart: more than {bytes} bytes hold"));
            }
            Ok(())
        }
        _ => Ok(()),
    })
}

/// Memory of ranks that is not as far from each to the next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ranks' memory lies at no one stride: {addresses:#x?}")]
pub struct StrideError {
    /// Where it lies.
    pub addresses: Vec<u64>,
}

impl From<StrideError> for String {
    fn from(error: StrideError) -> String {
        error.to_string()
    }
}

/// Bytes from each of these addresses to the next, wrapping; 0 where there is one. Null ones, past the world size, do not count.
///
/// # Errors
/// When it is not the same from each to the next.
pub fn stride(addresses: &[u64]) -> Result<u64, StrideError> {
    let addresses: Vec<u64> = addresses.iter().copied().take_while(|&address| address != 0).collect();
    let mut strides = addresses.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let first = strides.next().unwrap_or_default();
    match strides.all(|stride| stride == first) {
        true => Ok(first),
        false => Err(StrideError { addresses }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lay_out(args: &[Arg]) -> Arguments {
        let of = |region: &Region| -> [u64; MAX_RANKS] {
            std::array::from_fn(|rank| if rank < 2 { 0x1000 * (rank as u64 + 1) + region.offset } else { 0 })
        };
        let (memory, multicast) = (|bytes: &[u8]| 0x7000 + bytes.len() as u64, |region: &Region| 0x9000 + region.offset);
        Arguments::lay_out(
            args,
            &Addresses {
                own: &|region| of(region)[1],
                of: &of,
                memory: &memory,
                multicast: &multicast,
                tensor_map: &|map| [map.region.offset; 16],
                wait_limit: 77,
            },
        )
    }

    fn region(offset: u64) -> Region {
        Region::new("a", offset, 8)
    }

    #[test]
    fn the_sync_struct_is_as_signals_cuh_declares_it() {
        let sync = Arg::Struct(vec![
            Arg::U32(1),
            Arg::U32(2),
            Arg::Address(region(0x10)),
            Arg::Address(region(0x20)),
            Arg::Address(region(0x30)),
            Arg::WaitLimit,
            Arg::Peers(region(0)),
        ]);
        let laid_out = lay_out(&[sync]);
        assert_eq!(laid_out.sizes().collect::<Vec<_>>(), [40 + 8 * MAX_RANKS]);
        assert_eq!(laid_out.words[..8], [1 | 2 << 32, 0x2010, 0x2020, 0x2030, 77, 0x1000, 0x2000, 0]);
    }

    /// If this fails, a kernel takes an argument behind its peers' addresses for one of these.
    #[test]
    fn kernels_take_the_addresses_of_72_ranks() {
        let laid_out = lay_out(&[Arg::Peers(region(0)), Arg::PeerArray { region: region(8), length: 3 }, Arg::U32(1)]);
        assert_eq!(laid_out.parts, [(0, 576), (576, 24), (600, 4)]);
        assert_eq!(laid_out.words[..3], [0x1000, 0x2000, 0]);
    }

    #[test]
    fn peers_come_as_arrays_of_any_length_and_one_by_one() {
        let array = Arg::PeerArray { region: region(8), length: 3 };
        let one = Arg::AddressOf { region: region(0x20), rank: 0 };
        let laid_out = lay_out(&[Arg::U32(1), array, one, Arg::Stride(region(8))]);
        assert_eq!(laid_out.parts, [(0, 4), (8, 24), (32, 8), (40, 8)]);
        assert_eq!(laid_out.words, [1, 0x1008, 0x2008, 0, 0x1020, 0x1000]);
    }

    /// If this fails, a table in memory is not what the kernel takes it for, or is asked for before a table that it leads to is there.
    #[test]
    fn what_lies_in_memory_is_laid_out_as_a_struct() {
        let inner = Arg::InMemory(vec![Arg::U8(1), Arg::U16(2), Arg::U64(3)]);
        let outer = Arg::Struct(vec![Arg::InMemory(vec![inner.clone(), Arg::U32(4)])]);
        let laid_out = lay_out(std::slice::from_ref(&outer));
        assert_eq!(laid_out.words, [0x7010]);
        let args = [outer];
        let [Arg::Struct(fields)] = &args else { unreachable!() };
        let [Arg::InMemory(second)] = &fields[..] else { unreachable!() };
        let Arg::InMemory(first) = &inner else { unreachable!() };
        assert_eq!(in_memory(&args), [&first[..], &second[..]]);
        assert_eq!(stride(&[16, 32, 48, 0, 0]), Ok(16));
        assert_eq!(stride(&[48, 32, 0]), Ok(16_u64.wrapping_neg()));
        assert!(stride(&[16, 32, 64]).unwrap_err().to_string().contains("at no one stride"));
    }

    /// If this fails, a kernel that keeps the stride in 32 bits is given another one, or reads the argument behind it wrong.
    #[test]
    fn shifted_strides_are_whole_units() {
        let shifted = |shift, bytes| Arg::ShiftedStride { region: region(8), shift, bytes };
        let laid_out = lay_out(&[shifted(8, 4), Arg::U32(7), shifted(12, 8)]);
        assert_eq!((laid_out.parts.clone(), laid_out.words.clone()), (vec![(0, 4), (4, 4), (8, 8)], vec![0x10 | 7 << 32, 1]));
        let check = |arg: Arg, apart: u64| {
            check_strides(&[arg], |_| Ok(std::array::from_fn(|rank| if rank < 3 { 1 + apart * rank as u64 } else { 0 })))
        };
        assert_eq!(check(shifted(12, 4), 0x3000), Ok(()));
        assert!(check(shifted(13, 4), 0x3000).unwrap_err().contains("0x3000 bytes apart, which is no multiple of 2^13"));
        assert!(check(shifted(0, 4), 3 << 32).unwrap_err().contains("more than 4 bytes hold"));
        assert_eq!(check(shifted(32, 4), 3 << 32), Ok(()));
        assert_eq!(check(Arg::InMemory(vec![Arg::Stride(region(0))]), 5), Ok(()));
    }

    #[test]
    fn a_multicast_address_is_one_word() {
        let laid_out = lay_out(&[Arg::U32(1), Arg::Multicast(region(0x10)), Arg::Address(region(0x10))]);
        assert_eq!(laid_out.parts, [(0, 4), (8, 8), (16, 8)]);
        assert_eq!(laid_out.words, [1, 0x9010, 0x2010]);
    }

    #[test]
    fn words_are_padded_before_wider_neighbours() {
        let laid_out = lay_out(&[Arg::U32(1), Arg::U64(2), Arg::U32(3), Arg::U32(4)]);
        assert_eq!(laid_out.parts, [(0, 4), (8, 8), (16, 4), (20, 4)]);
        assert_eq!(laid_out.words, [1, 2, 3 | 4 << 32]);
    }

    #[test]
    fn structs_are_padded_to_their_widest_member() {
        let inner = Arg::Struct(vec![Arg::U32(1), Arg::U32(2), Arg::U32(3)]);
        let outer = Arg::Struct(vec![inner, Arg::U64(4), Arg::U32(5)]);
        let laid_out = lay_out(&[Arg::U32(9), outer]);
        assert_eq!(laid_out.parts, [(0, 4), (8, 32)]);
        assert_eq!(laid_out.words, [9, 1 | 2 << 32, 3, 4, 5]);
    }

    #[test]
    fn a_tensor_map_is_128_bytes_at_a_multiple_of_64() {
        let map = TensorMap::packed(region(0x40), crate::collective::DType::F16, vec![4], vec![4], 32);
        let laid_out = lay_out(&[Arg::U32(1), Arg::TensorMap(map), Arg::U32(2)]);
        assert_eq!(laid_out.parts, [(0, 4), (64, 128), (192, 4)]);
        assert_eq!(laid_out.words[8..24], [0x40; 16]);
    }

    #[test]
    fn pointers_lead_to_their_arguments() {
        let laid_out = lay_out(&[Arg::U32(1), Arg::U64(2)]);
        let pointers = laid_out.pointers();
        let first = laid_out.words.as_ptr().addr();
        assert_eq!((pointers[0].addr(), pointers[1].addr()), (first, first + 8));
        assert_eq!(laid_out.words, [1, 2]);
    }
}
