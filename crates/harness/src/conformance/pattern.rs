//! What findings have in common: their text without what differs from case to case.

use passmuster_plan::collective::{DType, ReduceOp};

/// A text without what differs from case to case: of wrong elements the diagnosis, of all else the text with `#` for numbers, except those of places.
pub(super) fn pattern(text: &str) -> String {
    let text = match text.split_once(" elements wrong on rank") {
        Some((_, rest)) => rest.split_once(": ").map_or("elements wrong", |(_, diagnosis)| diagnosis),
        None => text,
    };
    // An emulated run that is a little longer has its time in another unit.
    let text = text.replace(" ns of emulated time", " ms of emulated time").replace(" us of emulated time", " ms of emulated time");
    let mut pattern = String::new();
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        let is_place = word == "PTX" || is_of_source(word);
        let plain = if is_place { word.to_owned() } else { without_numbers(&of_any_kind(word)) };
        // A list of ranks is as one rank.
        if plain.trim_end_matches([',', ']']) == "#" && pattern.ends_with("#, ") {
            pattern.truncate(pattern.len() - 3);
        }
        pattern += &plain;
        pattern.push(' ');
        if word == "PTX"
            && let Some(line) = words.next()
        {
            pattern += line;
            pattern.push(' ');
        }
    }
    pattern.trim_end().replace("in_place.", "output.").replace("ranks", "rank").replace(['[', ']'], "")
}

/// Whether it is `kernel.cu:12` or the like.
fn is_of_source(word: &str) -> bool {
    let bare = word.trim_end_matches([',', ';', ')']);
    let mut parts = bare.split(':');
    let file = parts.next().unwrap_or_default();
    file.contains('.') && bare.contains(':') && parts.all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The name of a kernel without its type and operator: `one_shot_T` for `one_shot_bf16_sum`.
fn of_any_kind(word: &str) -> String {
    let is_type = |part: &str| DType::ALL.iter().any(|dtype| dtype.name() == part) || ["b8", "b16", "b32", "b64"].contains(&part);
    let is_op = |part: &str| ReduceOp::ALL.iter().any(|op| op.name() == part);
    let bare = |part: &str| part.trim_end_matches([',', ';', ')']).to_owned();
    let parts: Vec<&str> = word.split('_').collect();
    let kept = parts.iter().enumerate().filter(|&(at, part)| at == 0 || !is_op(&bare(part)));
    kept.map(|(at, part)| if at > 0 && is_type(&bare(part)) { "T" } else { part }).collect::<Vec<_>>().join("_")
}

/// `#` for every number, and for every range of numbers.
fn without_numbers(word: &str) -> String {
    let mut plain = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if plain.ends_with('#') => {}
            '0'..='9' => plain.push('#'),
            c => plain.push(c),
        }
    }
    plain.replace("#..#", "#").replace("#-#", "#").replace("#.#", "#")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_places_do_not() {
        assert_eq!(
            pattern("hang after 12 ms: 4 waits gave up, for ranks [0, 1, 2]"),
            pattern("hang after 2282 ms: 3 waits gave up, for ranks [1]")
        );
        let hang = |after: &str| pattern(&format!("hang after {after} of emulated time: deadlock"));
        assert!(hang("996 ns") == hang("1.02 us") && hang("3 us") == hang("1.5 ms"), "{}", hang("3 us"));
        assert_ne!(pattern("race at a.cu:12, by rank 1"), pattern("race at a.cu:13, by rank 1"));
        assert_eq!(pattern("race at a.cu:12, by rank 1"), pattern("race at a.cu:12, by rank 3"));
        assert_ne!(pattern("Store at PTX 157:1"), pattern("Store at PTX 158:1"));
    }
}
