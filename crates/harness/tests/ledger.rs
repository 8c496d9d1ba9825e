//! The forms of the ledger, all of them, on the emulator.

use std::{collections::BTreeSet, time::Duration};

use passmuster_harness::{
    emulator::{Emulator, EmulatorOptions},
    ledger::{
        Form, Inputs, Session,
        forms::{self, Role},
        generate,
    },
};

const DEADLINE: Duration = Duration::from_secs(60);

fn emulator(forms: &[Form]) -> Emulator {
    Emulator::new(EmulatorOptions { library: generate::library(forms), ..EmulatorOptions::default() })
}

/// The first `count` tuples.
fn shortened(mut inputs: Inputs, count: usize) -> Inputs {
    inputs.planes.iter_mut().for_each(|plane| plane.truncate(count));
    inputs
}

#[test]
fn the_emulator_executes_every_form() {
    let forms = forms::all();
    let mut machine = emulator(&forms);
    let mut session = Session::open(&mut machine, DEADLINE).unwrap();
    for (index, form) in forms.iter().enumerate() {
        let inputs = Inputs::of(form);
        let count = inputs.count();
        assert!(count.is_multiple_of(256) && (256..=65536).contains(&count), "{}: {count}", form.name);
        assert_eq!(inputs.planes.len(), form.operands.len());
        let fields = form.operands.iter().zip(&inputs.planes).filter(|(operand, _)| operand.role == Role::Field);
        assert!(fields.flat_map(|(_, plane)| plane).all(|&amount| amount <= 255), "{}: past what the ISA defines", form.name);
        // Two blocks: some forms are of pairs of them.
        let inputs = shortened(inputs, 512);
        let results = session.results(form, index, &inputs).unwrap_or_else(|error| panic!("{}: {error}", form.name));
        assert_eq!(results.len(), inputs.count() * form.code.len());
    }
}

/// If this fails, forms of boxes compare memory that no box has come to.
#[test]
fn forms_of_boxes_give_what_the_box_has() {
    const UNTOUCHED: u64 = 0x5ca1_ab1e;
    let forms: Vec<Form> = forms::all().into_iter().filter(|form| form.tensor.is_some()).collect();
    assert!(forms.len() > 100, "{}", forms.len());
    for form in forms {
        let inputs = shortened(Inputs::of(&form), 2048);
        let mut machine = emulator(std::slice::from_ref(&form));
        let results = Session::open(&mut machine, DEADLINE).unwrap().results(&form, 0, &inputs).unwrap();
        let words: BTreeSet<u64> =
            inputs.planes.iter().flatten().flat_map(|word| [word & 0xffff_ffff, word >> 32]).filter(|&word| word != 0).collect();
        let moved = results.iter().filter(|&result| words.contains(&(result & 0xffff_ffff))).count();
        let given_up = results.iter().filter(|&&result| result == !UNTOUCHED & 0xffff_ffff).count();
        assert!(moved > 0 && given_up == 0, "{}: {moved} words of the operands, {given_up} waits in vain", form.name);
    }
}
