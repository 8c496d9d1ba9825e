//! What a form is tried on: an edge lattice of each operand's type, crossed; random bits; and values near each other, near ties and near
//! the limits of narrower types. A form of one operand of at most 16 bits is tried on all of them. Everything follows from its name.

use super::{
    forms::{BLOCK, Form, Operand, Role},
    products,
};
use passmuster_emulator::{choice::Choice, numerics::Format};
use passmuster_plan::modules::fnv1a64;
use passmuster_ptx::Type;

/// Results of a form at most: of all instructions that it is, together.
pub(super) const RESULTS: usize = 16 << 10;

/// The operands of all tuples: `planes[operand][tuple]`, in the low bits.
pub struct Inputs {
    /// One plane an operand.
    pub planes: Vec<Vec<u64>>,
}

impl Inputs {
    /// The tuples of a form: the same on every host.
    pub fn of(form: &Form) -> Inputs {
        let mut choice = Choice::of_seed(fnv1a64(form.name.as_bytes()));
        if let [Operand { ty, role: Role::Value }] = form.operands[..]
            && ty.bits() <= 16
        {
            return exhaustive(ty, &mut choice);
        }
        // Products are tried in many layouts, and each tuple is one of many kinds.
        let of_elements = matches!(form.operands[..], [Operand { role: Role::Elements(_), .. }, ..]);
        let results = if of_elements { 4 * RESULTS } else { RESULTS };
        let count = (results / form.code.len()).clamp(BLOCK, RESULTS) / BLOCK * BLOCK;
        let edges: Vec<Vec<u64>> = form.operands.iter().map(|operand| edges_of(*operand)).collect();
        let tuples = (0..count).map(|index| tuple(form, &edges, index, count, &mut choice));
        let mut planes = vec![Vec::with_capacity(count); form.operands.len()];
        for tuple in tuples {
            for (plane, value) in planes.iter_mut().zip(tuple) {
                plane.push(value);
            }
        }
        Inputs { planes }
    }

    /// Number of tuples.
    pub fn count(&self) -> usize {
        self.planes.first().map_or(0, Vec::len)
    }

    /// One tuple.
    pub fn tuple(&self, index: usize) -> Vec<u64> {
        self.planes.iter().map(|plane| plane[index]).collect()
    }
}

/// All values of a type of at most 16 bits; of 8 bits, with other bits above them, which count for nothing.
fn exhaustive(ty: Type, choice: &mut Choice) -> Inputs {
    let above = |value: u64, choice: &mut Choice| if ty.bits() == 8 { value | choice.draw() & 0xffff_ff00 } else { value };
    let count = 1u64 << ty.bits().max(12);
    Inputs { planes: vec![(0..count).map(|index| above(index % (1 << ty.bits()), choice)).collect()] }
}

/// Tuple number `index` of a product: [`products::tuple`]. Else the cross product of the edges where it fits, else a sample of it; the last part is drawn.
fn tuple(form: &Form, edges: &[Vec<u64>], index: usize, count: usize, choice: &mut Choice) -> Vec<u64> {
    if let Some(Operand { role: Role::Elements(_), .. }) = form.operands.first() {
        return products::tuple(&form.operands, index, choice);
    }
    let product = edges.iter().fold(1usize, |product, edges| product.saturating_mul(edges.len()));
    let whole = product <= count / 8 * 7;
    if whole && index < product {
        let mut rest = index;
        return edges.iter().map(|edges| (edges[rest % edges.len()], rest /= edges.len()).0).collect();
    }
    if !whole && index < count / 2 {
        return edges.iter().map(|edges| choice.of(edges)).collect();
    }
    let near = choice.one_in(2);
    let scale = choice.draw();
    let mut values: Vec<u64> = Vec::with_capacity(edges.len());
    for (place, operand) in form.operands.iter().enumerate() {
        let value = match (near, choice.draw() % 8) {
            (true, 0) if same_type(form, place) => values[place - 1] ^ choice.of(&[0, 1, 1 << (operand.ty.bits() - 1)]),
            (true, 1) => choice.of(&edges[place]),
            (true, _) => near_value(*operand, scale, place == 2, choice),
            (false, _) => random(*operand, choice),
        };
        values.push(value);
    }
    values
}

/// Whether an operand has the type of the one before it, and may be beside it: a field's neighbours may be past its range.
fn same_type(form: &Form, place: usize) -> bool {
    place > 0 && form.operands[place - 1] == form.operands[place] && form.operands[place].role != Role::Field
}

