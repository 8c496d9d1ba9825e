//! Workloads: what contenders are timed on, and how a report calls it.

use serde::{Deserialize, Serialize};

use super::size;
use passmuster_plan::collective::{Collective, DType, Layout, Product, ReduceOp, Shape};

/// What is timed. Workloads that differ in their size only are rows of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Workload {
    /// A call of a collective. Its size is in bytes.
    Collective(CollectiveWorkload),
    /// A product of matrices with a collective. Its size is that of [`MatmulWorkload::size`].
    Matmul(MatmulWorkload),
    /// A training step of sharded layers. Its size is the rows of each rank's activations.
    Fsdp(FsdpWorkload),
    /// Batches that are exchanged. Its size is in bytes, of one of them.
    Pipeline(PipelineWorkload),
}

/// A call of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CollectiveWorkload {
    /// The collective.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// How they are combined.
    pub op: ReduceOp,
    /// Ranks.
    pub world: u32,
    /// Bytes of each rank's input or output, whichever is larger: what nccl-tests calls the size.
    pub bytes: u64,
    /// Whether a rank's input lies in its output, or its output in its input; absent in records where they lie apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
}

/// A product of matrices with a collective: of one of them, or beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MatmulWorkload {
    /// What of.
    pub scenario: Scenario,
    /// Type of the elements: bf16 or f16.
    pub dtype: DType,
    /// Ranks.
    pub world: u32,
    /// Columns of B and C.
    pub n: u64,
    /// Columns of A: those of each rank's part where C is scattered.
    pub k: u64,
    /// Rows of A: those of all ranks together where it is gathered.
    pub m: u64,
    /// Bytes that each rank gives to a gather beside the product; 0 where A is what is gathered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gathered: u64,
    /// Whether that gather reads a buffer of its own, as PyTorch's benchmark has it, and not the rank's slot of its output; absent in records where it
    /// does not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_place: bool,
}

/// A training step of layers whose weights are sharded over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FsdpWorkload {
    /// Layers.
    pub layers: u32,
    /// Type of the elements: bf16 or f16.
    pub dtype: DType,
    /// Ranks, each of which has as many of the rows of every weight.
    pub world: u32,
    /// Rows of each rank's activations: tokens.
    pub m: u64,
    /// Rows of a weight: what a layer puts out for a token.
    pub n: u64,
    /// Columns of a weight: what a layer takes for a token.
    pub k: u64,
}

/// All-to-alls of several batches of bf16. Hosts get a verdict on each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PipelineWorkload {
    /// Batches.
    pub batches: u32,
    /// Ranks.
    pub world: u32,
    /// Bytes of each rank's input of a batch.
    pub bytes: u64,
}

/// What the collective has to do with the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Gathers A: each rank has a part of its rows. B is n x k, as weights lie in torch.
    AllGatherMatmul,
    /// Scatters the sum of the ranks' products: each rank has a part of the columns of A and gets a part of the rows of C. B as above.
    MatmulReduceScatter,
    /// Gathers something else meanwhile. B is k x n, as in torch.matmul.
    Overlap,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl From<CollectiveWorkload> for Workload {
    fn from(workload: CollectiveWorkload) -> Workload {
        Workload::Collective(workload)
    }
}

impl From<MatmulWorkload> for Workload {
    fn from(workload: MatmulWorkload) -> Workload {
        Workload::Matmul(workload)
    }
}

impl From<FsdpWorkload> for Workload {
    fn from(workload: FsdpWorkload) -> Workload {
        Workload::Fsdp(workload)
    }
}

impl From<PipelineWorkload> for Workload {
    fn from(workload: PipelineWorkload) -> Workload {
        Workload::Pipeline(workload)
    }
}

impl Workload {
    /// Ranks.
    pub const fn world(&self) -> u32 {
        match self {
            Workload::Collective(of) => of.world,
            Workload::Matmul(of) => of.world,
            Workload::Fsdp(of) => of.world,
            Workload::Pipeline(of) => of.world,
        }
    }

