//! The decoded form: what an executor runs.
//!
//! One variant of [`Instruction`] is one family. No field is a string, and every field is needed: code that matches a variant sees all
//! that the PTX said, cache hints included.
//!
//! Values: a register of 8 or 16 bits lives in the low bits of a 32-bit slot, and what is above them is unspecified. An immediate has
//! the bits of its instruction's type, zero above them.

use super::{
    error::{Position, PtxError},
    operations::{
        AtomicOp, BarrierReduction, BitOp, FloatOp, IntegerOp, MatchMode, NumberTest, PermuteMode, ProxyKind, ShuffleMode, TensorMapField,
        UnaryOp, VoteMode,
    },
    types::{BooleanOp, CacheHint, Comparison, IntegerRounding, Rounding, Scope, Semantics, Space, Type},
};

/// Which file of slots a register is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Predicates.
    Predicate,
    /// 32 bits; registers of 8 and 16 bits too.
    Word,
    /// 64 bits.
    Long,
    /// 128 bits.
    Quad,
}

/// A register: a slot of its function's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register {
    /// Which file.
    pub class: Class,
    /// Slot in that file, below the function's count of it.
    pub index: u16,
}

/// A source of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register.
    Register(Register),
    /// A constant.
    Immediate(u64),
}

/// A predicate as a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Of class [`Class::Predicate`].
    pub register: Register,
    /// Whether it holds where the register is false.
    pub negated: bool,
}

/// What an address starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Base {
    /// A register.
    Register(Register),
    /// Nothing: the offset is the address in its space. Parameters, local and shared variables are resolved to this.
    Zero,
    /// A variable of [`Module::variables`](super::Module::variables), in global or constant memory.
    Variable(u32),
    /// A function of [`Module::functions`](super::Module::functions): what an indirect call takes.
    Function(u32),
    /// Where dynamic shared memory starts: the entry's [`shared_bytes`](super::Function::shared_bytes), rounded up to this.
    DynamicShared {
        /// Alignment in bytes.
        align: u32,
    },
}

/// An address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Where it starts.
    pub base: Base,
    /// Bytes from there.
    pub offset: i64,
}

/// How memory is accessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The space that the address is in.
    pub space: Space,
    /// What the access orders.
    pub semantics: Semantics,
    /// With whom; `None` where it is weak. Volatile and mmio are at system scope.
    pub scope: Option<Scope>,
    /// What the PTX says of caching. To be ignored.
    pub hints: Box<[CacheHint]>,
}

/// How exact a floating-point result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// As IEEE 754 has it, so rounded.
    Rounded(Rounding),
    /// `.approx`
    Approximate,
    /// `.full`: div only.
    Full,
}

/// What a fence orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Memory operations: acquire, release, acq_rel or sc. `membar` is here too, at sc as the ISA has it.
    Memory(Semantics, Scope),
    /// Operations through two proxies.
    Proxy(ProxyKind),
    /// The tensormap proxy, acquire of 128 bytes at the address.
    TensormapAcquire(Scope, Address),
    /// The tensormap proxy, release.
    TensormapRelease(Scope),
    /// Initialised mbarriers, to the cluster.
    MbarrierInit,
}

/// What an operation of an mbarrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MbarrierAccess {
    /// The space that the address is in.
    pub space: Space,
    /// Release, acquire or relaxed.
    pub semantics: Semantics,
    /// With whom, where the PTX says so.
    pub scope: Option<Scope>,
}

/// Which phase of an mbarrier is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MbarrierWait {
    /// That of a state which an arrival gave.
    State(Operand),
    /// The current or the one before, by the parity of its number.
    Parity(Operand),
}

/// What tells that a bulk copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BulkCompletion {
    /// The bytes are counted at an mbarrier, in the space of the destination.
    Mbarrier(Address),
    /// The thread's bulk group.
    Group,
}

/// A product of matrices: d (m x n) = a (m x k) times b (k x n) plus c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixProduct {
    /// Rows of a and d.
    pub m: u32,
    /// Columns of b and d.
    pub n: u32,
    /// Columns of a, rows of b.
    pub k: u32,
    /// Of c and d: f32, f16, s32 or f64.
    pub sum: Type,
    /// Of the elements of a.
    pub a: Type,
    /// Of the elements of b.
    pub b: Type,
    /// Integer sums stop at the ends of their range.
    pub saturate: bool,
    /// Of f64; of no meaning for others.
    pub rounding: Rounding,
}

