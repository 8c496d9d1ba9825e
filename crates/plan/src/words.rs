//! Words of messages: counts, and what somebody who misspelt a name may have meant.

/// `1 case`, `2 cases`.
pub fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Names that are offered at most.
const MOST: usize = 3;

/// The distance of a name from a part of it, without the length of the name.
const PART: u64 = 100;

/// Those of `known` that somebody who wrote `word` may have meant, the nearest first: numbers by value; names by edits, a swap of two letters counting
/// as one, of which there are at most one for three letters; names that `word` is a part of.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let number = word.parse::<u64>().ok();
    let distance = |name: &str| -> Option<u64> {
        if let Some(number) = number {
            return Some(name.parse::<u64>().ok()?.abs_diff(number));
        }
        let edits = strsim::osa_distance(word, name);
        let length = word.len().max(name.len());
        let is_near = edits < length && edits <= length.div_ceil(3).min(4);
        // A part of a name is farther than a mistake in one.
        let is_part = word.len() > 1 && name.contains(word);
        if is_near { Some(edits as u64) } else { is_part.then_some(PART + name.len() as u64) }
    };
    let mut near: Vec<(u64, &str)> = known.into_iter().filter_map(|name| Some((distance(name)?, name))).collect();
    near.sort_unstable();
    // Beside a mistake of one letter, one of two is none. Of names that it is a part of, any may be meant.
    let most = near.first().filter(|(least, _)| number.is_none() && *least < PART).map_or(u64::MAX, |(least, _)| *least);
    near.into_iter().filter(|(distance, _)| *distance <= most).map(|(_, name)| name).take(MOST).collect()
}

/// What stands in an error after a name that is not known, up to the names there are: ``did you mean `bf16`? ``, or nothing if none is near.
///
/// ```
/// use passmuster_plan::words::did_you_mean;
/// assert_eq!(did_you_mean("bf61", ["f32", "bf16"]), "did you mean `bf16`? ");
/// assert_eq!(did_you_mean("int4", ["f32", "bf16"]), "");
/// ```
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let near: Vec<String> = nearest(word, known).into_iter().map(|name| format!("`{name}`")).collect();
    match &near[..] {
        [] => String::new(),
        names => format!("did you mean {}? ", names.join(" or ")),
    }
}

/// The same, and all names there are: ``did you mean `bf16`? expected one of f32, bf16``.
pub fn expected(word: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    format!("{}expected one of {}", did_you_mean(word, known.iter().copied()), known.join(", "))
}

/// A name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{name}`: {}", expected(.name, .known))]
pub struct UnknownName {
    /// What it should be the name of.
    pub what: String,
    /// The name.
    pub name: String,
    /// The names there are.
    pub known: Vec<String>,
}

impl UnknownName {
    /// Of something that has one of these names.
    pub fn new<'k>(what: &str, name: &str, known: impl IntoIterator<Item = &'k str>) -> UnknownName {
        UnknownName { what: what.to_owned(), name: name.to_owned(), known: known.into_iter().map(str::to_owned).collect() }
    }
}

impl From<UnknownName> for String {
    fn from(error: UnknownName) -> String {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a slip of the keyboard has a person read a list of all names, or a name that is nothing like it is offered.
    #[test]
    fn slips_are_recognised() {
        let names = ["one_shot", "two_shot", "two_shot_push", "push"];
        assert_eq!(nearest("tow_shot", names), ["two_shot"]);
        assert_eq!(nearest("pus", names), ["push"]);
        assert_eq!(nearest("_push", names), ["push"]);
        assert_eq!(nearest("shot", names), ["one_shot", "two_shot", "two_shot_push"]);
        assert_eq!(nearest("n", ["w", "rows"]), [""; 0], "another letter is another name");
        assert_eq!(nearest("ring", names), [""; 0]);
        assert_eq!(nearest("7", ["2", "8", "64", "100"]), ["8", "2", "64"]);
        assert_eq!(expected("hallo", &["a", "b"]), "expected one of a, b");
    }
}
