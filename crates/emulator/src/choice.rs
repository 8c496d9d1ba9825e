//! Choices from a seed: the same on every host.

/// A sequence of choices (splitmix64: Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Choice(u64);

impl Choice {
    /// The choices of a seed.
    pub fn of_seed(seed: u64) -> Choice {
        Choice(seed)
    }

    /// The `n`th number, from 0, of the sequence.
    pub fn nth(mut self, n: usize) -> u64 {
        for _ in 0..n {
            self.draw();
        }
        self.draw()
    }

    /// The next of the sequence: 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of some, of which there are fewer than 2^32.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.draw() % all.len() as u64) as usize]
    }

    /// Whether it is the one time in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.draw().is_multiple_of(n)
    }

    /// One of `0..n`, all as likely to within 2^-32; `n` is at least 1 and below 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        (((self.draw() >> 32) * n as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_range_comes_up_and_nothing_else() {
        let mut choice = Choice::of_seed(7);
        let mut seen = [0u32; 5];
        (0..5000).for_each(|_| seen[choice.below(5)] += 1);
        assert!(seen.iter().all(|&times| (850..1150).contains(&times)), "{seen:?}");
        assert_eq!(choice.below(1), 0);
    }

    #[test]
    fn one_of_some_comes_up_as_often_as_others() {
        let mut choice = Choice::of_seed(3);
        let odd = (0..5000).filter(|_| choice.of(&[1, 2]) == 1).count();
        let rare = (0..5000).filter(|_| choice.one_in(10)).count();
        assert!((2300..2700).contains(&odd) && (400..600).contains(&rare), "{odd} {rare}");
    }

    #[test]
    fn a_seed_is_a_sequence() {
        let drawn = |seed| {
            let mut choice = Choice::of_seed(seed);
            (0..20).map(|_| choice.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }
}
