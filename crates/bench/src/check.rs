//! Whether a job does what it promises: on integers, of which every order of additions gives the same sums, at the shape that is timed. Of
//! large results a sample is looked at, from the first to the last row of each rank's part.

use std::collections::HashMap;

use super::job::{ExpectedResult, Rows};
use passmuster_harness::conformance::{InputClass, oracle};
use passmuster_plan::{
    collective::{DType, Element, Layout, Product, ReduceOp},
    contract::Contract,
    machine::{Machine, MachineError},
    plan::Region,
};

/// Rows of each rank's part, and columns, that are looked at.
const ROWS: u64 = 4;
const COLUMNS: u64 = 64;

/// Rows of each rank's part of a sum: each is a row of the product of every rank.
const SUMMED: u64 = 2;

/// Bytes at either end of each rank's part of a gather.
const ENDS: u64 = 4096;

/// What came of looking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Looked {
    /// Elements of all ranks' results that were looked at.
    pub(super) elements: u64,
    /// The first that was wrong.
    pub(super) wrong: Option<String>,
}

/// `most` of `0..all`, or all of them, the first and the last among them.
fn some(all: u64, most: u64) -> Vec<u64> {
    if all <= most { (0..all).collect() } else { (0..most).map(|at| at * (all - 1) / (most - 1)).collect() }
}

/// Looks at what a call has left, whose inputs were integers.
pub(super) fn look(machine: &mut dyn Machine, group: usize, world: u32, promises: &[ExpectedResult]) -> Result<Looked, MachineError> {
    let mut eye = Eye { machine, group, world, elements: 0, columns: HashMap::new() };
    for promise in promises {
        for rank in 0..world {
            let wrong = match promise {
                ExpectedResult::Product { product, a, b, c } => eye.product(rank, product, (a, b, c))?,
                ExpectedResult::Scattered { product, a, b, c, contract } => {
                    let scattered = if product.dtype == DType::F16 { Eye::scattered::<half::f16> } else { Eye::scattered::<half::bf16> };
                    scattered(&mut eye, rank, product, (a, b, c), contract)?
                }
                ExpectedResult::Gathered { sent, all } => eye.gathered(rank, sent, all)?,
            };
            if wrong.is_some() {
                return Ok(Looked { elements: eye.elements, wrong });
            }
        }
    }
    Ok(Looked { elements: eye.elements, wrong: None })
}

/// Looks at a group.
struct Eye<'m> {
    machine: &'m mut dyn Machine,
    group: usize,
    world: u32,
    elements: u64,
    /// The chosen columns of second operands, which many products may have: by product, region, and the rank that holds it where not all do.
    columns: HashMap<(Product, Region, Option<u32>), Vec<u8>>,
}

