//! Whether all ranks are about to do the same: what each says of it is compared before anybody begins.

use crate::{Bootstrap, BootstrapError};

/// Why ranks do not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disagreement {
    /// A rank says something else than the others.
    #[error("rank {rank} has {field} = {value}, rank {other} has {expected}: all ranks must have the same, in {what}")]
    Differs {
        /// The rank: the first of the fewest that say the same.
        rank: usize,
        /// A rank of those that say something else.
        other: usize,
        /// What they speak of.
        field: String,
        /// What the rank says of it.
        value: String,
        /// What the other one says.
        expected: String,
        /// What they are about to do.
        what: String,
    },
    /// They could not compare.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
}

/// Compares what ranks say of what they are about to do, by fields: a name and a value. All ranks return the same.
///
/// # Errors
/// The first field that differs, or how the exchange failed.
pub fn agree(bootstrap: &mut dyn Bootstrap, what: &str, fields: &[(&str, String)]) -> Result<(), Disagreement> {
    let own: Vec<u8> =
        fields.iter().flat_map(|(name, value)| [name.as_bytes(), b"\0", value.replace('\0', " ").as_bytes(), b"\0"].concat()).collect();
    let all = bootstrap.all_gather(what, &own)?;
    let said: Vec<Vec<(String, String)>> = all.iter().map(|bytes| fields_of(bytes)).collect();
    compare(what, &said)
}

fn fields_of(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let texts: Vec<&str> = text.split('\0').collect();
    texts.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

fn compare(what: &str, said: &[Vec<(String, String)>]) -> Result<(), Disagreement> {
    let most = said.iter().map(Vec::len).max().unwrap_or(0);
    for at in 0..most {
        let of = |rank: usize| said[rank].get(at).map_or(("nothing".into(), String::new()), Clone::clone);
        let alike = |rank: usize| (0..said.len()).filter(|&other| of(other) == of(rank)).count();
        // Where half of them say the one and half the other, rank 0 is believed.
        let Some(rank) = (0..said.len()).rev().min_by_key(|&rank| alike(rank)).filter(|&rank| alike(rank) < said.len()) else { continue };
        let value_of = |rank: usize| of(rank);
        let rank = (0..said.len()).find(|&first| of(first) == of(rank)).unwrap_or(rank);
        let other =
            (0..said.len()).filter(|&other| of(other) != of(rank)).max_by_key(|&other| (alike(other), said.len() - other)).unwrap_or(0);
        let ((field, value), (_, expected)) = (value_of(rank), value_of(other));
        return Err(Disagreement::Differs { rank, other, field, value, expected, what: what.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(counts: &[u32]) -> Vec<Vec<(String, String)>> {
        counts.iter().map(|count| vec![("collective".into(), "all_reduce".into()), ("count".into(), count.to_string())]).collect()
    }

    /// If this fails, a mismatch is not seen, or the ranks that are right are blamed.
    #[test]
    fn the_rank_with_the_rarest_answer_is_named() {
        let refused = |counts: &[u32]| compare("call 17", &said(counts)).map_err(|error| error.to_string());
        assert_eq!(refused(&[8, 8, 8]), Ok(()));
        let named = "rank 2 has count = 9, rank 0 has 8: all ranks must have the same, in call 17";
        assert_eq!(refused(&[8, 8, 9, 8]), Err(named.into()));
        assert_eq!(refused(&[9, 8, 8]), Err("rank 0 has count = 9, rank 1 has 8: all ranks must have the same, in call 17".into()));
        assert_eq!(refused(&[8, 9]), Err("rank 1 has count = 9, rank 0 has 8: all ranks must have the same, in call 17".into()));
        assert_eq!(refused(&[8, 8, 9, 9]), Err(named.into()));
    }

    /// If this fails, a rank that says less than the others, or another thing, is taken for one that agrees.
    #[test]
    fn what_is_not_said_differs_too() {
        let mut all = said(&[8, 8, 8]);
        all[1].pop();
        assert!(compare("call", &all).unwrap_err().to_string().starts_with("rank 1 has nothing"));
        let bytes = b"collective\0all_reduce\0count\08\0";
        assert_eq!(fields_of(bytes), said(&[8])[0]);
        assert_eq!(fields_of(&[0xff, 0, 1]), [("\u{fffd}".to_owned(), "\u{1}".to_owned())]);
    }
}
