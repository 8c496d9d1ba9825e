//! Whether a job does what it promises: on integers, of which every order of additions gives the same sums, at the shape that is timed. Of
//! large results a sample is looked at, from the first to the last row of each rank's part.

use super::job::Promise;
use crate::{
    collective::{DType, Element, Layout, Product, ReduceOp},
    conformance::{InputClass, oracle},
    contract::Contract,
    machine::{Machine, MachineError},
    plan::{Operands, Region},
};

/// Rows of each rank's part, and columns, that are looked at.
const ROWS: u64 = 4;
const COLUMNS: u64 = 64;

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

/// So many of `0..all`, the first and the last among them.
fn some(all: u64, most: u64) -> Vec<u64> {
    if all <= most { (0..all).collect() } else { (0..most).map(|at| at * (all - 1) / (most - 1)).collect() }
}

/// Looks at what a call has left, whose inputs were integers.
pub(super) fn look(machine: &mut dyn Machine, group: usize, world: u32, promises: &[Promise]) -> Result<Looked, MachineError> {
    let mut looked = Looked::default();
    for promise in promises {
        for rank in 0..world {
            let what = match promise {
                Promise::Product { product, operands, gathers } => {
                    let parts = if *gathers { (0..world).collect() } else { vec![rank] };
                    look_at_product(machine, group, (product, operands), (rank, &parts), &mut looked.elements)?
                }
                Promise::Gathered { sent, all } => look_at_gathered(machine, group, rank, (sent, all), &mut looked.elements)?,
                Promise::Sum { product, operands, contract } => {
                    let look_at = if product.dtype == DType::F16 { look_at_sum::<half::f16> } else { look_at_sum::<half::bf16> };
                    look_at(machine, group, (product, operands, contract), (rank, world), &mut looked.elements)?
                }
            };
            if what.is_some() {
                return Ok(Looked { wrong: what, ..looked });
            }
        }
    }
    Ok(looked)
}

/// A matrix by rows of so many elements, of a rank.
fn row_of(machine: &mut dyn Machine, group: usize, rank: u32, of: &Region, row: u64, bytes: u64) -> Result<Vec<u8>, MachineError> {
    machine.read(group, rank as usize, &Region::new(of.buffer.clone(), of.offset + row * bytes, bytes))
}

/// Some columns of a rank's B below each other, depth contiguous.
fn columns_of_b(
    machine: &mut dyn Machine,
    group: usize,
    rank: u32,
    product: &Product,
    b: &Region,
    chosen: &[u64],
) -> Result<Vec<u8>, MachineError> {
    let Product { dtype, columns, depth, layout, .. } = *product;
    let size = dtype.size();
    let mut of_columns = Vec::new();
    match layout {
        Layout::Nk => {
            for &column in chosen {
                of_columns.extend(row_of(machine, group, rank, b, column, depth * size)?);
            }
        }
        Layout::Kn => {
            let all = machine.read(group, rank as usize, b)?;
            let element = |column: u64, k: u64| all[((k * columns + column) * size) as usize..][..size as usize].iter().copied();
            of_columns.extend(chosen.iter().flat_map(|&column| (0..depth).flat_map(move |k| element(column, k))));
        }
    }
    Ok(of_columns)
}

fn look_at_product(
    machine: &mut dyn Machine,
    group: usize,
    (product, operands): (&Product, &Operands),
    (rank, parts): (u32, &[u32]),
    elements: &mut u64,
) -> Result<Option<String>, MachineError> {
    let Product { dtype, rows, columns, depth, .. } = *product;
    let size = dtype.size();
    let chosen = some(columns, COLUMNS);
    let b = columns_of_b(machine, group, rank, product, &operands.b, &chosen)?;
    let sampled = Product { rows: 1, columns: chosen.len() as u64, layout: Layout::Nk, ..*product };
    for (part, &owner) in parts.iter().enumerate() {
        for row in some(rows, ROWS) {
            let expected = sampled.reference(&row_of(machine, group, owner, &operands.a, row, depth * size)?, &b);
            let below = part as u64 * rows + row;
            let c = row_of(machine, group, rank, &operands.c, below, columns * size)?;
            for (&column, expected) in chosen.iter().zip(expected.chunks_exact(size as usize)) {
                let got = &c[(column * size) as usize..][..size as usize];
                if got != expected {
                    let of = if parts.len() > 1 { format!(" (row {row} of rank {owner}'s)") } else { String::new() };
                    let (got, expected) = (value(dtype, got), value(dtype, expected));
                    return Ok(Some(format!("rank {rank}: C at row {below}{of}, column {column} is {got}, exactly {expected}")));
                }
                *elements += 1;
            }
        }
    }
    Ok(None)
}

