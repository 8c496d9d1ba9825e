//! The name of an instruction's form: its opcode with every modifier that decides which value it computes, in one spelling.
//!
//! Two spellings of one thing have one name: `add.f32` is `add.rn.f32`, and of comparisons the Boolean operation is left out, of `lop3`
//! the table, of atomics the order and the scope. Names are PTX opcodes themselves, with their modifiers in the order of the ISA.

use super::{
    instruction::{Instruction, MatrixProduct, MbarrierWait, Precision},
    operations::{AtomicOp, FloatOp, IntegerOp, PermuteMode, UnaryOp},
    types::{Rounding, Space, Type},
};

impl Instruction {
    /// The name of its form where it is arithmetic, logic, comparison, conversion, an atomic operation, or one that goes on beside its thread; else nothing. `multimem` has no
    /// name: which value it computes is the switch's, not the instruction's.
    ///
    /// ```
    /// let text = ".version 9.0 .target sm_90 .address_size 64 .visible .entry e() { .reg .f32 %f; add.f32 %f, %f, 0f00000000; ret; }";
    /// let module = passmuster_ptx::parse(text)?;
    /// let code = &module.functions[0].code;
    /// assert_eq!((code[0].instruction.value_form().as_deref(), code[1].instruction.value_form()), (Some("add.rn.f32"), None));
    /// # Ok::<(), passmuster_ptx::PtxError>(())
    /// ```
    pub fn value_form(&self) -> Option<String> {
        Some(match *self {
            Instruction::Integer { op, ty, saturate, relu, .. } => name(op).flag(saturate, "sat").flag(relu, "relu").of(ty),
            Instruction::IntegerMultiplyAdd { op, ty, saturate, .. } => name(product_sum(op)).flag(saturate, "sat").of(ty),
            Instruction::IntegerUnary { op, ty, .. } => name(op).of(ty),
            Instruction::Float { op: op @ (FloatOp::Minimum | FloatOp::Maximum), ty, ftz, nan, xorsign_abs, .. } => {
                name(op).flag(ftz, "ftz").flag(nan, "NaN").flag(xorsign_abs, "xorsign.abs").of(ty)
            }
            Instruction::Float { op: FloatOp::CopySign, ty, .. } => name(FloatOp::CopySign).of(ty),
            Instruction::Float { op, ty, precision, ftz, saturate, .. } => {
                name(op).with(written(precision)).flag(ftz, "ftz").flag(saturate, "sat").of(ty)
            }
            Instruction::FusedMultiplyAdd { ty, rounding, ftz, saturate, relu, .. } => {
                name("fma").with(rounding).flag(ftz, "ftz").flag(saturate, "sat").flag(relu, "relu").of(ty)
            }
            Instruction::FloatUnary { op: op @ (UnaryOp::Negate | UnaryOp::Absolute), ty, ftz, .. } => name(op).flag(ftz, "ftz").of(ty),
            Instruction::FloatUnary { op, ty, precision, ftz, .. } => name(op).with(written(precision)).flag(ftz, "ftz").of(ty),
            Instruction::TestNumber { test, ty, .. } => name("testp").with(test).of(ty),
            Instruction::Logic { op, ty, .. } => name(op).of(ty),
            Instruction::LogicTable { predicate: Some(predicate), .. } => name("lop3").with(predicate.op).of(Type::B32),
            Instruction::LogicTable { predicate: None, .. } => name("lop3").of(Type::B32),
            Instruction::Bits { op, ty, .. } => name(op).of(ty),
            Instruction::FindLeading { ty, shift_amount, .. } => name("bfind").flag(shift_amount, "shiftamt").of(ty),
            Instruction::Shift { left, ty, .. } => name(if left { "shl" } else { "shr" }).of(ty),
            Instruction::FunnelShift { left, clamp, .. } => {
                name("shf").with(if left { "l" } else { "r" }).with(if clamp { "clamp" } else { "wrap" }).of(Type::B32)
            }
            Instruction::BitFieldInsert { ty, .. } => name("bfi").of(ty),
            Instruction::BitFieldExtract { ty, .. } => name("bfe").of(ty),
            Instruction::Permute { mode: PermuteMode::Index, .. } => name("prmt").of(Type::B32),
            Instruction::Permute { mode, .. } => name("prmt.b32").of(mode),
            Instruction::SetPredicate { comparison, ty, ftz, .. } => name("setp").with(comparison).flag(ftz, "ftz").of(ty),
            Instruction::Set { comparison, to, ty, ftz, .. } => name("set").with(comparison).flag(ftz, "ftz").with(to).of(ty),
            Instruction::Select { ty, .. } => name("selp").of(ty),
            Instruction::SelectBySign { ty, by, ftz, .. } => name("slct").flag(ftz, "ftz").with(ty).of(by),
            Instruction::Convert { to, from, rounding, integer_rounding, ftz, saturate, saturate_finite, relu, .. } => {
                let rounded = name("cvt").optional(integer_rounding).optional(rounding).flag(ftz, "ftz").flag(saturate, "sat");
                rounded.flag(saturate_finite, "satfinite").flag(relu, "relu").with(to).of(from)
            }
            Instruction::ConvertPair { to, rounding, saturate_finite, relu, .. } => {
                name("cvt").with(rounding).flag(saturate_finite, "satfinite").flag(relu, "relu").with(to).of(Type::F32)
            }
            Instruction::Atomic { op, ty, ref access, ref destinations, ref values, .. } => {
                let opcode = name(if destinations.is_some() { "atom" } else { "red" });
                let elements = if op == AtomicOp::CompareAndSwap { 1 } else { values.len() };
                let halves = matches!(ty, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2);
                let keeps = halves && op != AtomicOp::Exchange && op != AtomicOp::CompareAndSwap;
                // f32 sums keep subnormals in some spaces and flush them in others.
                let space = (access.space != Space::Generic).then_some(access.space);
                opcode.optional(space).with(op).flag(keeps, "noftz").optional((elements > 1).then(|| format!("v{elements}"))).of(ty)
            }
            Instruction::BulkCopy { to, reduction: Some((op, ty)), .. } => {
                let keeps = matches!(ty, Type::F16 | Type::Bf16) && op == AtomicOp::Add;
                name("cp.reduce.async.bulk").with(to).with(op).flag(keeps, "noftz").of(ty)
            }
            Instruction::BulkCopy { to, from, reduction: None, .. } => name("cp.async.bulk").with(to).of(from),
            Instruction::TensorCopy { to, reduction, ref coordinates, .. } => {
                let opcode = name(if reduction.is_some() { "cp.reduce.async.bulk.tensor" } else { "cp.async.bulk.tensor" });
                let opcode = opcode.with(format!("{}d", coordinates.len()));
                match reduction {
                    Some(op) => opcode.with(to).of(op),
                    None => opcode.of(to),
                }
            }
            Instruction::TensorMapReplace { field, .. } => name("tensormap.replace.tile").of(field),
            Instruction::Copy { bytes, .. } => name("cp.async").of(bytes),
            Instruction::CopyArrive { counted, .. } => name("cp.async.mbarrier").flag(counted, "noinc").of("arrive"),
            Instruction::StoreAsync { op: Some(op), ty, .. } => name("red.async").with(op).of(ty),
            Instruction::StoreAsync { op: None, ty, ref values, .. } => {
                name("st.async").optional((values.len() > 1).then(|| format!("v{}", values.len()))).of(ty)
            }
            Instruction::MbarrierBytes { completes, .. } => name("mbarrier").of(if completes { "complete_tx" } else { "expect_tx" }),
            Instruction::MbarrierArrive { drops, bytes, completes, .. } => {
                let arrive = name("mbarrier").with(if drops { "arrive_drop" } else { "arrive" });
                arrive.flag(bytes.is_some(), "expect_tx").flag(!completes, "noComplete").of(Type::B64)
            }
            Instruction::MbarrierTest { phase, .. } => {
                name("mbarrier.test_wait").flag(matches!(phase, MbarrierWait::Parity(_)), "parity").of(Type::B64)
            }
            Instruction::MbarrierPending { .. } => name("mbarrier").of("pending_count"),
            Instruction::MatrixMultiply { product: MatrixProduct { m, n, k, sum, a, b, saturate, rounding }, .. } => {
                let shape = name("mma.sync").with(format!("m{m}n{n}k{k}")).flag(saturate, "satfinite");
                shape.optional((sum == Type::F64).then_some(rounding)).with(sum).with(a).with(b).of(sum)
            }
            // How wide it is decides no value.
            Instruction::WarpgroupMultiply { product: MatrixProduct { sum, a, b, saturate, .. }, .. } => {
                name("wgmma.mma_async").flag(saturate, "satfinite").with(sum).with(a).of(b)
            }
            Instruction::LoadMatrix { transposed, ref destinations, .. } => {
                name("ldmatrix.m8n8").with(format!("x{}", destinations.len())).flag(transposed, "trans").of(Type::B16)
            }
            Instruction::StoreMatrix { transposed, ref values, .. } => {
                name("stmatrix.m8n8").with(format!("x{}", values.len())).flag(transposed, "trans").of(Type::B16)
            }
            Instruction::MoveMatrix { .. } => name("movmatrix.m8n8.trans").of(Type::B16),
            Instruction::WarpReduce { op, ty, .. } => name("redux.sync").with(op).of(ty),
            // Moves, memory, control and what threads do with one another compute nothing; `multimem` computes in the switch.
            Instruction::Move { .. }
            | Instruction::MoveVector { .. }
            | Instruction::Pack { .. }
            | Instruction::Unpack { .. }
            | Instruction::ReadSpecial { .. }
            | Instruction::AddressOf { .. }
            | Instruction::Load { .. }
            | Instruction::Store { .. }
            | Instruction::ConvertAddress { .. }
            | Instruction::IsSpace { .. }
            | Instruction::MapToBlock { .. }
            | Instruction::BlockOfAddress { .. }
            | Instruction::Branch { .. }
            | Instruction::BranchIndexed { .. }
            | Instruction::Call { .. }
            | Instruction::CallIndirect { .. }
            | Instruction::Return {}
            | Instruction::Exit {}
            | Instruction::Trap {}
            | Instruction::BarrierSync { .. }
            | Instruction::BarrierArrive { .. }
            | Instruction::BarrierReduce { .. }
            | Instruction::BarrierCluster { .. }
            | Instruction::WarpSync { .. }
            | Instruction::Fence { .. }
            | Instruction::MultimemLoadReduce { .. }
            | Instruction::MultimemStore { .. }
            | Instruction::MultimemReduce { .. }
            | Instruction::Shuffle { .. }
            | Instruction::Vote { .. }
            | Instruction::ActiveMask { .. }
            | Instruction::Match { .. }
            | Instruction::Elect { .. }
            | Instruction::Sleep { .. }
            | Instruction::GridDependency { .. }
            | Instruction::Prefetch { .. }
            | Instruction::Discard { .. }
            | Instruction::CopyCommit {}
            | Instruction::CopyWait { .. }
            | Instruction::BulkCommit {}
            | Instruction::BulkWait { .. }
            | Instruction::TensorPrefetch { .. }
            | Instruction::TensorMapPublish { .. }
            | Instruction::BulkFill { .. }
            | Instruction::MbarrierInit { .. }
            | Instruction::MbarrierInvalidate { .. }
            | Instruction::WarpgroupFence {}
            | Instruction::WarpgroupCommit {}
            | Instruction::WarpgroupWait { .. }
            | Instruction::SetRegisters { .. }
            | Instruction::CreatePolicy { .. }
            | Instruction::Unknown { .. } => return None,
        })
    }
}

/// A name that grows by modifiers.
struct Name(String);

fn name(opcode: impl std::fmt::Display) -> Name {
    Name(opcode.to_string())
}

impl Name {
    fn with(self, modifier: impl std::fmt::Display) -> Name {
        Name(format!("{}.{modifier}", self.0))
    }

    fn optional(self, modifier: Option<impl std::fmt::Display>) -> Name {
        match modifier {
            Some(modifier) => self.with(modifier),
            None => self,
        }
    }

    fn flag(self, set: bool, modifier: &str) -> Name {
        self.optional(set.then_some(modifier))
    }

    fn of(self, last: impl std::fmt::Display) -> String {
        self.with(last).0
    }
}

/// `mad.hi` of `mul.hi`.
fn product_sum(op: IntegerOp) -> String {
    op.to_string().replacen("mul", "mad", 1)
}

fn written(precision: Precision) -> String {
    match precision {
        Precision::Rounded(rounding) => Rounding::to_string(&rounding),
        Precision::Approximate => "approx".into(),
        Precision::Full => "full".into(),
    }
}
