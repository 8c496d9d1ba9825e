//! Which mutants are taken: a sample that depends on the text of the files alone.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::mutate::{self, Mutation};

/// Any other would be as good; this one stays.
const SEED: u64 = 0x6a75_6467;

/// The least of a file, if it has as many.
const LEAST: usize = 3;

/// A mutant that could be taken.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// What it is known by at run time: from 1.
    pub(super) number: u32,
    pub(super) file: String,
    pub(super) mutation: Mutation,
    /// Of those that are alike in function, change and text, the how manieth.
    pub(super) nth: usize,
    /// Smaller ones are taken first.
    rank: u64,
}

/// All mutants of some files.
///
/// # Errors
/// A file that is no Rust.
pub(super) fn candidates(files: &BTreeMap<String, String>) -> anyhow::Result<Vec<Candidate>> {
    let mut all = Vec::new();
    for (file, text) in files {
        let mutations = mutate::mutations(text).map_err(|error| error.context(file.clone()))?;
        let occurrences = mutate::occurrences(&mutations);
        for (mutation, nth) in mutations.into_iter().zip(occurrences) {
            // No line and no place: what is added above changes nothing.
            let Mutation { function, change, text, .. } = &mutation;
            let rank = xxh3_64_with_seed(format!("{file}\0{function}\0{change}\0{text}\0{nth}").as_bytes(), SEED);
            let number = all.len() as u32 + 1;
            all.push(Candidate { number, file: file.clone(), mutation, nth, rank });
        }
    }
    Ok(all)
}

/// How many of each file are taken of `wanted`: as it has mutants, and some of each.
pub(super) fn quotas(candidates: &[Candidate], wanted: usize) -> BTreeMap<&str, usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    candidates.iter().for_each(|candidate| *counts.entry(&candidate.file).or_default() += 1);
    let quota = |count: usize| (wanted * count).div_ceil(candidates.len()).max(LEAST).min(count);
    counts.into_iter().map(|(file, count)| (file, quota(count))).collect()
}

/// Takes as many mutants of each file as its quota is, without those that do not compile.
pub(super) fn take<'c>(candidates: &'c [Candidate], quotas: &BTreeMap<&str, usize>, broken: &BTreeSet<u32>) -> Vec<&'c Candidate> {
    let mut of_files: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates.iter().filter(|candidate| !broken.contains(&candidate.number)) {
        of_files.entry(&candidate.file).or_default().push(candidate);
    }
    let mut taken = Vec::new();
    for (file, mut own) in of_files {
        own.sort_by_key(|candidate| (candidate.rank, candidate.number));
        own.truncate(quotas.get(file).copied().unwrap_or(0));
        own.sort_by_key(|candidate| candidate.number);
        taken.extend(own);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(first: &str) -> BTreeMap<String, String> {
        let many: String = (0..40).map(|n| format!("fn f{n}(a: u8) -> u8 {{ g(a + {n}) }}\n")).collect();
        [("a.rs".to_owned(), first.to_owned()), ("b.rs".to_owned(), many)].into()
    }

    fn taken(first: &str) -> Vec<(String, String)> {
        let all = candidates(&files(first)).unwrap();
        let quotas = quotas(&all, 20);
        let name = |candidate: &&Candidate| (candidate.mutation.function.clone(), candidate.mutation.change.clone());
        take(&all, &quotas, &BTreeSet::new()).iter().map(name).collect()
    }

    #[test]
    fn samples_survive_moved_lines() {
        let text = "fn a(x: u8) -> bool { x < 3 && x != 1 }";
        assert_eq!(taken(text), taken(&format!("// A line.\n\n{text}")));
    }

    #[test]
    fn every_file_has_some() {
        let sample = taken("fn a(x: u8) -> bool { x < 3 }");
        assert_eq!(sample.iter().filter(|(function, _)| function == "a").count(), LEAST);
        assert!(sample.len() >= 20);
    }

    #[test]
    fn broken_mutants_are_replaced() {
        let all = candidates(&files("")).unwrap();
        let quotas = quotas(&all, 10);
        let first = take(&all, &quotas, &BTreeSet::new());
        let broken = BTreeSet::from([first[0].number]);
        let then = take(&all, &quotas, &broken);
        assert_eq!(then.len(), first.len());
        assert!(then.iter().all(|candidate| candidate.number != first[0].number));
    }
}