    /// Type of the elements.
    pub const fn dtype(&self) -> DType {
        match self {
            Workload::Collective(of) => of.dtype,
            Workload::Matmul(of) => of.dtype,
            Workload::Fsdp(of) => of.dtype,
            Workload::Pipeline(_) => DType::BF16,
        }
    }

    /// What tables have a line and plots a point for: bytes, or rows of A or of activations.
    pub const fn size(&self) -> u64 {
        match self {
            Workload::Collective(of) => of.bytes,
            Workload::Matmul(of) => of.size(),
            Workload::Fsdp(of) => of.m,
            Workload::Pipeline(of) => of.bytes,
        }
    }

    /// The same of another size.
    pub const fn with_size(self, size: u64) -> Workload {
        match self {
            Workload::Collective(of) => Workload::Collective(CollectiveWorkload { bytes: size, ..of }),
            Workload::Matmul(of) if of.scenario.is_parallel() => Workload::Matmul(MatmulWorkload { m: size, ..of }),
            Workload::Matmul(of) => Workload::Matmul(MatmulWorkload { gathered: size, ..of }),
            Workload::Fsdp(of) => Workload::Fsdp(FsdpWorkload { m: size, ..of }),
            Workload::Pipeline(of) => Workload::Pipeline(PipelineWorkload { bytes: size, ..of }),
        }
    }

    /// The call, where it is one of a collective.
    pub const fn collective(&self) -> Option<CollectiveWorkload> {
        match self {
            Workload::Collective(of) => Some(*of),
            Workload::Matmul(_) | Workload::Fsdp(_) | Workload::Pipeline(_) => None,
        }
    }