fn mask(ty: Type) -> u64 {
    u64::MAX >> (64 - ty.bits())
}

fn random(operand: Operand, choice: &mut Choice) -> u64 {
    match operand.role {
        Role::Truth => choice.draw() & 1,
        Role::Field => choice.draw() & 0xff,
        Role::Amount | Role::Value | Role::Elements(_) => choice.draw() & mask(operand.ty),
    }
}

/// The format of each element of a type, and how many there are.
pub(super) fn elements(ty: Type) -> Option<(Format, u32)> {
    Some(match ty {
        Type::F16 => (Format::F16, 1),
        Type::F16x2 => (Format::F16, 2),
        Type::Bf16 => (Format::BF16, 1),
        Type::Bf16x2 => (Format::BF16, 2),
        Type::F32 => (Format::F32, 1),
        Type::F64 => (Format::F64, 1),
        Type::E4m3x2 => (Format::E4M3, 2),
        Type::E5m2x2 => (Format::E5M2, 2),
        _ => return None,
    })
}

/// A value whose magnitude is about that of the tuple's others; `product` where it is about that of the product of two.
fn near_value(operand: Operand, scale: u64, product: bool, choice: &mut Choice) -> u64 {
    if matches!(operand.role, Role::Amount | Role::Field) {
        return choice.draw() % 72;
    }
    if operand.role == Role::Truth {
        return choice.draw() & 1;
    }
    match elements(operand.ty) {
        Some((format, count)) => {
            let mut one = || near_float(format, scale, product, choice);
            let low = one();
            if count == 2 { low | one() << format.bits() } else { low }
        }
        None => near_integer(operand.ty.bits(), scale, choice) & mask(operand.ty),
    }
}

/// A float with an exponent near the tuple's, and a fraction that ends in a tie or beside one, for rounding to fewer bits.
fn near_float(format: Format, scale: u64, product: bool, choice: &mut Choice) -> u64 {
    let bias = (1i64 << (format.exponent - 1)) - 1;
    // From all exponents, or from those that narrower formats have too.
    let spread = [2, 8, 16, 40, 160, bias][(scale % 6) as usize].min(bias);
    let common = (scale >> 8) as i64 % (spread + 1);
    let wiggle = (choice.draw() % 5) as i64 - 2;
    let exponent = (if product { 2 * common } else { common } + wiggle + bias).clamp(0, 2 * bias);
    let sign = choice.draw() & format.sign();
    let dropped = choice.draw() % u64::from(format.fraction + 1);
    let (kept, tie) = (u64::MAX << dropped, (1u64 << dropped) >> 1);
    let fraction = choice.draw() & kept | choice.of(&[0, tie, tie.wrapping_sub(1) & !kept, (tie + 1) & !kept, !kept]);
    sign | (exponent as u64) << format.fraction | fraction & ((1 << format.fraction) - 1)
}

/// An integer of about the tuple's number of bits, of either sign, with the same endings.
fn near_integer(bits: u32, scale: u64, choice: &mut Choice) -> u64 {
    let width = (scale % u64::from(bits) + 1) as u32;
    let magnitude = choice.draw() >> (64 - width);
    let dropped = choice.draw() % u64::from(width);
    let (kept, tie) = (u64::MAX << dropped, (1u64 << dropped) >> 1);
    let ended = magnitude & kept | choice.of(&[0, tie, tie.wrapping_sub(1) & !kept, (tie + 1) & !kept, !kept, magnitude & !kept]);
    if choice.one_in(2) { ended.wrapping_neg() } else { ended }
}

/// Amounts around the widths of registers, up to 255.
const AROUND_WIDTHS: [u64; 25] = [0, 1, 2, 7, 8, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 62, 63, 64, 65, 96, 127, 128, 129, 254, 255];

/// The edges of an operand.
fn edges_of(operand: Operand) -> Vec<u64> {
    match operand.role {
        Role::Truth => return vec![0, 1],
        Role::Amount => {
            let far = [256, 257, 288, 0xffff, 1 << 31, 0xffff_ffe1, 0xffff_ffff];
            return AROUND_WIDTHS.into_iter().chain(far).collect();
        }
        Role::Field => return AROUND_WIDTHS.into(),
        // Whole products have edges of their own.
        Role::Elements(_) => return Vec::new(),
        Role::Value => {}
    }
    let Some((format, count)) = elements(operand.ty) else { return integer_edges(operand.ty.bits()) };
    let edges = float_edges(format);
    if count == 1 {
        return edges;
    }
    // Every edge once in each half, with another one beside it.
    let turned = edges.iter().cycle().skip(edges.len() / 2 + 1);
    edges.iter().zip(turned).map(|(low, high)| low | high << format.bits()).collect()
}

