//! What a wrong output of a task looks like: the reference is asked again, with inputs of one rank missing or of another call.

use super::{Judged, Made, asked, compare};
use passmuster_plan::task::Array;

/// What would have given these bytes, if anything that is tried would.
pub(super) fn explained(judged: &Judged<'_>, made: &Made, tensor: usize, rank: u32, bytes: &[u8]) -> Option<String> {
    let call = &judged.scenario.calls[made.call];
    let name = &call.task.tensors()[tensor].name;
    let number = call.task.outputs().position(|(at, _)| at == tensor)?;
    let size = super::dtype_of(call, tensor).size() as usize;
    let untouched = bytes.chunks_exact(size).filter(|element| element.iter().all(|&byte| byte == made.poison)).count();
    if untouched > 0 {
        let all = bytes.len() / size;
        return Some(format!("rank {rank} did not write {untouched} of {all} elements of {name}: they are what was there before the call"));
    }
    for (draw, references) in judged.references.all[made.call].iter().enumerate().filter(|(draw, _)| *draw != made.draw) {
        if compare::accepts(call, tensor, rank, &references[number][rank as usize], bytes) {
            return Some(format!(
                "{name} of rank {rank} is the result of another call: that with draw {draw} of the inputs, this has draw {}",
                made.draw
            ));
        }
    }
    let gives = |inputs: &[Vec<Array>]| {
        asked(judged.algorithm, call, inputs)
            .is_ok_and(|answer| compare::accepts(call, tensor, rank, &answer[number][rank as usize], bytes))
    };
    let inputs = judged.inputs.arrays(made.call, made.draw);
    let tensors: Vec<&str> = call.task.inputs().map(|(_, of)| &*of.name).collect();
    for of in 0..call.world() as usize {
        for (at, input) in tensors.iter().enumerate() {
            let mut without = inputs.clone();
            without[at][of].values.fill(0.0);
            if gives(&without) {
                return Some(format!(
                    "{name} of rank {rank} is what it would be if {input} of rank {of} were zero: it is not in the result"
                ));
            }
            for draw in (0..super::DRAWS).filter(|draw| *draw != made.draw) {
                let mut stale = inputs.clone();
                stale[at][of] = judged.inputs.arrays(made.call, draw)[at][of].clone();
                if gives(&stale) {
                    let draws = format!("draw {draw} of the inputs in place of {}", made.draw);
                    return Some(format!("{name} of rank {rank} is what it would be with {input} of rank {of} of another call: {draws}"));
                }
            }
        }
    }
    None
}
