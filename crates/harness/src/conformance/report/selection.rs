//! What a run was asked for: enough to go on with it, and to put its parts together.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which cases, and under which conditions their verdicts hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selection {
    /// A list, a case id, a pattern or a replay token.
    pub query: String,
    /// The pattern of cases that were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<String>,
    /// Seed of lists, inputs and schedules.
    pub seed: u64,
    /// Which part of the cases, where not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// At most this many cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only this many of the mutants made by rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<usize>,
    /// Schedules of each case, on the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedules: Option<usize>,
    /// Milliseconds that one mutant may take, on GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u64>,
    /// The model of GPU that the emulator's ranks had, where it was not the one that was measured, h200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How multimem adds, on the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multimem: Option<String>,
    /// What races are judged by, on the emulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How tensor cores add, on the emulator, where not as on Hopper.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_cores: Option<String>,
    /// Thread instructions that one run on the emulator might take, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Milliseconds that one case might take, where it was said. What is late is inconclusive, or on GPUs hangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// How many processes the ranks of each case were, where they were processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Milliseconds after which a wait inside a kernel gives up.
    #[serde(default)]
    pub wait_limit: u64,
    /// Bytes of buffers of all ranks on the emulator, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Whether copies were enqueued as batches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_copies: bool,
    /// The kernel from elsewhere, with hashes of its PTX, its specification, and the files that this names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

impl Selection {
    /// What differs between two, for people; none where they are the same.
    pub fn differs(&self, recorded: &Selection) -> Option<String> {
        let fields = |selection| serde_json::to_value(selection).expect("a selection is plain data");
        let (here, there) = (fields(self), fields(recorded));
        let names = here.as_object().into_iter().chain(there.as_object()).flat_map(|fields| fields.keys());
        let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned).replace("null", "none");
        let name = names.into_iter().find(|&name| here[name] != there[name])?;
        Some(format!("{name} {}, here {}", said(&there[name]), said(&here[name])))
    }
}

/// One part of several of a list, which take turns: the second of three has the second case, the fifth, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Part {
    /// Which, from one.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl Part {
    /// The cases of this part.
    ///
    /// ```
    /// use passmuster_harness::conformance::report::Part;
    /// assert_eq!("2/3".parse::<Part>().unwrap().take(vec![1, 2, 3, 4, 5]), [2, 5]);
    /// ```
    pub fn take<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let parts = text.split_once('/').and_then(|(number, of)| Some(Part { number: number.parse().ok()?, of: of.parse().ok()? }));
        parts
            .filter(|part| (1..=part.of).contains(&part.number))
            .ok_or_else(|| format!("`{text}` is no part: expected K/N with K from 1 to N"))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl From<Part> for String {
    fn from(part: Part) -> String {
        part.to_string()
    }
}

impl TryFrom<String> for Part {
    type Error = String;

    fn try_from(text: String) -> Result<Part, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, a list that is judged in parts loses cases.
    #[test]
    fn parts_make_up_the_whole() {
        let part = |text: &str| text.parse::<Part>().unwrap().take((0..8).collect());
        assert_eq!([part("1/3"), part("2/3"), part("3/3")], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(part("1/1"), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for text in ["0/3", "4/3", "2", "a/b", "1/"] {
            assert_eq!(text.parse::<Part>().unwrap_err(), format!("`{text}` is no part: expected K/N with K from 1 to N"));
        }
    }

    /// If this fails, a run is gone on with under other conditions, or nobody learns which.
    #[test]
    fn what_differs_is_named() {
        let one = Selection { query: "merge".into(), wait_limit: 2000, ..Selection::default() };
        assert_eq!(one.differs(&one.clone()), None);
        assert_eq!(one.differs(&Selection { seed: 7, ..one.clone() }).as_deref(), Some("seed 7, here 0"));
        let part = Selection { part: "1/2".parse().ok(), ..one.clone() };
        assert_eq!(one.differs(&part).as_deref(), Some("part 1/2, here none"));
        assert_eq!(part.differs(&one).as_deref(), Some("part none, here 1/2"));
    }
}