    /// `all_reduce`, or the scenario.
    pub const fn subject(&self) -> &'static str {
        match self {
            Workload::Collective(of) => of.collective.name(),
            Workload::Matmul(of) => of.scenario.name(),
            Workload::Fsdp(_) => "fsdp",
            Workload::Pipeline(_) => "all_to_all_async",
        }
    }

    /// The subject with the type and the operator of a collective where they are not bf16 and its first: `all_reduce`, `all_reduce f32 max in place`.
    pub fn kind(&self) -> String {
        let unusual = self.collective().map(|CollectiveWorkload { collective, dtype, op, in_place, .. }| {
            let dtype = if dtype == DType::BF16 { String::new() } else { format!(" {dtype}") };
            let op = if op == collective.operators()[0] { String::new() } else { format!(" {op}") };
            dtype + &op + if in_place { " in place" } else { "" }
        });
        format!("{}{}", self.subject(), unusual.unwrap_or_default())
    }

    /// All but the size: `all_reduce bf16 sum, w=8`.
    pub fn title(&self) -> String {
        format!("{}{}, w={}", self.family(), self.extents(), self.world())
    }

    /// What a report has one verdict for: `all_reduce bf16 sum`, of any number of ranks and any extents.
    pub fn family(&self) -> String {
        let (subject, dtype) = (self.subject(), self.dtype());
        match self {
            Workload::Collective(of) if of.op.reduces() => format!("{subject} {dtype} {}", of.op),
            _ => format!("{subject} {dtype}"),
        }
    }

    /// What else it has but its size and its ranks: ` N=1792 K=4096`; of collectives ` in place`, or nothing.
    pub fn extents(&self) -> String {
        match self {
            Workload::Collective(of) => if of.in_place { " in place" } else { "" }.into(),
            Workload::Matmul(MatmulWorkload { scenario, n, k, .. }) if scenario.is_parallel() => format!(" N={n} K={k}"),
            Workload::Matmul(MatmulWorkload { n, k, m, out_of_place, .. }) => {
                format!(" {m}x{n}x{k}, gather {} place", if *out_of_place { "out of" } else { "in" })
            }
            Workload::Fsdp(FsdpWorkload { layers, n, k, .. }) => format!(" layers={layers} N={n} K={k}"),
            Workload::Pipeline(PipelineWorkload { batches, .. }) => format!(" batches={batches}"),
        }
    }

    /// The same for the name of a file: `all_reduce-w8`, `all_reduce-f32-max-w8`.
    pub fn file_name(&self) -> String {
        let (subject, world) = (self.subject(), self.world());
        match self {
            Workload::Collective(_) => format!("{}-w{world}", self.kind().replace(' ', "-")),
            Workload::Matmul(MatmulWorkload { scenario, n, k, .. }) if scenario.is_parallel() => format!("{subject}-n{n}-k{k}-w{world}"),
            Workload::Matmul(MatmulWorkload { n, k, m, out_of_place, .. }) => {
                format!("{subject}-m{m}-n{n}-k{k}{}-w{world}", if *out_of_place { "-out_of_place" } else { "" })
            }
            Workload::Fsdp(FsdpWorkload { layers, n, k, .. }) => format!("{subject}-l{layers}-n{n}-k{k}-w{world}"),
            Workload::Pipeline(PipelineWorkload { batches, .. }) => format!("{subject}-b{batches}-w{world}"),
        }
    }

    /// Its size for people: `8 KiB`, or a number of rows.
    pub fn size_name(&self) -> String {
        if self.is_sized_in_rows() { self.size().to_string() } else { size(self.size()) }
    }

    /// What its size is, in a word.
    pub const fn unit(&self) -> &'static str {
        if self.is_sized_in_rows() { "M" } else { "bytes" }
    }

    /// What its size is, for an axis.
    pub const fn axis(&self) -> &'static str {
        match self {
            Workload::Collective(_) => "bytes of the larger of input and output",
            Workload::Matmul(MatmulWorkload { scenario: Scenario::AllGatherMatmul, .. }) => "M: rows of A, those of all ranks together",
            Workload::Matmul(MatmulWorkload { scenario: Scenario::MatmulReduceScatter, .. }) => "M: rows of A, which every rank has all of",
            Workload::Matmul(_) => "bytes that each rank gives to the gather",
            Workload::Fsdp(_) => "M: rows of each rank's activations",
            Workload::Pipeline(_) => "bytes of each rank's input of a batch",
        }
    }

    const fn is_sized_in_rows(&self) -> bool {
        match self {
            Workload::Collective(_) | Workload::Pipeline(_) => false,
            Workload::Matmul(of) => of.scenario.is_parallel(),
            Workload::Fsdp(_) => true,
        }
    }

    /// Floating-point operations of each rank over the time, in TFLOP/s; of collectives none.
    pub fn teraflops(&self, microseconds: f64) -> Option<f64> {
        match self {
            Workload::Collective(_) | Workload::Pipeline(_) => None,
            Workload::Matmul(of) => Some(of.teraflops(microseconds)),
            Workload::Fsdp(of) => {
                Some(of.products().map(|product| product.flop(1)).iter().sum::<f64>() * f64::from(of.layers) / microseconds / 1e6)
            }
        }
    }

    /// Bytes that a call goes over on a rank, about: the larger of input and output, or all operands together.
    pub fn bytes(&self) -> u64 {
        match self {
            Workload::Collective(of) => of.bytes,
            Workload::Matmul(MatmulWorkload { dtype, n, k, m, gathered, world, .. }) => {
                (m * k + n * k + m * n) * dtype.size() + u64::from(*world) * gathered
            }
            Workload::Fsdp(FsdpWorkload { layers, dtype, n, k, m, .. }) => u64::from(*layers) * (m * k + n * k + m * n) * dtype.size(),
            Workload::Pipeline(of) => u64::from(of.batches) * of.bytes,
        }
    }
}

impl CollectiveWorkload {
    /// The call in elements. As nccl-tests does: slots are whole packs of 16 bytes where they are not less than one.
    pub fn shape(&self) -> Shape {
        let slots = Shape::new(self.collective, self.world, 1).larger();
        let (elements, pack) = (self.bytes / slots / self.dtype.size(), 16 / self.dtype.size());
        Shape::new(self.collective, self.world, if elements > pack { elements / pack * pack } else { elements })
    }

    /// Bytes over the time, in GB/s, times what of them crosses the slowest link: nccl-tests' algbw and busbw.
    pub fn bandwidths(&self, microseconds: f64) -> (f64, f64) {
        let algorithm = self.bytes as f64 / microseconds / 1e3;
        (algorithm, algorithm * self.collective.bus_factor(self.world))
    }
}

