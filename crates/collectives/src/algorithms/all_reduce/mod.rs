//! All-reduce: every rank gets the reduction of all inputs.

pub(super) mod copy_engine;
mod multimem;
mod multimem_one_shot;
mod one_shot;
mod one_shot_push;
pub(super) mod push;
pub(super) mod two_shot;
mod two_shot_push;

/// The algorithm of docs/tutorial-algorithm.md as it is where it lives here.
#[cfg(test)]
#[expect(unreachable_pub, reason = "it is exported where people write it")]
#[path = "../../../../../examples/tutorial/mine.rs"]
mod mine;

pub use copy_engine::CopyEngine;
pub use multimem::Multimem;
pub use multimem_one_shot::MultimemOneShot;
pub use one_shot::OneShot;
pub use one_shot_push::OneShotPush;
pub use push::Push;
pub use two_shot::TwoShot;
pub use two_shot_push::TwoShotPush;

#[cfg(test)]
mod tests {
    use super::mine::Mine;
    use crate::{
        algorithms::{Algorithm, Target, entry},
        collective::{Collective, DType, ReduceOp, Shape},
        plan::{Call, Op},
    };

    /// If this fails, the algorithm that the tutorial has people write is no longer one, or no longer launches the kernel that it has them write.
    #[test]
    fn the_tutorial_s_algorithm_has_a_plan() {
        let (call, buffers) = Call::on_its_own(Shape::new(Collective::AllReduce, 3, 40), DType::BF16, ReduceOp::Sum).unwrap();
        assert_eq!(Mine.supports(&call), Ok(()));
        let plan = Mine.plan(&call, &Target::default());
        let known = buffers.into_iter().chain(Mine.workspace(DType::BF16, 3, call.bytes())).map(|buffer| buffer.name).collect::<Vec<_>>();
        for ops in &plan.ranks {
            let [Op::Copy { from, to, to_rank: None }, Op::Launch(launch)] = &ops[..] else { panic!("{plan}") };
            assert!([from, to].iter().all(|region| known.contains(&region.buffer)), "{from} to {to}: {known:?}");
            assert_eq!((launch.module.as_str(), &launch.entry), ("all_reduce/mine", &entry("all_reduce/mine", DType::BF16, ReduceOp::Sum)));
        }
        let kernel = include_str!("../../../../../examples/tutorial/mine.cu");
        assert!(
            kernel.contains("all_reduce_mine_##NAME") && entry("all_reduce/mine", DType::F32, ReduceOp::Max) == "all_reduce_mine_f32_max"
        );
    }
}