/// Where `wgmma.mma_async` has its matrix A.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MatrixSource {
    /// In four registers of each thread.
    Registers(Box<[Register]>),
    /// In shared memory: a descriptor of 64 bits.
    Shared(Operand),
}

/// What barriers of a cluster do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterBarrier {
    /// Arrives; release or relaxed.
    Arrive(Semantics),
    /// Waits; acquire.
    Wait,
}

/// An axis of a grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Axis {
    /// x.
    X,
    /// y.
    Y,
    /// z.
    Z,
}

/// A special register. It has 32 bits, unless its variant says 64 bits or a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Their names are PTX's.
pub enum Special {
    ThreadId(Axis),
    BlockSize(Axis),
    BlockId(Axis),
    GridSize(Axis),
    /// `%cluster_ctaid`: of this block in its cluster.
    ClusterBlockId(Axis),
    /// `%cluster_nctaid`: blocks of a cluster.
    ClusterSize(Axis),
    ClusterId(Axis),
    ClusterCount(Axis),
    ClusterBlockRank,
    ClusterBlockCount,
    /// A predicate.
    IsExplicitCluster,
    LaneId,
    WarpId,
    WarpCount,
    WarpSize,
    SmId,
    SmCount,
    /// 64 bits.
    GridId,
    LaneMaskEqual,
    LaneMaskLess,
    LaneMaskLessEqual,
    LaneMaskGreater,
    LaneMaskGreaterEqual,
    Clock,
    ClockHigh,
    /// 64 bits.
    Clock64,
    /// 64 bits, nanoseconds.
    GlobalTimer,
    GlobalTimerLow,
    GlobalTimerHigh,
    DynamicSharedSize,
    TotalSharedSize,
    /// `%envreg0` to `%envreg31`, which the driver sets; a launch that is not cooperative finds 0.
    EnvironmentRegister,
    /// `%pm0` to `%pm7`, and with 64 bits `%pm0_64` to `%pm7_64`: their values are undefined.
    PerformanceCounter,
    /// 64 bits: `%current_graph_exec`, 0 outside graphs that are launched by a device.
    CurrentGraph,
}

/// The predicate that lop3 writes besides: the result's being nonzero, combined with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LogicPredicate {
    /// Where it is written; `None` for `_`.
    pub destination: Option<Register>,
    /// How it is combined: and or or.
    pub op: BooleanOp,
    /// With what.
    pub condition: Condition,
}

/// An argument or a result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Argument {
    /// Bytes of the caller's parameter space, copied to or from the callee's.
    Bytes {
        /// Offset in the caller's.
        caller: u32,
        /// Offset in the callee's.
        callee: u32,
        /// How many.
        bytes: u32,
    },
    /// A value of the caller's to the parameter space of the callee, or for results the other way.
    Value {
        /// The caller's value; a register for results.
        caller: Operand,
        /// Offset in the callee's.
        callee: u32,
        /// Of this type.
        ty: Type,
    },
    /// A value of the caller's to a register of the callee, or for results the other way.
    Register {
        /// The caller's value; a register for results.
        caller: Operand,
        /// The callee's register.
        callee: Register,
        /// Of this type.
        ty: Type,
    },
}

/// What an indirect call passes and takes back: offset and bytes of each parameter, in the callee's parameter space.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// What it passes.
    pub inputs: Box<[(u32, u32)]>,
    /// What it takes back.
    pub returns: Box<[(u32, u32)]>,
}

/// An operation: an instruction, when it is executed and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// It is executed by lanes where this holds; by all if there is none.
    pub guard: Option<Condition>,
    /// What is executed.
    pub instruction: Instruction,
    /// Where it stands in the PTX.
    pub at: Position,
    /// Where it came from, by the last `.loc`.
    pub source: Option<SourceLine>,
}

