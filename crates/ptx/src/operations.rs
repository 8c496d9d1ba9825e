//! What the instructions of one family do, as their opcodes and modifiers say.

use super::types::{
    Type::{self, *},
    modifiers,
};

modifiers! {
    /// Integer operations of two operands.
    IntegerOp {
        /// Sum.
        Add = "add",
        /// Difference.
        Subtract = "sub",
        /// Low half of the product.
        MultiplyLow = "mul.lo",
        /// High half of the product.
        MultiplyHigh = "mul.hi",
        /// The whole product, twice as wide as the type.
        MultiplyWide = "mul.wide",
        /// Quotient.
        Divide = "div",
        /// Remainder.
        Remainder = "rem",
        /// Smaller.
        Minimum = "min",
        /// Larger.
        Maximum = "max",
    }
}

modifiers! {
    /// Floating-point operations of two operands.
    FloatOp {
        /// Sum.
        Add = "add",
        /// Difference.
        Subtract = "sub",
        /// Product.
        Multiply = "mul",
        /// Quotient.
        Divide = "div",
        /// Smaller.
        Minimum = "min",
        /// Larger.
        Maximum = "max",
        /// The second operand with the sign of the first.
        CopySign = "copysign",
    }
}

modifiers! {
    /// Functions of one number.
    UnaryOp {
        /// Negation.
        Negate = "neg",
        /// Magnitude.
        Absolute = "abs",
        /// 1 / x.
        Reciprocal = "rcp",
        /// Square root.
        SquareRoot = "sqrt",
        /// 1 / square root.
        ReciprocalSquareRoot = "rsqrt",
        /// 2 to the x.
        Exponential = "ex2",
        /// Logarithm to base 2.
        Logarithm = "lg2",
        /// Sine.
        Sine = "sin",
        /// Cosine.
        Cosine = "cos",
        /// Hyperbolic tangent.
        HyperbolicTangent = "tanh",
    }
}

impl UnaryOp {
    /// The types of the function; `neg` and `abs` are instructions of their own, with other types.
    pub(super) fn types(self) -> &'static [Type] {
        match self {
            UnaryOp::Reciprocal | UnaryOp::SquareRoot | UnaryOp::ReciprocalSquareRoot => &[F32, F64],
            UnaryOp::Exponential | UnaryOp::HyperbolicTangent => &[F32, F16, F16x2, Bf16, Bf16x2],
            UnaryOp::Negate | UnaryOp::Absolute | UnaryOp::Logarithm | UnaryOp::Sine | UnaryOp::Cosine => &[F32],
        }
    }
}

modifiers! {
    /// Functions of the bits of one operand.
    BitOp {
        /// Complement.
        Not = "not",
        /// 1 for zero, 0 for all else.
        LogicalNot = "cnot",
        /// Bits in reverse order.
        Reverse = "brev",
        /// Number of ones; 32 bits.
        PopulationCount = "popc",
        /// Number of leading zeros; 32 bits.
        CountLeadingZeros = "clz",
    }
}

impl BitOp {
    /// The types of the operand, and the type of the result if it is another.
    pub(super) fn types(self) -> (&'static [Type], Option<Type>) {
        match self {
            BitOp::Not => (&[Pred, B16, B32, B64], None),
            BitOp::LogicalNot => (&[B16, B32, B64], None),
            BitOp::Reverse => (&[B32, B64], None),
            BitOp::PopulationCount | BitOp::CountLeadingZeros => (&[B32, B64], Some(U32)),
        }
    }
}

modifiers! {
    /// How prmt selects bytes.
    PermuteMode {
        /// By the selector's nibbles: what no modifier means.
        Index = "idx",
        /// Four bytes forwards.
        Forward4 = "f4e",
        /// Four bytes backwards.
        Backward4 = "b4e",
        /// One byte replicated.
        Replicate8 = "rc8",
        /// Clamped from the left.
        EdgeLeft = "ecl",
        /// Clamped from the right.
        EdgeRight = "ecr",
        /// Two bytes replicated.
        Replicate16 = "rc16",
    }
}

modifiers! {
    /// What an atomic operation, a reduction of multimem or one of a warp does.
    AtomicOp {
        /// Sum.
        Add = "add",
        /// Smaller.
        Minimum = "min",
        /// Larger.
        Maximum = "max",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// Up by one, to zero past the operand.
        Increment = "inc",
        /// Down by one, to the operand past zero.
        Decrement = "dec",
        /// Exchange.
        Exchange = "exch",
        /// Compare and swap.
        CompareAndSwap = "cas",
    }
}

modifiers! {
    /// Which lane a shuffle reads.
    ShuffleMode {
        /// A lower one.
        Up = "up",
        /// A higher one.
        Down = "down",
        /// By exclusive or.
        Butterfly = "bfly",
        /// A given one.
        Index = "idx",
    }
}

modifiers! {
    /// What a vote asks.
    VoteMode {
        /// All lanes.
        All = "all",
        /// Any lane.
        Any = "any",
        /// The same in all lanes.
        Uniform = "uni",
        /// One bit a lane.
        Ballot = "ballot",
    }
}

modifiers! {
    /// What match compares.
    MatchMode {
        /// Lanes with the same value as this.
        Any = "any",
        /// All lanes, where they have one value.
        All = "all",
    }
}

modifiers! {
    /// How a barrier combines its threads' predicates.
    BarrierReduction {
        /// Number of threads where it holds.
        PopulationCount = "popc",
        /// All.
        And = "and",
        /// Any.
        Or = "or",
    }
}

modifiers! {
    /// What a number is asked.
    NumberTest {
        /// Neither infinite nor NaN.
        Finite = "finite",
        /// Infinite.
        Infinite = "infinite",
        /// Not NaN.
        Number = "number",
        /// NaN.
        NotANumber = "notanumber",
        /// Normal.
        Normal = "normal",
        /// Subnormal.
        Subnormal = "subnormal",
    }
}

modifiers! {
    /// What `tensormap.replace` replaces.
    TensorMapField {
        /// Where the tensor is.
        GlobalAddress = "global_address",
        /// Dimensions, less one.
        Rank = "rank",
        /// Elements of a box along a dimension.
        BoxExtent = "box_dim",
        /// Elements along a dimension.
        Extent = "global_dim",
        /// Bytes from an element to its neighbour along a dimension but the first.
        Stride = "global_stride",
        /// Elements of which one is copied along a dimension.
        ElementStride = "element_stride",
        /// Type of the elements, by number.
        ElementType = "elemtype",
        /// How channels are interleaved, by number.
        Interleave = "interleave_layout",
        /// How boxes are swizzled, by number.
        Swizzle = "swizzle_mode",
        /// What is loaded from outside, by number.
        Fill = "fill_mode",
    }
}

modifiers! {
    /// Which proxies a fence orders with the generic one.
    ProxyKind {
        /// Other addresses of the same memory, such as multicast ones.
        Alias = "alias",
        /// The async proxy in every space.
        Async = "async",
        /// The async proxy in global memory.
        AsyncGlobal = "async.global",
        /// The async proxy in shared memory of the block.
        AsyncSharedCta = "async.shared::cta",
        /// The async proxy in shared memory of the cluster.
        AsyncSharedCluster = "async.shared::cluster",
    }
}
