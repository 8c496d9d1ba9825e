//! Cases of products: their ids.
//!
//! `all_gather_matmul/fused:bf16,nk:w=4:rows=200:columns=256:depth=200:inputs=fractions:tile=208:skew=r1+2000us:groups=2:seed=9f3c`

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use super::Numbers;
use crate::conformance::{
    collective_case::{CaseError, CaseId, Fault, Skew, hexadecimal, number, pairs},
    shrink::Simplify,
};
use passmuster_plan::{
    algorithms::{Registry, RegistryError, TensorParallel, TensorParallelFusion},
    collective::{DType, Layout, Product},
    plan::MAX_WORLD,
    words::expected,
};

/// One point of the test space of products of matrices that ranks have parts of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProductCase {
    /// Which collective goes with the product.
    pub half: TensorParallelFusion,
    /// The algorithm under test.
    pub algorithm: String,
    /// What is multiplied: rows are those of each rank's part.
    pub product: Product,
    /// Ranks.
    pub world: u32,
    /// Which numbers the matrices hold.
    pub inputs: Numbers,
    /// Columns of the tiles, where they are not those that suit the product best.
    pub tile: Option<u32>,
    /// One rank whose host is late; it has no site.
    pub skew: Option<Skew>,
    /// Groups of the same ranks that make the same calls at the same time, each on a stream of its own.
    pub groups: u32,
    /// A rank that stays away from the second call.
    pub fault: Option<Fault>,
    /// Seed of the inputs.
    pub seed: u64,
}

/// The keys of an id, in the order in which they are written.
pub(in crate::conformance) const KEYS: [&str; 10] = ["w", "rows", "columns", "depth", "inputs", "tile", "skew", "groups", "fault", "seed"];

/// The most groups.
const MOST_GROUPS: u32 = 4;

/// Why a registry does not have what a case runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownProduct {
    /// There is no such algorithm.
    #[error(transparent)]
    Algorithm(#[from] RegistryError),
    /// The case names a tile, and the algorithm has no choice of them.
    #[error("tile={columns}: {half}/{algorithm} has no choice of tiles")]
    NoTiles {
        /// Columns of the tile.
        columns: u32,
        /// What the algorithm is of.
        half: TensorParallelFusion,
        /// The algorithm.
        algorithm: String,
    },
    /// The algorithm has no such tile.
    #[error("tile={columns}: expected one of {}", known.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))]
    Tile {
        /// Columns of the tile.
        columns: u32,
        /// Those that it has.
        known: Vec<u32>,
    },
}

impl From<UnknownProduct> for String {
    fn from(error: UnknownProduct) -> String {
        error.to_string()
    }
}

impl ProductCase {
    /// A case with every default: integers, the best tiles, one group, nobody late, seed 0.
    pub fn new(half: TensorParallelFusion, algorithm: &str, product: Product, world: u32) -> ProductCase {
        let algorithm = algorithm.into();
        ProductCase { half, algorithm, product, world, inputs: Numbers::Integers, tile: None, skew: None, groups: 1, fault: None, seed: 0 }
    }

    /// The algorithm, with the case's tiles.
    ///
    /// # Errors
    /// An unknown algorithm, tiles that there are not, or of an algorithm that has no choice of them.
    pub fn algorithm(&self, registry: &Registry) -> Result<Arc<dyn TensorParallel>, UnknownProduct> {
        let algorithm = registry.product(self.half, &self.algorithm)?;
        let Some(columns) = self.tile else { return Ok(algorithm.clone()) };
        let tiles = algorithm.tiles();
        if tiles.is_empty() {
            return Err(UnknownProduct::NoTiles { columns, half: self.half, algorithm: self.algorithm.clone() });
        }
        algorithm.tiled(columns).ok_or_else(|| UnknownProduct::Tile { columns, known: tiles.to_vec() })
    }

    /// Whether a registry has the algorithm, with the case's tiles.
    ///
    /// # Errors
    /// As [`ProductCase::algorithm`].
    pub fn check_known(&self, registry: &Registry) -> Result<(), UnknownProduct> {
        self.algorithm(registry).map(drop)
    }

    /// Environment variables that the machine's process needs for this case.
    pub fn environment(&self, registry: &Registry) -> BTreeMap<&'static str, &'static str> {
        let algorithm = registry.product(self.half, &self.algorithm);
        algorithm.map_or_else(|_| BTreeMap::new(), |algorithm| algorithm.environment().iter().copied().collect())
    }

    /// Bytes of all ranks' A.
    pub fn input_bytes(&self) -> u64 {
        let Product { rows, depth, dtype, .. } = self.product;
        let ranks =
            if self.half == TensorParallelFusion::Scatter { u64::from(self.world) * u64::from(self.world) } else { self.world.into() };
        rows.saturating_mul(depth).saturating_mul(dtype.size()).saturating_mul(ranks)
    }