/// A line of the source that PTX was compiled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// Index of a file of the module.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Declares [`Instruction`], and how its registers are visited, from one list. A field's word before its name says what it is to the
/// visit: `out` is written, `read` is read, `plain` holds no register.
macro_rules! instructions {
    ($($(#[$doc:meta])* $variant:ident { $($(#[$field_doc:meta])* $role:ident $field:ident: $ty:ty,)* })*) => {
        /// What is executed, one variant a family.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs)] // Fields of one meaning in all variants: the types and names say it.
        pub enum Instruction { $($(#[$doc])* $variant { $($(#[$field_doc])* $field: $ty,)* },)* }

        impl Instruction {
            /// The family's name, as the variant's.
            pub fn family(&self) -> &'static str {
                match self { $(Instruction::$variant { .. } => stringify!($variant),)* }
            }

            /// Calls `visit` for every register with whether it is written.
            pub fn for_each_register(&mut self, visit: &mut dyn FnMut(&mut Register, bool)) {
                match self {
                    $(#[allow(unused_variables)] Instruction::$variant { $($field,)* } => { $(instructions!(@$role $field, visit);)* })*
                }
            }
        }
    };
    (@plain $field:ident, $visit:ident) => {};
    (@out $field:ident, $visit:ident) => { super::registers::Visited::visited($field, true, $visit) };
    (@read $field:ident, $visit:ident) => { super::registers::Visited::visited($field, false, $visit) };
}

instructions! {
    /// `mov` of one value.
    Move { plain ty: Type, out destination: Register, read source: Operand, }
    /// `mov` of a vector into a vector: all sources are read before anything is written.
    MoveVector { plain ty: Type, out destinations: Box<[Option<Register>]>, read sources: Box<[Operand]>, }
    /// `mov` of a vector into one register of `ty`; the first part is the lowest.
    Pack { plain ty: Type, plain part: Type, out destination: Register, read parts: Box<[Operand]>, }
    /// `mov` of one register of `ty` into a vector; the first part is the lowest.
    Unpack { plain ty: Type, plain part: Type, out destinations: Box<[Option<Register>]>, read source: Operand, }
    /// `mov` from a special register.
    ReadSpecial { out destination: Register, plain special: Special, }
    /// `mov` of a variable's or parameter's address in `space`.
    AddressOf { plain space: Space, out destination: Register, read address: Address, }
    /// `ld`: extended by the sign of `ty` where the registers are wider.
    Load { plain ty: Type, plain access: Access, out destinations: Box<[Option<Register>]>, read address: Address, }
    /// `st`
    Store { plain ty: Type, plain access: Access, read address: Address, read values: Box<[Operand]>, }
    /// `cvta`: to generic from `space`, or `to` that space from generic.
    ConvertAddress { plain space: Space, plain to_space: bool, plain ty: Type, out destination: Register, read source: Operand, }
    /// `isspacep`
    IsSpace { plain space: Space, out destination: Register, read source: Operand, }
    /// `mapa`: the address that this one has in the shared memory of the block of a rank in the cluster.
    MapToBlock { plain space: Space, out destination: Register, read address: Address, read rank: Operand, }
    /// `getctarank`: the rank in the cluster of the block in whose shared memory an address is.
    BlockOfAddress { plain space: Space, out destination: Register, read address: Address, }
    /// Integer arithmetic of two operands; `saturate` clamps sums and differences of s32, `relu` a minimum or maximum to zero.
    Integer { plain op: IntegerOp, plain ty: Type, plain saturate: bool, plain relu: bool, out destination: Register, read a: Operand, read b: Operand, }
    /// `mad`: `op` is one of the products, and `c` and the result are twice as wide where it is the whole one.
    IntegerMultiplyAdd { plain op: IntegerOp, plain ty: Type, plain saturate: bool, out destination: Register, read a: Operand, read b: Operand, read c: Operand, }
    /// `neg` or `abs` of an integer.
    IntegerUnary { plain op: UnaryOp, plain ty: Type, out destination: Register, read a: Operand, }
    /// Floating-point arithmetic of two operands.
    Float {
        plain op: FloatOp, plain ty: Type,
        /// Of no meaning for min, max and copysign.
        plain precision: Precision,
        plain ftz: bool, plain saturate: bool,
        /// min and max give NaN where an operand is.
        plain nan: bool,
        /// min and max of magnitudes, with the sign of the product.
        plain xorsign_abs: bool,
        out destination: Register, read a: Operand, read b: Operand,
    }
    /// `fma`, and `mad` of floating-point types, which is the same.
    FusedMultiplyAdd { plain ty: Type, plain rounding: Rounding, plain ftz: bool, plain saturate: bool, plain relu: bool, out destination: Register, read a: Operand, read b: Operand, read c: Operand, }
    /// A floating-point function of one number. `precision` is of no meaning for neg and abs.
    FloatUnary { plain op: UnaryOp, plain ty: Type, plain precision: Precision, plain ftz: bool, out destination: Register, read a: Operand, }
    /// `testp`
    TestNumber { plain test: NumberTest, plain ty: Type, out destination: Register, read a: Operand, }
    /// `and`, `or`, `xor`, of predicates too.
    Logic { plain op: BooleanOp, plain ty: Type, out destination: Register, read a: Operand, read b: Operand, }
    /// `lop3`: bit i of the table is the result for a, b, c = bits 2, 1, 0 of i.
    LogicTable { plain table: u8, out destination: Option<Register>, out predicate: Option<LogicPredicate>, read a: Operand, read b: Operand, read c: Operand, }
    /// A function of the bits of one operand.
    Bits { plain op: BitOp, plain ty: Type, out destination: Register, read a: Operand, }
    /// `bfind`: position of the highest bit that differs from the sign, or with `shift_amount` its distance from the top; 32 bits.
    FindLeading { plain ty: Type, plain shift_amount: bool, out destination: Register, read a: Operand, }
    /// `shl` or `shr`: amounts past the width are clamped to it; a signed type shifts in its sign. `amount` has 32 bits.
    Shift { plain left: bool, plain ty: Type, out destination: Register, read a: Operand, read amount: Operand, }
    /// `shf`: of `high:low`, clamped to 32 or else wrapped.
    FunnelShift { plain left: bool, plain clamp: bool, out destination: Register, read low: Operand, read high: Operand, read amount: Operand, }
    /// `bfi`: `length` bits of `a` into `b` from `position` on.
    BitFieldInsert { plain ty: Type, out destination: Register, read a: Operand, read b: Operand, read position: Operand, read length: Operand, }
    /// `bfe`
    BitFieldExtract { plain ty: Type, out destination: Register, read a: Operand, read position: Operand, read length: Operand, }
    /// `prmt`
    Permute { plain mode: PermuteMode, out destination: Register, read a: Operand, read b: Operand, read selector: Operand, }
    /// `setp`: with `combine`, the first is (a cmp b) op c and the second is !(a cmp b) op c. Of packed types, the first is the low
    /// half's and the second the high half's.
    SetPredicate { plain comparison: Comparison, plain ty: Type, plain ftz: bool, out destination: Option<Register>, out second: Option<Register>, read a: Operand, read b: Operand, plain op: Option<BooleanOp>, read combined: Option<Condition>, }
    /// `set`: all ones or 1.0 of type `to`.
    Set { plain comparison: Comparison, plain to: Type, plain ty: Type, plain ftz: bool, out destination: Register, read a: Operand, read b: Operand, plain op: Option<BooleanOp>, read combined: Option<Condition>, }
    /// `selp`
    Select { plain ty: Type, out destination: Register, read a: Operand, read b: Operand, read condition: Condition, }
    /// `slct`: `a` where `c`, an s32 or f32, is not below zero.
    SelectBySign { plain ty: Type, plain by: Type, plain ftz: bool, out destination: Register, read a: Operand, read b: Operand, read c: Operand, }
    /// `cvt` of one operand.
    Convert {
        plain to: Type, plain from: Type,
        /// To a floating-point type; `None` where the result is exact.
        plain rounding: Option<Rounding>,
        /// To an integer, or of a floating-point value to an integral one.
        plain integer_rounding: Option<IntegerRounding>,
        plain ftz: bool,
        /// To 0 to 1 in a floating-point type, to its range in an integer one.
        plain saturate: bool,
        /// Past the range of the type, its largest finite value.
        plain saturate_finite: bool,
        plain relu: bool, out destination: Register, read source: Operand,
    }
    /// `cvt` of two f32 into a packed type; `high` is the PTX's first operand.
    ConvertPair { plain to: Type, plain rounding: Rounding, plain saturate_finite: bool, plain relu: bool, out destination: Register, read high: Operand, read low: Operand, }
    /// `bra`: to the operation of this index.
    Branch { plain target: usize, plain uniform: bool, }
    /// `brx.idx`
    BranchIndexed { plain targets: Box<[usize]>, plain uniform: bool, read index: Operand, }
    /// `call` of a function of the module, by index.
    Call { plain function: u32, plain uniform: bool, out results: Box<[Argument]>, read arguments: Box<[Argument]>, }
    /// `call` of the function whose address is in a register, which must have this signature.
    CallIndirect { read target: Operand, plain signature: Box<Signature>, plain uniform: bool, out results: Box<[Argument]>, read arguments: Box<[Argument]>, }
    /// `ret`, and the end of every body.
    Return {}
    /// `exit`
    Exit {}
    /// `trap`
    Trap {}
    /// `bar.sync`, `barrier.sync`: of `threads` threads, or all of the block.
    BarrierSync { plain aligned: bool, read barrier: Operand, read threads: Option<Operand>, }
    /// `bar.arrive`, `barrier.arrive`.
    BarrierArrive { plain aligned: bool, read barrier: Operand, read threads: Operand, }
    /// `bar.red`, `barrier.red`: to a word for popc, to a predicate otherwise.
    BarrierReduce { plain op: BarrierReduction, plain aligned: bool, out destination: Register, read barrier: Operand, read threads: Option<Operand>, read condition: Condition, }
    /// `barrier.cluster`
    BarrierCluster { plain kind: ClusterBarrier, plain aligned: bool, }
    /// `bar.warp.sync`
    WarpSync { read mask: Operand, }
    /// `fence`, `membar`.
    Fence { read fence: Fence, }
    /// `atom`, and `red`, which has no destinations. Of `cas`, the values are the compared and the new one.
    Atomic { plain op: AtomicOp, plain ty: Type, plain access: Access, out destinations: Option<Box<[Option<Register>]>>, read address: Address, read values: Box<[Operand]>, }
    /// `multimem.ld_reduce`; `wide` is `.acc::f32` or `.acc::f16`.
    MultimemLoadReduce { plain op: AtomicOp, plain ty: Type, plain wide: bool, plain access: Access, out destinations: Box<[Option<Register>]>, read address: Address, }
    /// `multimem.st`
    MultimemStore { plain ty: Type, plain access: Access, read address: Address, read values: Box<[Operand]>, }
    /// `multimem.red`
    MultimemReduce { plain op: AtomicOp, plain ty: Type, plain access: Access, read address: Address, read values: Box<[Operand]>, }
    /// `shfl.sync`: the predicate is whether the lane was in range.
    Shuffle { plain mode: ShuffleMode, out destination: Option<Register>, out predicate: Option<Register>, read a: Operand, read lane: Operand, read clamp: Operand, read mask: Operand, }
    /// `vote.sync`: to a word for ballot, to a predicate otherwise.
    Vote { plain mode: VoteMode, out destination: Register, read condition: Condition, read mask: Operand, }
    /// `activemask`
    ActiveMask { out destination: Register, }
    /// `match.sync`
    Match { plain mode: MatchMode, plain ty: Type, out destination: Option<Register>, out predicate: Option<Register>, read a: Operand, read mask: Operand, }
    /// `elect.sync`
    Elect { out destination: Option<Register>, out predicate: Option<Register>, read mask: Operand, }
    /// `redux.sync`
    WarpReduce { plain op: AtomicOp, plain ty: Type, out destination: Register, read a: Operand, read mask: Operand, }
    /// `nanosleep`
    Sleep { read nanoseconds: Operand, }
    /// `griddepcontrol`: waits for the kernels before, or else lets the next start.
    GridDependency { plain wait: bool, }
    /// `prefetch`, `prefetchu`, `applypriority`: moves nothing that a program sees.
    Prefetch { plain space: Space, read address: Address, }
    /// `discard.L2` of 128 bytes: their value is undefined afterwards.
    Discard { plain space: Space, read address: Address, }
    /// `cp.async` of `bytes` bytes, of which the first `source_bytes` come from the source, none of them where `ignored` holds; the others are zero.
    Copy { plain bytes: u32, read destination: Address, read source: Address, read source_bytes: Option<Operand>, read ignored: Option<Condition>, }
    /// `cp.async.commit_group`
    CopyCommit {}
    /// `cp.async.wait_group`: for all but the last `groups` groups; `cp.async.wait_all`, without a number: for all copies.
    CopyWait { plain groups: Option<u32>, }
    /// `cp.async.mbarrier.arrive` when all earlier `cp.async` are done; `counted` with `.noinc`: the arrival is among those that the mbarrier expects.
    CopyArrive { plain space: Space, plain counted: bool, read address: Address, }
    /// `cp.async.bulk`, and `cp.reduce.async.bulk`, which has a reduction. `blocks` are those of the cluster that all get it, as bits; `mask` says which
    /// bytes of each 16 are written.
    BulkCopy { plain to: Space, plain from: Space, plain reduction: Option<(AtomicOp, Type)>, read destination: Address, read source: Address, read bytes: Operand, read completion: BulkCompletion, read blocks: Option<Operand>, read mask: Option<Operand>, }
    /// `cp.async.bulk.commit_group`
    BulkCommit {}
    /// `cp.async.bulk.wait_group`: for all but the last `groups` groups; with `.read` only until their sources have been read.
    BulkWait { plain reads: bool, plain groups: u32, }
    /// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor`, which has an operation: a box between the tensor of a map and shared memory; `blocks` of
    /// the cluster get it where that is given.
    TensorCopy { plain to: Space, plain from: Space, plain reduction: Option<AtomicOp>, read map: Address, read coordinates: Box<[Operand]>, read shared: Address, read completion: BulkCompletion, read blocks: Option<Operand>, }
    /// `cp.async.bulk.prefetch.tensor`
    TensorPrefetch { read map: Address, read coordinates: Box<[Operand]>, }
    /// `tensormap.replace`; `dimension` is 0 where the field has none.
    TensorMapReplace { plain field: TensorMapField, plain dimension: u32, plain space: Space, read address: Address, read value: Operand, }
    /// `tensormap.cp_fenceproxy`: copies a map from shared to global memory, and releases it to the proxy of tensor maps.
    TensorMapPublish { plain scope: Scope, read destination: Address, read source: Address, }
    /// `st.bulk` of zeros.
    BulkFill { plain space: Space, read address: Address, read bytes: Operand, }
    /// `st.async`, and `red.async`, which has an operation: to shared memory of the cluster, and its bytes are counted at an mbarrier there.
    StoreAsync { plain op: Option<AtomicOp>, plain ty: Type, plain space: Space, read address: Address, read values: Box<[Operand]>, read mbarrier: Address, }
    /// `mbarrier.init`
    MbarrierInit { plain space: Space, read address: Address, read count: Operand, }
    /// `mbarrier.inval`
    MbarrierInvalidate { plain space: Space, read address: Address, }
    /// `mbarrier.expect_tx`, or where it `completes`, `mbarrier.complete_tx`.
    MbarrierBytes { plain space: Space, plain completes: bool, read address: Address, read bytes: Operand, }
    /// `mbarrier.arrive`, and `mbarrier.arrive_drop`, which `drops`; of `count` arrivals or one, with `bytes` more that are expected before it. It may not
    /// complete the phase unless it `completes`.
    MbarrierArrive { plain access: MbarrierAccess, plain drops: bool, plain completes: bool, out state: Option<Register>, read address: Address, read count: Option<Operand>, read bytes: Option<Operand>, }
    /// `mbarrier.test_wait` and `mbarrier.try_wait`, which here never waits.
    MbarrierTest { plain access: MbarrierAccess, out complete: Register, read address: Address, read phase: MbarrierWait, }
    /// `mbarrier.pending_count` of a state.
    MbarrierPending { out count: Register, read state: Operand, }
    /// `mma.sync`: the fragments that each thread of a warp has of the matrices, in the order of the PTX.
    MatrixMultiply { plain product: MatrixProduct, out d: Box<[Register]>, read a: Box<[Operand]>, read b: Box<[Operand]>, read c: Box<[Operand]>, }
    /// `ldmatrix` of as many matrices of 8 x 8 elements of 16 bits as there are destinations.
    LoadMatrix { plain space: Space, plain transposed: bool, out destinations: Box<[Register]>, read address: Address, }
    /// `stmatrix`
    StoreMatrix { plain space: Space, plain transposed: bool, read address: Address, read values: Box<[Operand]>, }
    /// `movmatrix`, transposed
    MoveMatrix { out destination: Register, read source: Operand, }
    /// `wgmma.mma_async`: the sums are read where `keeps` holds, and written later. `negated` are a and b; `transposed` are those that do not lie with k
    /// contiguous in shared memory.
    WarpgroupMultiply { plain product: MatrixProduct, plain negated: [bool; 2], plain transposed: [bool; 2], out sums: Box<[Register]>, read a: MatrixSource, read b: Operand, read keeps: Operand, }
    /// `wgmma.fence`
    WarpgroupFence {}
    /// `wgmma.commit_group`
    WarpgroupCommit {}
    /// `wgmma.wait_group`: for all but the last `groups` groups.
    WarpgroupWait { plain groups: u32, }
    /// `setmaxnreg`: what a program sees is the same, unless it asks for what its block has not.
    SetRegisters { plain more: bool, plain count: u32, }
    /// `createpolicy`: of caching.
    CreatePolicy { out destination: Register, }
    /// What this front end does not know, and why. A kernel that reaches it cannot be run.
    Unknown { plain error: Box<PtxError>, }
}