impl Scenario {
    /// As commands and records name it.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::AllGatherMatmul => "all_gather_matmul",
            Scenario::MatmulReduceScatter => "matmul_reduce_scatter",
            Scenario::Overlap => "overlap",
        }
    }

    /// Whether ranks have parts of the matrices, and their products need the collective.
    pub const fn is_parallel(self) -> bool {
        !matches!(self, Scenario::Overlap)
    }
}

impl MatmulWorkload {
    /// Rows of A where ranks have parts of the matrices, else the bytes that each rank gives to the gather.
    pub const fn size(&self) -> u64 {
        if self.scenario.is_parallel() { self.m } else { self.gathered }
    }

    /// What each rank multiplies: with a rank's part of the rows where A is gathered or C is scattered, with all of them elsewhere.
    pub const fn product(&self) -> Product {
        let (rows, layout) = if self.scenario.is_parallel() { (self.m / self.world as u64, Layout::Nk) } else { (self.m, Layout::Kn) };
        Product { dtype: self.dtype, rows, columns: self.n, depth: self.k, layout }
    }

    /// Whether a contender does part of the work only: the product, or the collective.
    pub(super) fn is_part(&self, contender: &str) -> bool {
        match self.scenario {
            Scenario::AllGatherMatmul | Scenario::MatmulReduceScatter => {
                ["cublas_lt", "matmul"].contains(&contender) || contender.starts_with("control/")
            }
            Scenario::Overlap => ["matmul", "gather/"].iter().any(|part| contender.starts_with(part)),
        }
    }

    /// Floating-point operations of each rank over the time, in TFLOP/s.
    pub fn teraflops(&self, microseconds: f64) -> f64 {
        2.0 * self.m as f64 * self.n as f64 * self.k as f64 / microseconds / 1e6
    }
}

impl FsdpWorkload {
    /// What a rank multiplies for each layer: forward X by W, both as torch has them, so that rows of W are columns of the product; backward dY by W, and
    /// the transpose of dY by X.
    pub const fn products(&self) -> [Product; 3] {
        let FsdpWorkload { dtype, m, n, k, .. } = *self;
        [
            Product { dtype, rows: m, columns: n, depth: k, layout: Layout::Nk },
            Product { dtype, rows: m, columns: k, depth: n, layout: Layout::Kn },
            Product { dtype, rows: n, columns: k, depth: m, layout: Layout::Kn },
        ]
    }

    /// Elements of a rank's part of a weight.
    pub const fn shard(&self) -> u64 {
        self.n / self.world as u64 * self.k
    }
}