    fn check(&self) -> Result<(), String> {
        if self.world == 0 || self.world as usize > MAX_WORLD {
            return Err(format!("w={}: a group has 1 to {MAX_WORLD} ranks", self.world));
        }
        let ranks = [self.skew.map(|skew| skew.rank), self.fault.and_then(Fault::rank)];
        if let Some(rank) = ranks.into_iter().flatten().find(|&rank| rank >= self.world) {
            return Err(format!("rank {rank} of {}: ranks are 0 to {}", self.world, self.world - 1));
        }
        if let Some(site) = self.skew.and_then(|skew| skew.site) {
            return Err(format!("skew at {}: a product is late on its host only", site.name()));
        }
        if let Some(fault) = self.fault.filter(|fault| !matches!(fault, Fault::Absent(_))) {
            return Err(format!("fault={fault}: of products expected absent@rRANK"));
        }
        if !(1..=MOST_GROUPS).contains(&self.groups) {
            return Err(format!("groups={}: 1 to {MOST_GROUPS}", self.groups));
        }
        Ok(())
    }
}

impl Simplify for ProductCase {
    fn simpler(&self) -> Vec<ProductCase> {
        let mut out = Vec::new();
        let mut push = |change: &dyn Fn(&mut ProductCase)| {
            let mut simpler = self.clone();
            change(&mut simpler);
            // A change may leave the case as it was, or make it one that cannot be written down.
            if simpler != *self && simpler.check().is_ok() {
                out.push(simpler);
            }
        };
        push(&|case| case.groups = 1);
        for world in [2, 3, self.world.saturating_sub(1)] {
            if (2..self.world).contains(&world) {
                push(&|case| {
                    case.world = world;
                    case.skew = case.skew.map(|skew| Skew { rank: skew.rank.min(world - 1), ..skew });
                });
            }
        }
        for fewer in [1, self.product.rows / 2] {
            push(&|case| case.product.rows = fewer.clamp(1, case.product.rows));
        }
        // Rows of B and C are whole packs.
        for part in [8, self.product.columns / 16 * 8] {
            push(&|case| case.product.columns = part.clamp(8, case.product.columns.max(8)));
        }
        for part in [8, self.product.depth / 16 * 8] {
            push(&|case| case.product.depth = part.clamp(8, case.product.depth.max(8)));
        }
        push(&|case| case.skew = None);
        push(&|case| case.tile = None);
        push(&|case| case.product.layout = Layout::Nk);
        push(&|case| case.product.dtype = DType::BF16);
        push(&|case| case.inputs = Numbers::Integers);
        push(&|case| case.seed = 0);
        out
    }
}

impl CaseId for ProductCase {
    fn head(&self) -> [&str; 4] {
        [self.half.name(), &self.algorithm, self.product.dtype.name(), self.product.layout.name()]
    }

    fn fields(&self) -> Vec<(&str, String)> {
        let Product { rows, columns, depth, .. } = self.product;
        let mut fields = vec![("w", self.world.to_string())];
        fields.extend([("rows", rows), ("columns", columns), ("depth", depth)].map(|(key, value)| (key, value.to_string())));
        let given = [
            ("inputs", (self.inputs != Numbers::Integers).then(|| self.inputs.to_string())),
            ("tile", self.tile.map(|columns| columns.to_string())),
            ("skew", self.skew.map(|skew| skew.to_string())),
            ("groups", (self.groups != 1).then(|| self.groups.to_string())),
            ("fault", self.fault.map(|fault| fault.to_string())),
            ("seed", (self.seed != 0).then(|| format!("{:x}", self.seed))),
        ];
        fields.extend(given.into_iter().filter_map(|(key, value)| Some((key, value?))));
        fields
    }

    fn default_of(&self, key: &str) -> &'static str {
        match key {
            "inputs" => Numbers::Integers.name(),
            "groups" => "1",
            "seed" => "0",
            _ => "",
        }
    }
}

impl fmt::Display for ProductCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_id(f)
    }
}

impl FromStr for ProductCase {
    type Err = CaseError;

    fn from_str(id: &str) -> Result<ProductCase, CaseError> {
        parse(id).map_err(|problem| CaseError::new(id, problem))
    }
}

