//! Hosts: what each rank's thread is enqueuing, and what held it longest.
//!
//! A call of the driver that waits for the device, say to load a kernel, keeps everything behind it from its stream. Other ranks' waits then
//! give up for a rank whose kernel "did not start". Where the thread was tells the two apart.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// A call that takes so long waits for something: most take a few microseconds, the first of a kind a few milliseconds.
const LONG: Duration = Duration::from_millis(100);

/// The threads of all ranks.
pub(crate) struct Hosts(Vec<Mutex<Host>>);

#[derive(Clone, Copy, Default)]
struct Host {
    /// The action that it is enqueuing, and since when.
    within: Option<(usize, Instant)>,
    longest: Option<(usize, Duration)>,
}

impl Hosts {
    pub(crate) fn new(world: usize) -> Hosts {
        Hosts((0..world).map(|_| Mutex::default()).collect())
    }

    fn of(&self, rank: usize) -> MutexGuard<'_, Host> {
        self.0[rank].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a rank's thread enqueue one of its actions.
    pub(crate) fn during<T>(&self, rank: usize, action: usize, enqueue: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        self.of(rank).within = Some((action, since));
        let result = enqueue();
        let mut host = self.of(rank);
        let took = since.elapsed();
        host.within = None;
        if host.longest.is_none_or(|(_, longest)| took > longest) {
            host.longest = Some((action, took));
        }
        result
    }

    /// Each thread that something holds up, or has held up. `name` says what action of a rank it is.
    pub(crate) fn held(&self, name: impl Fn(usize, usize) -> String) -> Vec<String> {
        let of = |rank| {
            let Host { within, longest } = *self.of(rank);
            let within = within.map(|(action, since)| (action, since.elapsed(), "has been enqueuing"));
            let longest = longest.map(|(action, took)| (action, took, "was held up enqueuing"));
            let (action, time, verb) = [within, longest].into_iter().flatten().find(|(_, time, _)| *time >= LONG)?;
            Some(format!("rank {rank}'s thread {verb} {} for {} ms", name(rank, action), time.as_millis()))
        };
        (0..self.0.len()).filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn threads_that_are_or_were_held_up_are_named_with_what_they_enqueue() {
        let hosts = Arc::new(Hosts::new(3));
        hosts.during(0, 4, || thread::sleep(2 * LONG));
        hosts.during(0, 5, || ());
        hosts.during(1, 1, || ());
        let of_two = hosts.clone();
        let (stay, stays) = std::sync::mpsc::channel::<()>();
        let held = thread::spawn(move || of_two.during(2, 7, || stays.recv()));
        thread::sleep(2 * LONG);
        let lines = hosts.held(|rank, action| format!("action {action} of {rank}"));
        drop(stay);
        assert!(held.join().unwrap().is_err());
        let [was, is] = &lines[..] else { panic!("{lines:?}") };
        assert!(was.starts_with("rank 0's thread was held up enqueuing action 4 of 0 for 2"), "{was}");
        assert!(is.starts_with("rank 2's thread has been enqueuing action 7 of 2 for "), "{is}");
    }
}