/// The product of each rank is exact before it is rounded.
fn look_at_sum<T: Element>(
    machine: &mut dyn Machine,
    group: usize,
    (product, operands, contract): (&Product, &Operands, &Contract),
    (rank, world): (u32, u32),
    elements: &mut u64,
) -> Result<Option<String>, MachineError> {
    let Product { dtype, rows, columns, depth, .. } = *product;
    let size = dtype.size();
    let (chosen_rows, chosen) = (some(rows, ROWS), some(columns, COLUMNS));
    let sampled = Product { rows: 1, columns: chosen.len() as u64, layout: Layout::Nk, ..*product };
    // Of each rank, its product at the chosen rows and columns.
    let mut products: Vec<Vec<T>> = Vec::new();
    for from in 0..world {
        let b = columns_of_b(machine, group, from, product, &operands.b, &chosen)?;
        let mut of_rows = Vec::new();
        for row in &chosen_rows {
            let a = row_of(machine, group, from, &operands.a, u64::from(rank) * rows + row, depth * size)?;
            of_rows.extend(sampled.reference(&a, &b).chunks_exact(size as usize).map(T::from_bytes));
        }
        products.push(of_rows);
    }
    let oracle = oracle(contract, ReduceOp::Sum, dtype, InputClass::Natural);
    for (at_row, &row) in chosen_rows.iter().enumerate() {
        let c = row_of(machine, group, rank, &operands.c, row, columns * size)?;
        for (at_column, &column) in chosen.iter().enumerate() {
            let inputs: Vec<T> = products.iter().map(|of_rows| of_rows[at_row * chosen.len() + at_column]).collect();
            let (expected, got) = (oracle.expect(&inputs), T::from_bytes(&c[(column * size) as usize..][..size as usize]));
            if !expected.accepts(got) {
                let (got, inputs) = (got.to_f64(), inputs.iter().map(|product| product.to_f64()).collect::<Vec<_>>());
                return Ok(Some(format!(
                    "rank {rank}: C at row {row}, column {column} is {got}, of the ranks' products {inputs:?}: not {oracle}"
                )));
            }
            *elements += 1;
        }
    }
    Ok(None)
}

fn look_at_gathered(
    machine: &mut dyn Machine,
    group: usize,
    rank: u32,
    (sent, all): (&[Region], &Region),
    elements: &mut u64,
) -> Result<Option<String>, MachineError> {
    for (owner, from) in sent.iter().enumerate() {
        let length = from.bytes.min(ENDS);
        for distance in [0, from.bytes - length] {
            let slot = Region::new(all.buffer.clone(), all.offset + owner as u64 * from.bytes + distance, length);
            let from = Region::new(from.buffer.clone(), from.offset + distance, length);
            let (expected, got) = (machine.read(group, owner, &from)?, machine.read(group, rank as usize, &slot)?);
            if let Some(byte) = expected.iter().zip(&got).position(|(expected, got)| expected != got) {
                let at = distance + byte as u64;
                return Ok(Some(format!(
                    "rank {rank}: byte {at} of what rank {owner} sent is {:#04x}, not {:#04x}",
                    got[byte], expected[byte]
                )));
            }
            *elements += length / 2;
        }
    }
    Ok(None)
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
        bench::{
            Contender, MatmulWorkload, Scenario, Workload,
            contender::Devices,
            job::{Job, Numbers},
        },
        emulator::{Emulator, EmulatorOptions},
        plan::{Script, Step},
    };

    const DEADLINE: Duration = Duration::from_secs(60);

    /// Does a job as long as `keep` says so of its operations; what is wrong then.
    fn wrong(scenario: Scenario, name: &str, spoil: Option<Region>) -> Option<String> {
        let (dtype, gathered) = (DType::BF16, if scenario == Scenario::Overlap { 4096 } else { 0 });
        let workload = Workload::from(MatmulWorkload { scenario, dtype, world: 2, n: 24, k: 40, m: 16, gathered });
        let mut machine = Emulator::new(EmulatorOptions::default());
        let devices = Devices::of(&machine, 2);
        let job: Job = Contender::find(&workload, name).unwrap().job(&workload, 1, &devices).unwrap();
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
    #[case::product(Scenario::AllGatherMatmul, "cublas_lt", "c", 2 * (15 * 24 + 23), "rank 1: C at row 15, column 23 is ")]
    #[case::sum(Scenario::MatmulReduceScatter, "chunked", "c", 2 * (7 * 24 + 23), "rank 1: C at row 7, column 23 is ")]
    #[case::elsewhere(Scenario::AllGatherMatmul, "control/copies_alone", "elsewhere", 0, "rank 1: byte 0 of what rank 0 sent is ")]
    #[case::beside(Scenario::Overlap, "overlap/copy_engine", "c", 0, "rank 1: C at row 0, column 0 is ")]
    #[case::own(Scenario::Overlap, "gather/copy_engine", "gathered", 0, "rank 1: byte 0 of what rank 0 sent is ")]
    #[case::last(Scenario::Overlap, "sequential/push", "gathered", 4094, "rank 1: byte 4094 of what rank 0 sent is ")]
    fn one_wrong_bit_is_seen(#[case] scenario: Scenario, #[case] name: &str, #[case] buffer: &str, #[case] at: u64, #[case] found: &str) {
        assert_eq!(wrong(scenario, name, None), None);
        let said = wrong(scenario, name, Some(Region::new(buffer, at, 2))).unwrap();
        assert!(said.starts_with(found), "{said}");
    }

    #[test]
    fn samples_reach_from_end_to_end() {
        assert_eq!(some(3, 4), [0, 1, 2]);
        assert_eq!(some(1000, 4), [0, 333, 666, 999]);
        assert_eq!(some(0, 4), [0; 0]);
    }
}
