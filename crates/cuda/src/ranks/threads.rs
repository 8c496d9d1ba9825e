//! Doing something on all ranks at once, each in a thread of its own, in bounded time.
//!
//! The threads are not scoped: one that a library does not let go of is left behind, and the rest of the process goes on.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

/// Runs `work` for each of `0..world` at once and returns what each came to: `None` for those not done within `limit`.
///
/// # Panics
/// When a thread cannot be started.
pub(crate) fn on_all<T: Send + 'static>(
    world: usize,
    limit: Duration,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<Option<T>> {
    let start = Instant::now();
    let results = spawn(world, work);
    let mut done: Vec<Option<T>> = (0..world).map(|_| None).collect();
    while done.iter().any(Option::is_none) {
        let Ok((rank, result)) = results.recv_timeout(limit.saturating_sub(start.elapsed())) else { break };
        done[rank] = Some(result);
    }
    done
}

/// Starts a thread for each rank. What they return arrives in the order in which they finish; one that panics never answers.
///
/// # Panics
/// When a thread cannot be started.
pub(crate) fn spawn<T: Send + 'static>(world: usize, work: impl Fn(usize) -> T + Send + Sync + 'static) -> mpsc::Receiver<(usize, T)> {
    let (sender, receiver) = mpsc::channel();
    let work = Arc::new(work);
    for rank in 0..world {
        let (sender, work) = (sender.clone(), work.clone());
        let body = move || {
            // Nobody listens any more where the limit has passed.
            let _ = sender.send((rank, work(rank)));
        };
        std::thread::Builder::new().name(format!("rank {rank}")).spawn(body).expect("the system starts a thread for each rank");
    }
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_answers_in_its_place() {
        assert_eq!(on_all(4, Duration::from_secs(10), |rank| rank * rank), [0, 1, 4, 9].map(Some));
    }

    #[test]
    fn a_rank_that_does_not_return_is_left_behind() {
        let work = |rank| {
            if rank == 1 {
                std::thread::sleep(Duration::from_secs(30));
            }
            rank
        };
        let start = Instant::now();
        assert_eq!(on_all(3, Duration::from_millis(200), work), [Some(0), None, Some(2)]);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
