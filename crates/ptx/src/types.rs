//! The words of PTX's modifiers as types.

/// Declares an enum whose variants are PTX modifiers, with a table from the modifiers and `Display` as written.
macro_rules! modifiers {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every variant with its modifier, without the dot.
            pub const ALL: &'static [(&'static str, $name)] = &[$(($text, $name::$variant),)*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)* })
            }
        }
    };
}
pub(super) use modifiers;

modifiers! {
    /// The type of an instruction's operands or of a variable.
    Type {
        /// A predicate.
        Pred = "pred",
        /// 8 bits.
        B8 = "b8",
        /// 16 bits.
        B16 = "b16",
        /// 32 bits.
        B32 = "b32",
        /// 64 bits.
        B64 = "b64",
        /// 128 bits.
        B128 = "b128",
        /// Unsigned, 8 bits.
        U8 = "u8",
        /// Unsigned, 16 bits.
        U16 = "u16",
        /// Unsigned, 32 bits.
        U32 = "u32",
        /// Unsigned, 64 bits.
        U64 = "u64",
        /// Signed, 8 bits.
        S8 = "s8",
        /// Signed, 16 bits.
        S16 = "s16",
        /// Signed, 32 bits.
        S32 = "s32",
        /// Signed, 64 bits.
        S64 = "s64",
        /// Two unsigned of 16 bits.
        U16x2 = "u16x2",
        /// Two signed of 16 bits.
        S16x2 = "s16x2",
        /// IEEE half precision.
        F16 = "f16",
        /// Two of half precision.
        F16x2 = "f16x2",
        /// bfloat16.
        Bf16 = "bf16",
        /// Two bfloat16.
        Bf16x2 = "bf16x2",
        /// IEEE single precision.
        F32 = "f32",
        /// The upper 19 bits of single precision, in 32.
        Tf32 = "tf32",
        /// IEEE double precision.
        F64 = "f64",
        /// FP8 with 4 bits of exponent.
        E4m3 = "e4m3",
        /// Two of them.
        E4m3x2 = "e4m3x2",
        /// Four of them.
        E4m3x4 = "e4m3x4",
        /// FP8 with 5 bits of exponent.
        E5m2 = "e5m2",
        /// Two of them.
        E5m2x2 = "e5m2x2",
        /// Four of them.
        E5m2x4 = "e5m2x4",
        /// Two of FP4 with 2 bits of exponent.
        E2m1x2 = "e2m1x2",
    }
}

impl Type {
    /// Width in bits; 1 for a predicate.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::B8 | Type::U8 | Type::S8 | Type::E4m3 | Type::E5m2 | Type::E2m1x2 => 8,
            Type::B16 | Type::U16 | Type::S16 | Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::B32 | Type::U32 | Type::S32 | Type::F32 | Type::Tf32 => 32,
            Type::U16x2 | Type::S16x2 | Type::F16x2 | Type::Bf16x2 => 32,
            Type::E4m3x4 | Type::E5m2x4 => 32,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 64,
            Type::B128 => 128,
        }
    }

    /// Width in bytes in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64 | Type::S16x2)
    }

    /// Whether it is an integer of one element, signed or unsigned.
    pub fn is_integer(self) -> bool {
        matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }

    /// Whether it is a floating-point type, packed ones included.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2 | Type::F32 | Type::Tf32 | Type::F64 | Type::E2m1x2)
            || self.is_fp8()
    }

    /// Whether it is FP8, packed or not.
    pub fn is_fp8(self) -> bool {
        matches!(self, Type::E4m3 | Type::E4m3x2 | Type::E4m3x4 | Type::E5m2 | Type::E5m2x2 | Type::E5m2x4)
    }

    /// Whether it says no more than a width.
    pub fn is_untyped(self) -> bool {
        matches!(self, Type::B8 | Type::B16 | Type::B32 | Type::B64 | Type::B128)
    }
}

modifiers! {
    /// A state space.
    Space {
        /// Kernel and function parameters.
        Param = "param",
        /// Global memory, peers' and multicast addresses included.
        Global = "global",
        /// Constant memory.
        Const = "const",
        /// A thread's own memory.
        Local = "local",
        /// A block's shared memory.
        Shared = "shared",
        /// The shared memory of all blocks of a cluster.
        SharedCluster = "shared::cluster",
        /// Generic addresses: what no modifier means.
        Generic = "generic",
    }
}

modifiers! {
    /// The threads that a strong operation or a fence is meant for.
    Scope {
        /// The block.
        Cta = "cta",
        /// The cluster.
        Cluster = "cluster",
        /// The GPU.
        Gpu = "gpu",
        /// All GPUs and the host.
        Sys = "sys",
    }
}

