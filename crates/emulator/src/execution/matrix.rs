//! Products of a warp's matrices, and loads and stores of their fragments (PTX ISA 9.7.14).
//!
//! Thread t has of the matrices what is in row t/4 and, of as many elements as fit into a register, in columns t%4 and following. Registers go on first eight rows below,
//! where there are sixteen, then to the right. The second factor is held as its transpose; sums have two columns a register pair. That is one rule for all types.

use passmuster_ptx::{Access, Address, Instruction, MatrixProduct, Operand, Register, Semantics, Space, Type};

use super::{
    executor::Executor,
    fault::ExecError,
    float::direction,
    registers::{LANES, Row, lanes_of, row_of},
};
use crate::{
    memory,
    numerics::{
        F64, Float, Mode,
        tensor_core::{Element, Elements, MOST_DEPTH, Rule, Sum, Unit, multiply},
    },
    races::Effect,
};

/// Rows and columns of what `ldmatrix` and its like move.
const TILE: usize = 8;

fn element(ty: Type) -> Result<Element, ExecError> {
    Ok(match ty {
        Type::F16 => Element::F16,
        Type::Bf16 => Element::Bf16,
        Type::Tf32 => Element::Tf32,
        Type::E4m3 => Element::E4m3,
        Type::E5m2 => Element::E5m2,
        Type::S8 => Element::S8,
        Type::U8 => Element::U8,
        _ => return Err(ExecError::unsupported(format!("a product of .{ty}"))),
    })
}

/// How a unit adds the products that an instruction says.
pub(super) fn rule(unit: Unit, product: &MatrixProduct) -> Result<Rule, ExecError> {
    let sum = match product.sum {
        Type::F32 => Sum::F32,
        Type::F16 => Sum::F16,
        _ => Sum::S32 { saturate: product.saturate },
    };
    Ok(Rule::of(unit, element(product.a)?, element(product.b)?, sum))
}

/// Rows of elements of `bits` bits, from the registers in which a warp has them. If `tall`, registers go on eight rows below first.
pub(super) fn rows(registers: &[Row<u32>], bits: u32, tall: bool) -> Vec<Elements> {
    let each = (32 / bits) as usize;
    let mut rows = vec![[0; MOST_DEPTH]; if tall { 16 } else { 8 }];
    for (number, register) in registers.iter().enumerate() {
        let (below, right) = if tall { (number % 2 * 8, number / 2) } else { (0, number) };
        for (lane, word) in register.iter().enumerate() {
            let from = (4 * right + lane % 4) * each;
            for part in 0..each {
                rows[below + lane / 4][from + part] = word >> (part as u32 * bits) & (u32::MAX >> (32 - bits));
            }
        }
    }
    rows
}

/// The place among rows of `columns` sums that a lane's element `number` of sums has.
pub(super) fn place_of_sum(columns: usize, lane: usize, number: usize) -> usize {
    let (row, column) = (lane / 4 + number / 2 % 2 * 8, number / 4 * 8 + lane % 4 * 2 + number % 2);
    row * columns + column
}

/// The sums that registers hold, as rows of `columns`: of f16 two in each register.
pub(super) fn sums_of(registers: &[Row<u32>], columns: usize, halves: bool) -> Vec<u32> {
    let each = if halves { 2 } else { 1 };
    let mut sums = vec![0; registers.len() * each * LANES];
    for (number, register) in registers.iter().enumerate() {
        for (lane, &word) in register.iter().enumerate() {
            if halves {
                sums[place_of_sum(columns, lane, 2 * number)] = word & 0xffff;
                sums[place_of_sum(columns, lane, 2 * number + 1)] = word >> 16;
            } else {
                sums[place_of_sum(columns, lane, number)] = word;
            }
        }
    }
    sums
}

/// What register `number` holds of these sums.
pub(super) fn register_of(sums: &[u32], columns: usize, halves: bool, number: usize) -> Row<u32> {
    row_of(|lane| match halves {
        true => sums[place_of_sum(columns, lane, 2 * number)] | sums[place_of_sum(columns, lane, 2 * number + 1)] << 16,
        false => sums[place_of_sum(columns, lane, number)],
    })
}