impl PipelineWorkload {
    /// Elements of a slot, as [`CollectiveWorkload::shape`] has them.
    pub fn slot(&self) -> u64 {
        let PipelineWorkload { world, bytes, .. } = *self;
        CollectiveWorkload { collective: Collective::AllToAll, dtype: DType::BF16, op: ReduceOp::Copy, world, bytes, in_place: false }
            .shape()
            .count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use rstest::rstest;

    #[rstest]
    #[case::all_reduce(Collective::AllReduce, ReduceOp::Sum, 1355.0, 198.1, 346.7)]
    #[case::all_gather(Collective::AllGather, ReduceOp::Copy, 699.0, 384.0, 336.0)]
    #[case::reduce_scatter(Collective::ReduceScatter, ReduceOp::Sum, 753.0, 356.5, 311.9)]
    #[case::broadcast(Collective::Broadcast, ReduceOp::Copy, 699.0, 384.0, 384.0)]
    #[case::all_to_all(Collective::AllToAll, ReduceOp::Copy, 699.0, 384.0, 336.0)]
    fn bus_bandwidth_is_that_of_nccl_tests(
        #[case] collective: Collective,
        #[case] op: ReduceOp,
        #[case] microseconds: f64,
        #[case] algbw: f64,
        #[case] busbw: f64,
    ) {
        let workload = CollectiveWorkload { collective, dtype: DType::BF16, op, world: 8, bytes: 256 << 20, in_place: false };
        let (algorithm, bus) = workload.bandwidths(microseconds);
        assert_relative_eq!(algorithm, algbw, epsilon = 0.1);
        assert_relative_eq!(bus, busbw, epsilon = 0.1);
    }

    /// If this fails, records of one kind of workload are read as another, or older ones not at all.
    #[test]
    fn records_tell_workloads_apart() {
        let old = r#"{"collective":"all_reduce","dtype":"bf16","op":"sum","world":2,"bytes":8192}"#;
        let collective = serde_json::from_str::<Workload>(old).unwrap();
        assert_eq!((collective.size(), serde_json::to_string(&collective).unwrap()), (8192, old.to_owned()));
        let (scenario, dtype) = (Scenario::AllGatherMatmul, DType::BF16);
        let matmul =
            Workload::from(MatmulWorkload { scenario, dtype, world: 8, n: 1792, k: 4096, m: 16384, gathered: 0, out_of_place: false });
        let text = r#"{"scenario":"all_gather_matmul","dtype":"bf16","world":8,"n":1792,"k":4096,"m":16384}"#;
        assert_eq!((serde_json::to_string(&matmul).unwrap(), serde_json::from_str(text).unwrap()), (text.to_owned(), matmul));
        assert_eq!((matmul.title(), matmul.size_name()), ("all_gather_matmul bf16 N=1792 K=4096, w=8".into(), "16384".into()));
        assert_eq!(matmul.with_size(4096).size(), 4096);
        let older = r#"{"scenario":"overlap","dtype":"f16","world":2,"n":8,"k":8,"m":8,"gathered":64}"#;
        let Workload::Matmul(in_place) = serde_json::from_str(older).unwrap() else { panic!("{older}") };
        let apart = Workload::from(MatmulWorkload { out_of_place: true, ..in_place });
        assert_eq!(serde_json::to_string(&in_place).unwrap(), older);
        assert_eq!(serde_json::to_string(&apart).unwrap(), older.replace("64}", "64,\"out_of_place\":true}"));
        let titles = [in_place.into(), apart].map(|of| (of.title(), of.file_name()));
        let expected = [("in", ""), ("out of", "-out_of_place")];
        let expected =
            expected.map(|(how, file)| (format!("overlap f16 8x8x8, gather {how} place, w=2"), format!("overlap-m8-n8-k8{file}-w2")));
        assert_eq!(titles, expected);
    }

    /// If this fails, records of steps are read as those of products.
    #[test]
    fn steps_are_told_by_their_layers() {
        let step = Workload::from(FsdpWorkload { layers: 8, dtype: DType::BF16, world: 4, m: 2048, n: 8192, k: 4096 });
        let text = r#"{"layers":8,"dtype":"bf16","world":4,"m":2048,"n":8192,"k":4096}"#;
        assert_eq!((serde_json::to_string(&step).unwrap(), serde_json::from_str(text).unwrap()), (text.to_owned(), step));
        assert_eq!((step.title(), step.file_name()), ("fsdp bf16 layers=8 N=8192 K=4096, w=4".into(), "fsdp-l8-n8192-k4096-w4".into()));
        // Three products of each layer.
        assert_relative_eq!(step.teraflops(1000.0).unwrap(), 24.0 * 2.0 * 2048.0 * 8192.0 * 4096.0 / 1e9);
        assert_eq!(step.with_size(4096).size_name(), "4096");
    }

    /// cuBLAS's 1502 us at 16384 x 3584 x 8192 are 641 TFLOP/s (symm-mem-recipes).
    #[test]
    fn a_rate_is_of_each_rank() {
        let (scenario, dtype) = (Scenario::AllGatherMatmul, DType::BF16);
        let workload = MatmulWorkload { scenario, dtype, world: 8, n: 3584, k: 8192, m: 16384, gathered: 0, out_of_place: false };
        assert_relative_eq!(workload.teraflops(1502.0), 640.6, epsilon = 0.1);
        assert_eq!(workload.product().rows, 2048);
    }
}