modifiers! {
    /// What a memory operation or a fence orders.
    Semantics {
        /// Nothing: what no modifier means for ld and st.
        Weak = "weak",
        /// As relaxed at system scope, and never merged.
        Volatile = "volatile",
        /// Strong, and no order.
        Relaxed = "relaxed",
        /// Acquire.
        Acquire = "acquire",
        /// Release.
        Release = "release",
        /// Both.
        AcquireRelease = "acq_rel",
        /// Both, and in one order with all its kind; fences only.
        SequentiallyConsistent = "sc",
        /// Memory-mapped I/O, relaxed at system scope.
        Mmio = "mmio",
        /// Through the non-coherent cache; ld only, outside the memory model.
        NonCoherent = "nc",
    }
}

modifiers! {
    /// How a result is rounded to a floating-point type.
    Rounding {
        /// To the nearest, ties to even.
        Nearest = "rn",
        /// Towards zero.
        Zero = "rz",
        /// Towards minus infinity.
        Down = "rm",
        /// Towards plus infinity.
        Up = "rp",
        /// To the nearest, ties away from zero; cvt only.
        NearestAway = "rna",
    }
}

modifiers! {
    /// How a floating-point value is rounded to an integer.
    IntegerRounding {
        /// To the nearest, ties to even.
        Nearest = "rni",
        /// Towards zero.
        Zero = "rzi",
        /// Towards minus infinity.
        Down = "rmi",
        /// Towards plus infinity.
        Up = "rpi",
    }
}

modifiers! {
    /// A comparison. The ones that end in `u` hold also where an operand is NaN; `lo` to `hs` are unsigned.
    Comparison {
        /// Equal.
        Equal = "eq",
        /// Not equal.
        NotEqual = "ne",
        /// Less.
        Less = "lt",
        /// Less or equal.
        LessEqual = "le",
        /// Greater.
        Greater = "gt",
        /// Greater or equal.
        GreaterEqual = "ge",
        /// Lower, unsigned.
        Lower = "lo",
        /// Lower or same, unsigned.
        LowerSame = "ls",
        /// Higher, unsigned.
        Higher = "hi",
        /// Higher or same, unsigned.
        HigherSame = "hs",
        /// Equal or unordered.
        EqualUnordered = "equ",
        /// Not equal or unordered.
        NotEqualUnordered = "neu",
        /// Less or unordered.
        LessUnordered = "ltu",
        /// Less, equal or unordered.
        LessEqualUnordered = "leu",
        /// Greater or unordered.
        GreaterUnordered = "gtu",
        /// Greater, equal or unordered.
        GreaterEqualUnordered = "geu",
        /// Neither is NaN.
        Numbers = "num",
        /// One is NaN.
        Nan = "nan",
    }
}

modifiers! {
    /// How predicates are combined.
    BooleanOp {
        /// Both.
        And = "and",
        /// Either.
        Or = "or",
        /// One of them.
        Xor = "xor",
    }
}

modifiers! {
    /// What is known of caching. Kept for reports; it changes no value.
    CacheHint {
        /// All levels.
        All = "ca",
        /// L2 only.
        Global = "cg",
        /// Streaming.
        Streaming = "cs",
        /// Last use.
        LastUse = "lu",
        /// Fetched again.
        Volatile = "cv",
        /// Written back.
        WriteBack = "wb",
        /// Written through.
        WriteThrough = "wt",
        /// Default eviction from L1.
        L1EvictNormal = "L1::evict_normal",
        /// Unchanged eviction from L1.
        L1EvictUnchanged = "L1::evict_unchanged",
        /// First out of L1.
        L1EvictFirst = "L1::evict_first",
        /// Last out of L1.
        L1EvictLast = "L1::evict_last",
        /// Not in L1.
        L1NoAllocate = "L1::no_allocate",
        /// Default eviction from L2.
        L2EvictNormal = "L2::evict_normal",
        /// First out of L2.
        L2EvictFirst = "L2::evict_first",
        /// Last out of L2.
        L2EvictLast = "L2::evict_last",
        /// By a policy in one more operand.
        L2CacheHint = "L2::cache_hint",
        /// Prefetches 64 bytes.
        L2Prefetch64 = "L2::64B",
        /// Prefetches 128 bytes.
        L2Prefetch128 = "L2::128B",
        /// Prefetches 256 bytes.
        L2Prefetch256 = "L2::256B",
    }
}