/// Extremes, powers of two and what is beside them, patterns.
fn integer_edges(bits: u32) -> Vec<u64> {
    let mask = u64::MAX >> (64 - bits);
    let mut edges = vec![0, 1, 2, 3, 5, 7, 10, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa, 0x0123_4567_89ab_cdef, 0x8000_8000_8000_8000];
    for power in [4, 7, 8, 11, 15, 16, 24, 31, 32, 33, 48, 53, 63].into_iter().filter(|&power| power < bits) {
        edges.extend([1u64 << power, (1 << power) - 1, (1 << power) + 1]);
    }
    let negative: Vec<u64> = edges.iter().map(|edge| edge.wrapping_neg()).collect();
    edges.extend(negative);
    edges.extend([u64::MAX, 1 << (bits - 1), (1 << (bits - 1)) - 1]);
    edges.iter_mut().for_each(|edge| *edge &= mask);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Zeros, subnormals, normal extremes, infinities, quiet and signalling NaNs, one and its neighbours, and the limits of the integers and
/// of the narrower formats, of both signs.
fn float_edges(format: Format) -> Vec<u64> {
    let normal = 1u64 << format.fraction;
    let infinity = format.largest() + 1;
    let bias = (1u64 << (format.exponent - 1)) - 1;
    let one = bias << format.fraction;
    let quiet = normal >> 1;
    let mut edges = vec![
        0,
        1,
        2,
        normal >> 1,
        normal - 1,
        normal,
        normal + 1,
        normal << 1,
        one - normal,
        one - 2, // Times `normal + 1` it is tiny by less than full precision can say.
        one - 1,
        one,
        one + 1,
        one + normal / 2,
        one + normal,
        one + normal + quiet,
        format.largest(),
        format.largest() - 1,
        infinity - normal,
        infinity,
        infinity | quiet,
        infinity | 1,
        infinity | quiet | 1,
        infinity | (normal - 1),
    ];
    // Where integer types end, and where half of a unit is the last place.
    let integers = [7, 8, 15, 16, 31, 32, 63, 64].into_iter().chain([format.fraction.into(), u64::from(format.fraction) + 1]);
    for power in integers.filter(|power| power + bias < 2 * bias) {
        let value = (power + bias) << format.fraction;
        edges.extend([value - 1, value, value + 1]);
    }
    if format == Format::F64 {
        // Half, a quarter and an eighth of a unit below the smallest normal number of f32: there `.ftz` decides what is tiny.
        let (smallest, unit) = ((bias - 126) << format.fraction, normal >> Format::F32.fraction << 1);
        edges.extend([2, 4, 8].map(|part| smallest - unit / part));
    }
    let sign = format.sign();
    let negative: Vec<u64> = edges.iter().map(|edge| edge | sign).collect();
    edges.extend(negative);
    edges.iter_mut().for_each(|edge| *edge &= u64::MAX >> (64 - format.bits()));
    edges.sort_unstable();
    edges.dedup();
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::forms;

    #[test]
    fn forms_are_tried_on_the_edges_of_their_operands() {
        for form in forms::all().into_iter().step_by(16) {
            let inputs = Inputs::of(&form);
            for (operand, plane) in form.operands.iter().zip(&inputs.planes) {
                let edges = edges_of(*operand);
                let seen = edges.iter().filter(|edge| plane.contains(edge)).count();
                // A sample may leave a few out.
                assert!(seen * 4 >= edges.len() * 3 || operand.ty.bits() == 8, "{}: {seen} of {} edges", form.name, edges.len());
            }
        }
    }

    #[test]
    fn one_operand_of_sixteen_bits_is_tried_on_all_values() {
        let form = forms::all().into_iter().find(|form| form.name == "cvt.f32.f16").unwrap();
        let mut values = Inputs::of(&form).planes.swap_remove(0);
        values.sort_unstable();
        assert!(values.into_iter().eq(0..65536));
    }

    #[test]
    fn a_form_s_tuples_follow_from_its_name() {
        let forms = forms::all();
        let of = |name: &str| Inputs::of(forms.iter().find(|form| form.name == name).unwrap()).planes;
        assert_eq!(of("fma.rn.f32"), of("fma.rn.f32"));
        assert_ne!(of("fma.rn.f32"), of("fma.rz.f32"));
    }
}
