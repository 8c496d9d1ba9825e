//! Whose turn it is, for tests that take so long that each commit gets a part of them.

use std::env;

/// Which turn it is, which `cargo xtask test` says by a number for each commit. None where nobody says so, and all is tested.
///
/// # Panics
/// Where `PASSMUSTER_TURN` is not a number.
pub fn turn() -> Option<usize> {
    env::var("PASSMUSTER_TURN").ok().map(|turn| turn.parse().expect("PASSMUSTER_TURN is a number"))
}

/// An eighth of what takes long, another one at each turn; all of it where nobody says whose turn it is.
pub fn of_turn<T>(all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    eighth(turn(), all)
}

fn eighth<T>(turn: Option<usize>, all: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let (first, step) = turn.map_or((0, 1), |turn| (turn % 8, 8));
    all.skip(first).step_by(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, tests that go by turns leave out what is nobody's turn, and pass.
    #[test]
    fn every_item_has_its_turn() {
        assert!(eighth(None, 0..11).eq(0..11));
        let mut all: Vec<i32> = (5..13).flat_map(|turn| eighth(Some(turn), 0..11)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..11));
    }
}