impl Executor<'_> {
    /// Instructions of matrices, all lanes of which are here.
    pub(super) fn of_matrices(&mut self, lanes: u32, instruction: &Instruction) -> Result<(), ExecError> {
        if lanes != u32::MAX {
            let why = format!("it is an instruction of all 32 threads of a warp, of which there are {}", lanes.count_ones());
            return Err(ExecError::Asynchronous { lane: None, why });
        }
        match *instruction {
            Instruction::MatrixMultiply { product, ref d, ref a, ref b, ref c } => {
                if product.sum == Type::F64 {
                    return self.multiply_doubles(&product, d, [a, b, c]);
                }
                let rule = self.adder.rule(Unit::Warp, &product)?;
                let read =
                    |operands: &[Operand]| operands.iter().map(|&operand| self.warp.registers.read(operand)).collect::<Vec<Row<u32>>>();
                let (first, second) = (rows(&read(a), product.a.bits(), product.m == 16), rows(&read(b), product.b.bits(), false));
                let (columns, halves) = (product.n as usize, product.sum == Type::F16);
                let mut sums = sums_of(&read(c), columns, halves);
                multiply(&rule, product.k as usize, [&first, &second], [false; 2], &mut sums);
                for (number, &register) in d.iter().enumerate() {
                    self.warp.registers.write(register, lanes, &register_of(&sums, columns, halves, number));
                }
            }
            Instruction::LoadMatrix { space, transposed, ref destinations, address } => {
                let count = destinations.len();
                let values = self.load_rows(space, address, count)?;
                for (matrix, &destination) in destinations.iter().enumerate() {
                    let part = |row: usize, column: usize| {
                        let bytes = &values[TILE * matrix + row];
                        u32::from(u16::from_le_bytes([bytes[2 * column], bytes[2 * column + 1]]))
                    };
                    let word = row_of(|lane| {
                        let (far, near) = (lane / 4, lane % 4 * 2);
                        if transposed { part(near, far) | part(near + 1, far) << 16 } else { part(far, near) | part(far, near + 1) << 16 }
                    });
                    self.warp.registers.write(destination, lanes, &word);
                }
            }
            Instruction::StoreMatrix { space, transposed, address, ref values } => {
                let mut rows = [[0; 16]; LANES];
                for (matrix, &value) in values.iter().enumerate() {
                    for (lane, word) in self.warp.registers.read::<u32>(value).into_iter().enumerate() {
                        let (far, near) = (lane / 4, lane % 4 * 2);
                        for (part, half) in [(near, word as u16), (near + 1, (word >> 16) as u16)] {
                            let (row, column) = if transposed { (part, far) } else { (far, part) };
                            rows[TILE * matrix + row][2 * column..2 * column + 2].copy_from_slice(&half.to_le_bytes());
                        }
                    }
                }
                self.store_rows(space, address, values.len(), &rows)?;
            }
            Instruction::MoveMatrix { destination, source } => {
                let words = self.warp.registers.read::<u32>(source);
                let part = |row: usize, column: usize| words[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
                let moved = row_of(|lane| part(lane % 4 * 2, lane / 4) | part(lane % 4 * 2 + 1, lane / 4) << 16);
                self.warp.registers.write(destination, lanes, &moved);
            }
            _ => return self.of_warpgroup(instruction),
        }
        Ok(())
    }

    /// `mma.sync` of f64: a chain of fma for each sum.
    fn multiply_doubles(&mut self, product: &MatrixProduct, d: &[Register], [a, b, c]: [&[Operand]; 3]) -> Result<(), ExecError> {
        let mode = Mode::rounded(direction(product.rounding)?);
        let registers = &self.warp.registers;
        let read = |operands: &[Operand]| operands.iter().map(|&operand| registers.read(operand)).collect::<Vec<Row<u64>>>();
        let [a, b, c] = [read(a), read(b), read(c)];
        let tall = product.m == 16;
        let first = |row: usize, k: usize| if tall { a[k / 4 * 2 + row / 8][row % 8 * 4 + k % 4] } else { a[k / 4][row * 4 + k % 4] };
        let second = |column: usize, k: usize| b[k / 4][column * 4 + k % 4];
        for (number, &register) in d.iter().enumerate() {
            let sums = row_of(|lane| {
                let (row, column) = (lane / 4 + number / 2 * 8, lane % 4 * 2 + number % 2);
                (0..product.k as usize).fold(c[number][lane], |sum, k| F64::fma(first(row, k), second(column, k), sum, mode))
            });
            self.warp.registers.write(register, u32::MAX, &sums);
        }
        Ok(())
    }

    /// The lanes that have the addresses of the rows of `count` matrices.
    fn of_rows(count: usize) -> u32 {
        u32::MAX >> (LANES - TILE * count)
    }

    /// Rows of 16 bytes, eight of each matrix, each at the address of one lane.
    fn load_rows(&mut self, space: Space, address: Address, count: usize) -> Result<[[u8; 16]; LANES], ExecError> {
        let lanes = Self::of_rows(count);
        let addresses = self.addresses(space, address, lanes, 16)?;
        self.in_shared(lanes, &addresses)?;
        let mut values = [[0; 16]; LANES];
        self.memory.load_warp(&addresses, lanes, self.rank(), &mut values)?;
        self.touched(lanes, &weak(space), (Type::B32, 16, false), &addresses, Effect::Load);
        Ok(values)
    }

    /// Stores the same.
    fn store_rows(&mut self, space: Space, address: Address, count: usize, values: &[[u8; 16]; LANES]) -> Result<(), ExecError> {
        let lanes = Self::of_rows(count);
        let addresses = self.addresses(space, address, lanes, 16)?;
        self.in_shared(lanes, &addresses)?;
        let agrees = self.store_values(lanes, values, &addresses, &weak(space))?;
        self.touched(lanes, &weak(space), (Type::B32, 16, false), &addresses, Effect::Store { agrees });
        Ok(())
    }

    /// That addresses are in shared memory, generic ones too.
    fn in_shared(&self, lanes: u32, addresses: &Row<u64>) -> Result<(), ExecError> {
        match lanes_of(lanes).find(|&lane| self.block.member.place(addresses[lane]).is_none()) {
            None => Ok(()),
            Some(lane) => {
                let at = self.memory.describe(memory::Address(addresses[lane]));
                Err(ExecError::Asynchronous { lane: Some(lane as u32), why: format!("{at} is not in shared memory") })
            }
        }
    }
}

/// An access in a space that orders nothing.
fn weak(space: Space) -> Access {
    Access { space, semantics: Semantics::Weak, scope: None, hints: Box::default() }
}