impl Eye<'_> {
    fn read(&mut self, rank: u32, of: &Region, offset: u64, bytes: u64) -> Result<Vec<u8>, MachineError> {
        self.machine.read(self.group, rank as usize, &Region::new(of.buffer.clone(), of.offset + offset, bytes))
    }

    /// Bytes from some byte on, as `rank` has a matrix or as the ranks have it together. They lie in one rank's part.
    fn read_rows(&mut self, rank: u32, of: &Rows, offset: u64, bytes: u64) -> Result<Vec<u8>, MachineError> {
        match of {
            Rows::Own(region) => self.read(rank, region, offset, bytes),
            Rows::OfRanks(part) => self.read((offset / part.bytes) as u32, part, offset % part.bytes, bytes),
        }
    }

    /// The chosen columns of B below each other, depth contiguous.
    fn columns_of(&mut self, rank: u32, product: &Product, b: &Rows) -> Result<Vec<u8>, MachineError> {
        let key = match b {
            Rows::Own(region) => (*product, region.clone(), Some(rank)),
            Rows::OfRanks(part) => (*product, part.clone(), None),
        };
        if let Some(known) = self.columns.get(&key) {
            return Ok(known.clone());
        }
        let Product { dtype, columns, depth, layout, .. } = *product;
        let size = dtype.size();
        let chosen = some(columns, COLUMNS);
        let mut bytes = Vec::new();
        match layout {
            Layout::Nk => {
                for column in chosen {
                    bytes.extend(self.read_rows(rank, b, column * depth * size, depth * size)?);
                }
            }
            Layout::Kn => {
                let mut all = Vec::new();
                while (all.len() as u64) < columns * depth * size {
                    let part = b.region().bytes;
                    all.extend(self.read_rows(rank, b, all.len() as u64, part)?);
                }
                let element = |column: u64, k: u64| all[((k * columns + column) * size) as usize..][..size as usize].iter().copied();
                bytes.extend(chosen.iter().flat_map(|&column| (0..depth).flat_map(move |k| element(column, k))));
            }
        }
        self.columns.insert(key, bytes.clone());
        Ok(bytes)
    }

    /// What the chosen columns of some row of the product are, as `rank` has its operands.
    fn expected(&mut self, rank: u32, product: &Product, (a, b): (&Rows, &Rows), row: u64) -> Result<Vec<u8>, MachineError> {
        let columns = self.columns_of(rank, product, b)?;
        let bytes = product.depth * product.dtype.size();
        let sampled = Product { rows: 1, columns: some(product.columns, COLUMNS).len() as u64, layout: Layout::Nk, ..*product };
        Ok(sampled.reference(&self.read_rows(rank, a, row * bytes, bytes)?, &columns))
    }

    fn product(&mut self, rank: u32, product: &Product, (a, b, c): (&Rows, &Rows, &Region)) -> Result<Option<String>, MachineError> {
        let Product { dtype, rows, columns, .. } = *product;
        let size = dtype.size();
        let parts = if let Rows::OfRanks(_) = a { u64::from(self.world) } else { 1 };
        let part = rows / parts;
        for (owner, row) in (0..parts).flat_map(|owner| some(part, ROWS).into_iter().map(move |row| (owner, row))) {
            let below = owner * part + row;
            let expected = self.expected(rank, product, (a, b), below)?;
            let got = self.read(rank, c, below * columns * size, columns * size)?;
            for (column, expected) in some(columns, COLUMNS).into_iter().zip(expected.chunks_exact(size as usize)) {
                let got = &got[(column * size) as usize..][..size as usize];
                if got != expected {
                    let of = if parts > 1 { format!(" (row {row} of rank {owner}'s)") } else { String::new() };
                    let (got, expected) = (value(dtype, got), value(dtype, expected));
                    return Ok(Some(format!("rank {rank}: C at row {below}{of}, column {column} is {got}, exactly {expected}")));
                }
                self.elements += 1;
            }
        }
        Ok(None)
    }

    /// The product of each rank is exact before it is rounded.
    fn scattered<E: Element>(
        &mut self,
        rank: u32,
        product: &Product,
        (a, b, c): (&Region, &Region, &Region),
        contract: &Contract,
    ) -> Result<Option<String>, MachineError> {
        let Product { dtype, rows, columns, .. } = *product;
        let size = dtype.size() as usize;
        let (a, b) = (Rows::Own(a.clone()), Rows::Own(b.clone()));
        let part = rows / u64::from(self.world);
        let oracle = oracle(contract, ReduceOp::Sum, dtype, InputClass::Natural);
        for row in some(part, SUMMED) {
            let of_ranks = (0..self.world)
                .map(|source| self.expected(source, product, (&a, &b), u64::from(rank) * part + row))
                .collect::<Result<Vec<_>, _>>()?;
            let of_rows = self.read(rank, c, row * columns * size as u64, columns * size as u64)?;
            for (at, column) in some(columns, COLUMNS).into_iter().enumerate() {
                let products: Vec<E> = of_ranks.iter().map(|row| E::from_bytes(&row[at * size..][..size])).collect();
                let got = E::from_bytes(&of_rows[column as usize * size..][..size]);
                if !oracle.expect(&products).accepts(got) {
                    let (got, products) = (got.to_f64(), products.iter().map(|product| product.to_f64()).collect::<Vec<_>>());
                    return Ok(Some(format!(
                        "rank {rank}: C at row {row}, column {column} of its part is {got}, of the ranks' products {products:?}: not {oracle}"
                    )));
                }
                self.elements += 1;
            }
        }
        Ok(None)
    }

    fn gathered(&mut self, rank: u32, sent: &[Region], all: &Region) -> Result<Option<String>, MachineError> {
        for (owner, from) in (0..).zip(sent) {
            let length = from.bytes.min(ENDS);
            for distance in [0, from.bytes - length] {
                let expected = self.read(owner, from, distance, length)?;
                let got = self.read(rank, all, u64::from(owner) * from.bytes + distance, length)?;
                if let Some(byte) = expected.iter().zip(&got).position(|(expected, got)| expected != got) {
                    let at = distance + byte as u64;
                    return Ok(Some(format!(
                        "rank {rank}: byte {at} of what rank {owner} sent is {:#04x}, not {:#04x}",
                        got[byte], expected[byte]
                    )));
                }
                self.elements += length / 2;
            }
        }
        Ok(None)
    }
}