fn parse(id: &str) -> Result<ProductCase, String> {
    let ([half, algorithm, dtype, layout], pairs) = pairs(id, "DTYPE,LAYOUT")?;
    let product = Product { dtype: dtype.parse()?, layout: layout.parse()?, rows: 0, columns: 0, depth: 0 };
    let mut case = ProductCase::new(half.parse()?, algorithm, product, 0);
    for &(key, value) in &pairs {
        match key {
            "w" => case.world = number(key, value)?,
            "rows" => case.product.rows = number(key, value)?,
            "columns" => case.product.columns = number(key, value)?,
            "depth" => case.product.depth = number(key, value)?,
            "inputs" => case.inputs = value.parse()?,
            "tile" => case.tile = Some(number(key, value)?),
            "skew" => case.skew = Some(value.parse()?),
            "groups" => case.groups = number(key, value)?,
            "fault" => case.fault = Some(value.parse()?),
            "seed" => case.seed = hexadecimal(key, value)?,
            _ => return Err(format!("unknown key `{key}`: {}", expected(key, &KEYS))),
        }
    }
    if let Some(missing) = ["w", "rows", "columns", "depth"].into_iter().find(|key| !pairs.iter().any(|(given, _)| given == key)) {
        return Err(format!("{missing}= must be given"));
    }
    case.check()?;
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        REGISTRY,
        conformance::{Case, shrink::shrink},
    };
    use rstest::rstest;
    use std::time::Duration;

    #[rstest]
    #[case("all_gather_matmul/fused:bf16,nk:w=4:rows=200:columns=256:depth=200")]
    #[case("all_gather_matmul/pull:f16,kn:w=4:rows=9:columns=8:depth=8:inputs=fractions:tile=208:skew=r1+2000us:groups=2:seed=9f3c")]
    #[case("matmul_reduce_scatter/matmul+nccl_ring:bf16,nk:w=2:rows=1:columns=8:depth=16:fault=absent@r1")]
    fn ids_are_read_and_written(#[case] id: &str) {
        assert_eq!(id.parse::<ProductCase>().unwrap().to_string(), id);
    }

    const SHAPE: &str = "w=2:rows=8:columns=8:depth=8";

    #[rstest]
    #[case(
        "matmul/fused",
        "bf16,nk",
        SHAPE,
        "unknown product `matmul`: did you mean `all_gather_matmul` or `matmul_reduce_scatter`? expected one of all_gather_matmul, matmul_reduce_scatter"
    )]
    #[case(
        "all_gather_matmul/push",
        "bf16,nk",
        SHAPE,
        "unknown algorithm `push` of all_gather_matmul: did you mean `pull`? expected one of nccl_ring+matmul, "
    )]
    #[case("all_gather_matmul/pull", "bf16,sum", SHAPE, "unknown layout `sum`: expected one of nk, kn")]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=2:rows=8:columns=8", "depth= must be given")]
    #[case(
        "all_gather_matmul/pull",
        "bf16,nk",
        "w=2:rows=8:columns=8:depth=8:n=8",
        "unknown key `n`: expected one of w, rows, columns, depth"
    )]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=2:rows=8:columns=8:depth=8:depth=8", "`depth` given twice")]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=2:rows=8:columns=8:depth=8:tile=64", "tile=64: expected one of 256, 224, 208, 192, 128")]
    #[case(
        "all_gather_matmul/chunked",
        "bf16,nk",
        "w=2:rows=8:columns=8:depth=8:tile=128",
        "tile=128: all_gather_matmul/chunked has no choice of tiles"
    )]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=2:rows=8:columns=8:depth=8:skew=r2+9us", "rank 2 of 2: ranks are 0 to 1")]
    #[case(
        "all_gather_matmul/pull",
        "bf16,nk",
        "w=2:rows=8:columns=8:depth=8:skew=r1+9us@end",
        "skew at end: a product is late on its host only"
    )]
    #[case(
        "all_gather_matmul/pull",
        "bf16,nk",
        "w=2:rows=8:columns=8:depth=8:fault=killed",
        "fault=killed: of products expected absent@rRANK"
    )]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=2:rows=8:columns=8:depth=8:groups=0", "groups=0: 1 to 4")]
    #[case("all_gather_matmul/pull", "bf16,nk", "w=17:rows=8:columns=8:depth=8", "w=17: a group has 1 to 16 ranks")]
    fn errors_say_what_was_expected(#[case] path: &str, #[case] types: &str, #[case] keys: &str, #[case] start: &str) {
        let id = format!("{path}:{types}:{keys}");
        let resolve = |case: ProductCase| Case::from(case).check_known(&REGISTRY);
        let error = id.parse::<ProductCase>().and_then(resolve).unwrap_err().to_string();
        assert!(error.starts_with(start) && error.ends_with(&format!("in case id `{id}`")), "{error}");
    }

    #[test]
    fn shrinks_to_what_the_failure_needs() {
        let id =
            "all_gather_matmul/pull:f16,kn:w=8:rows=300:columns=520:depth=136:inputs=fractions:tile=208:skew=r5+9us:groups=2:seed=9f3c";
        let fails = |case: &ProductCase| (case.world >= 3 && case.product.columns > 100).then(|| "it fails".into());
        let shrunk = shrink(&id.parse::<ProductCase>().unwrap(), "it fails".into(), Duration::from_secs(5), fails);
        assert_eq!(shrunk.case.to_string(), "all_gather_matmul/pull:bf16,nk:w=3:rows=1:columns=128:depth=8");
    }
}