fn value(dtype: DType, bytes: &[u8]) -> f64 {
    if dtype == DType::F16 { half::f16::from_bytes(bytes).to_f64() } else { half::bf16::from_bytes(bytes).to_f64() }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rstest::rstest;

    use super::*;
    use crate::{
        Contender, FsdpWorkload, MatmulWorkload, Scenario, Workload,
        devices::Devices,
        job::{Job, Numbers},
    };
    use passmuster_harness::emulator::{Emulator, EmulatorOptions};
    use passmuster_plan::plan::{Script, Step};

    const DEADLINE: Duration = Duration::from_secs(60);

    fn product(scenario: Scenario) -> Workload {
        let (dtype, gathered) = (DType::BF16, if scenario == Scenario::Overlap { 4096 } else { 0 });
        MatmulWorkload { scenario, dtype, world: 2, n: 24, k: 40, m: 16, gathered, out_of_place: false }.into()
    }

    fn out_of_place() -> Workload {
        let Workload::Matmul(of) = product(Scenario::Overlap) else { panic!("it is a product") };
        MatmulWorkload { out_of_place: true, ..of }.into()
    }

    /// Three layers: the buffers take turns, and do not come out even.
    fn step() -> Workload {
        FsdpWorkload { layers: 3, dtype: DType::BF16, world: 2, m: 16, n: 24, k: 40 }.into()
    }

    /// Does a job, and spoils a bit of a region on rank 1; what is wrong then.
    fn wrong(workload: Workload, name: &str, spoil: Option<Region>) -> Option<String> {
        let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
        let devices = Devices::of(&machine, 2);
        let job: Job = Contender::find(&passmuster_harness::registry(passmuster_kernels::catalogue()), &workload, name)
            .unwrap()
            .job(&workload, 1, &devices)
            .unwrap();
        let group = machine.open_group(2, &job.buffers).unwrap();
        let plans = [job.fill(Numbers::Integers), job.plans[0].clone()];
        let steps = plans.map(|plan| Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }).to_vec();
        machine.run(&Script { steps }, DEADLINE).unwrap();
        if let Some(region) = spoil {
            let mut bytes = machine.read(group, 1, &region).unwrap();
            bytes[0] ^= 1;
            machine.write(group, 1, &region, &bytes).unwrap();
        }
        look(&mut machine, group, 2, &job.promises).unwrap().wrong
    }

    /// If this fails, a contender whose results are wrong is called right, or one whose results are right is called wrong.
    #[rstest]
    #[case::product(product(Scenario::AllGatherMatmul), "cublas_lt", "c", 2 * (15 * 24 + 23), "rank 1: C at row 15, column 23 is ")]
    #[case::sum(product(Scenario::MatmulReduceScatter), "chunked", "c", 2 * (7 * 24 + 23), "rank 1: C at row 7, column 23 of its part is ")]
    #[case::elsewhere(product(Scenario::AllGatherMatmul), "control/copies_alone", "elsewhere", 0, "rank 1: byte 0 of what rank 0 sent is ")]
    #[case::beside(product(Scenario::Overlap), "overlap/copy_engine", "c", 0, "rank 1: C at row 0, column 0 is ")]
    #[case::own(product(Scenario::Overlap), "gather/copy_engine", "gathered", 0, "rank 1: byte 0 of what rank 0 sent is ")]
    #[case::last(product(Scenario::Overlap), "sequential/push", "gathered", 4094, "rank 1: byte 4094 of what rank 0 sent is ")]
    #[case::sent(out_of_place(), "overlap/push", "sent", 0, "rank 0: byte 0 of what rank 1 sent is ")]
    #[case::forward(step(), "overlap/copy_engine", "y", 2 * 1024, "rank 1: C at row 0, column 0 is ")]
    #[case::backward(step(), "sequential/nccl_ring", "dx", 2 * (15 * 40 + 39), "rank 1: C at row 15, column 39 is ")]
    #[case::scattered(step(), "overlap/push", "pool", 1024, "rank 1: C at row 0, column 0 of its part is ")]
    #[case::alone(step(), "matmul", "y", 0, "rank 1: C at row 0, column 0 is ")]
    fn one_wrong_bit_is_seen(#[case] workload: Workload, #[case] name: &str, #[case] buffer: &str, #[case] at: u64, #[case] found: &str) {
        assert_eq!(wrong(workload, name, None), None);
        let said = wrong(workload, name, Some(Region::new(buffer, at, 2))).unwrap();
        assert!(said.starts_with(found), "{said}");
    }

    #[test]
    fn samples_reach_from_end_to_end() {
        assert_eq!(some(3, 4), [0, 1, 2]);
        assert_eq!(some(1000, 4), [0, 333, 666, 999]);
        assert_eq!(some(0, 4), [0; 0]);
    }
}
