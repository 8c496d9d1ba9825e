//! Queries: which cases of a list are asked for, and, where there are none, which part of the query is wrong and what is nearest to it.

use std::collections::{BTreeMap, BTreeSet};

use passmuster_plan::{algorithms, words::nearest};

use super::{
    List,
    collective_case::{self, CaseId},
    products, tasks,
};

/// Selects cases: an id in which every part may be `*`, a list or left out.
///
/// `all_reduce/*:bf16,*:w=3,5,7` matches bf16 cases of any all-reduce at three world sizes. Lists are separated by commas; in the path
/// and in DTYPE,OP, where the comma is taken, by `|`. A key that is not given matches any value; a flag must be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    text: String,
    parts: Vec<Part>,
}

/// One part of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    of: Of,
    /// One of them must match; none where a flag must be set.
    patterns: Vec<String>,
}

/// What a part of a query speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    /// One of the four names and types that an id starts with.
    Head(usize),
    Key(String),
}

/// What the four names and types of an id are called.
const HEAD: [&str; 4] = ["collective", "algorithm", "dtype", "operator"];

/// The most names that an error calls the nearest.
/// The most values that an error lists.
const LISTED: usize = 16;

impl Query {
    /// Reads a query.
    ///
    /// # Errors
    /// A key that no case has, or that stands where a collective is expected.
    pub fn new(text: &str) -> Result<Query, String> {
        Query::with_keys(text, &[])
    }

    /// The same, where cases of tasks have these parameters.
    ///
    /// # Errors
    /// As [`Query::new`].
    pub fn with_keys(text: &str, parameters: &[String]) -> Result<Query, String> {
        let keys = || keys().chain(parameters.iter().map(String::as_str));
        let mut fields = text.split(':');
        let path = fields.next().unwrap_or("*");
        let (collective, algorithm) = path.split_once('/').unwrap_or((path, "*"));
        let types = fields.next().unwrap_or("*,*");
        let (dtype, operator) = types.split_once(',').unwrap_or((types, "*"));
        for (expected, part) in [("a collective", path), ("DTYPE,OP", types)] {
            let key = part.split('=').next().unwrap_or_default();
            if part.contains('=') || keys().any(|known| known == key) {
                return Err(format!("`{part}` stands where {expected} is expected: keys come third, as in '*:*,*:{part}'"));
            }
        }
        let patterns = |list: &str, separator| list.split(separator).map(str::to_owned).collect();
        let heads = [collective, algorithm, dtype, operator].into_iter().enumerate();
        let mut parts: Vec<Part> = heads.map(|(at, list)| Part { of: Of::Head(at), patterns: patterns(list, '|') }).collect();
        for field in fields {
            let (key, list) = field.split_once('=').map_or((field, None), |(key, list)| (key, Some(list)));
            if keys().all(|known| known != key) {
                return Err(format!("unknown key `{key}` in query `{text}`: {}", instead(key, keys())));
            }
            let patterns = list.map_or(Vec::new(), |list| patterns(list, ','));
            parts.push(Part { of: Of::Key(key.to_owned()), patterns });
        }
        Ok(Query { text: text.into(), parts })
    }

    /// Whether the query selects the case.
    pub fn matches(&self, case: &(impl CaseId + ?Sized)) -> bool {
        self.parts.iter().all(|part| part.matches(case))
    }

    /// The list that it selects from.
    pub fn list(&self) -> List {
        let is_of_faults = |part: &Part| part.of == Of::Key("fault".into()) && part.patterns != [""];
        if self.parts.iter().any(is_of_faults) { List::Faults } else { List::Merge }
    }

    /// What in the query no case has, with the nearest that there is. Each item of a list is checked by itself: otherwise a user who asks for `w=3,99`
    /// would not learn that nothing has 99 ranks. `None` if each part is known.
    pub fn unknown(&self, cases: &[impl CaseId]) -> Option<String> {
        let mut unknown = Vec::new();
        for (at, part) in self.parts.iter().enumerate() {
            // The algorithms that there are depend on the collective.
            let of_collective = |case: &&_| at != 1 || self.parts[0].matches(*case);
            let mut considered: Vec<_> = cases.iter().filter(of_collective).collect();
            if considered.is_empty() {
                considered = cases.iter().collect();
            }
            if part.patterns.is_empty() && !considered.iter().any(|case| part.matches(*case)) {
                unknown.push(format!("no case has {part}"));
            }
            let values: BTreeSet<String> = considered.iter().map(|case| part.of.value(*case).unwrap_or_default()).collect();
            let known = || values.iter().map(String::as_str).filter(|value| !value.is_empty());
            for pattern in part.patterns.iter().filter(|pattern| !values.iter().any(|value| glob(pattern, value))) {
                unknown.push(match (&part.of, algorithms::renamed(pattern)) {
                    (Of::Head(1), Some(now)) => format!("algorithm `{pattern}` is called `{now}` now"),
                    (Of::Head(0), _) if !self.text.contains(['/', ':']) => self.lone_word(cases),
                    (Of::Head(at), _) => format!("no case has {} `{pattern}`: {}", HEAD[*at], instead(pattern, known())),
                    (Of::Key(key), _) => format!("no case has {key}={pattern}: {}", instead(pattern, known())),
                });
            }
        }
        (!unknown.is_empty()).then(|| unknown.join("; "))
    }

    /// Why a query whose parts are all known selects none of the cases: the first two parts that no case has together, with what there is of the second.
    pub fn never_together(&self, cases: &[impl CaseId]) -> String {
        for (at, second) in self.parts.iter().enumerate() {
            for first in &self.parts[..at] {
                let of_first: Vec<_> = cases.iter().filter(|case| first.matches(*case)).collect();
                if of_first.iter().any(|case| second.matches(*case)) {
                    continue;
                }
                let known: BTreeSet<String> = of_first.iter().filter_map(|case| second.of.value(*case)).collect();
                let pattern = if let [only] = &second.patterns[..] { only } else { "" };
                let there = instead(pattern, known.iter().map(String::as_str));
                return format!("no case has both {first} and {second}: with {first}, {there}");
            }
        }
        "each part is known, and any two of them go together, but no case has all".into()
    }

    /// What a query that is one word and no collective may have meant.
    fn lone_word(&self, cases: &[impl CaseId]) -> String {
        // How each word that there is would be asked for.
        let mut written: BTreeMap<String, String> = BTreeMap::new();
        for head in cases.iter().map(CaseId::head) {
            let as_query = [head[0].to_owned(), format!("*/{}", head[1]), format!("*:{}", head[2]), format!("*:*,{}", head[3])];
            for (word, query) in head.into_iter().zip(as_query) {
                written.entry(word.to_owned()).or_insert(query);
            }
        }
        written.extend(List::ALL.map(|list| (list.name().to_owned(), list.name().to_owned())));
        let word = &self.text;
        let near = nearest(word, written.keys().map(String::as_str));
        let near: Vec<String> = near.into_iter().map(|near| format!("'{}'", written[near])).collect();
        let lists = List::ALL.map(List::name).join(", ");
        match &near[..] {
            [] => format!("`{word}` is neither a list ({lists}) nor a case id nor a pattern such as 'all_reduce/*:bf16,*:w=3,5'"),
            [one] => format!("`{word}` is neither a list ({lists}) nor a collective: the nearest is {one}"),
            several => format!("`{word}` is neither a list ({lists}) nor a collective: the nearest are {}", several.join(", ")),
        }
    }
}

impl Part {
    fn matches(&self, case: &(impl CaseId + ?Sized)) -> bool {
        let value = self.of.value(case);
        if self.patterns.is_empty() {
            return value.is_some();
        }
        let value = value.unwrap_or_default();
        self.patterns.iter().any(|pattern| glob(pattern, &value))
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.of {
            Of::Head(at) => write!(f, "{} {}", HEAD[*at], self.patterns.join("|")),
            Of::Key(key) if self.patterns.is_empty() => f.write_str(key),
            Of::Key(key) => write!(f, "{key}={}", self.patterns.join(",")),
        }
    }
}

impl Of {
    /// What the case has of it, also where its id leaves out a default; `None` where it has none.
    fn value(&self, case: &(impl CaseId + ?Sized)) -> Option<String> {
        match self {
            Of::Head(at) => Some(case.head()[*at].to_owned()),
            Of::Key(key) => {
                let given = case.fields().into_iter().find(|(field, _)| field == key).map(|(_, value)| value);
                given.or_else(|| Some(case.default_of(key).to_owned()).filter(|value| !value.is_empty()))
            }
        }
    }
}

/// All keys that ids may have, each once.
fn keys<'k>() -> impl Iterator<Item = &'k str> + Clone {
    let of_products = products::KEYS.into_iter().filter(|key| !collective_case::KEYS.contains(key));
    let of_tasks = tasks::KEYS.into_iter().filter(|key| !collective_case::KEYS.contains(key) && !products::KEYS.contains(key));
    collective_case::KEYS.into_iter().chain(of_products).chain(of_tasks)
}

/// What may be said instead of `word`: the nearest of `known`, or all where none is near.
fn instead<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    match &nearest(word, known.clone())[..] {
        [] => {
            let (mut all, mut numbers): (Vec<&str>, Vec<u64>) = (known.collect(), Vec::new());
            numbers.extend(all.iter().filter_map(|text| text.parse::<u64>().ok()));
            if numbers.len() == all.len() {
                all.sort_by_key(|text| text.parse::<u64>().unwrap_or_default());
            }
            let more = all.len().saturating_sub(LISTED);
            all.truncate(LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            if all.is_empty() { "there is none".into() } else { format!("expected one of {}{more}", all.join(", ")) }
        }
        [one] => format!("the nearest is {one}"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}

/// Whether `value` matches `pattern`, in which `*` stands for any text.
fn glob(pattern: &str, value: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == value,
        Some((before, rest)) => value
            .strip_prefix(before)
            .is_some_and(|tail| (0..=tail.len()).filter(|&i| tail.is_char_boundary(i)).any(|i| glob(rest, &tail[i..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::CollectiveCase;
    use rstest::rstest;

    #[rstest]
    #[case("*", true)]
    #[case("all_reduce/*", true)]
    #[case("all_reduce/one_shot|two_shot:bf16,*:w=3,5,8", true)]
    #[case("all_reduce/two_shot:f16|bf16,sum:inputs=tagged", true)]
    #[case("*:*,*:in_place", false)]
    #[case("*:*,*:w=3,5,7", false)]
    #[case("*:*,*:off=0:n=10*", true)]
    #[case("*:*,max", false)]
    #[case("*:*,*:peer=*", true)]
    #[case("*:*,*:peer=nccl*", false)]
    fn queries_select(#[case] query: &str, #[case] selected: bool) {
        let case: CollectiveCase = "all_reduce/two_shot:bf16,sum:w=8:n=1040".parse().unwrap();
        assert_eq!(Query::new(query).unwrap().matches(&case), selected);
    }

    #[test]
    fn an_id_selects_its_case() {
        let id = "all_reduce/two_shot:bf16,sum:w=8:n=1040:off=3:in_place";
        assert!(Query::new(id).unwrap().matches(&id.parse::<CollectiveCase>().unwrap()));
    }

    fn cases() -> Vec<CollectiveCase> {
        [
            "all_reduce/two_shot:bf16,sum:w=8:n=1040:in_place",
            "all_reduce/one_shot:f32,max:w=2:n=1040:seed=9",
            "all_reduce/two_shot_push:f16,sum:w=3:n=7:inputs=probe",
            "all_gather/push:bf16,copy:w=16:n=33:peer=nccl_ring",
        ]
        .map(|id| id.parse().unwrap())
        .to_vec()
    }

    /// What is said of a query that selects nothing.
    fn said(query: &str) -> String {
        let query = match Query::new(query) {
            Ok(query) => query,
            Err(error) => return error,
        };
        assert!(!cases().iter().any(|case| query.matches(case)));
        query.unknown(&cases()).unwrap_or_else(|| query.never_together(&cases()))
    }

    #[rstest]
    #[case::list("smoek", "`smoek` is neither a list (smoke, merge, faults) nor a collective: the nearest is 'smoke'")]
    #[case::lone_algorithm("two_shto", "`two_shto` is neither a list (smoke, merge, faults) nor a collective: the nearest is '*/two_shot'")]
    #[case::lone_dtype("bf61", "`bf61` is neither a list (smoke, merge, faults) nor a collective: the nearest is '*:bf16'")]
    #[case::lone_key("w=99", "`w=99` stands where a collective is expected: keys come third, as in '*:*,*:w=99'")]
    #[case::lone_nonsense("xyz", "`xyz` is neither a list (smoke, merge, faults) nor a case id nor a pattern such as")]
    #[case::collective("all_reduec/*", "no case has collective `all_reduec`: the nearest is all_reduce")]
    #[case::algorithm("all_reduce/two_shto", "no case has algorithm `two_shto`: the nearest is two_shot")]
    #[case::of_the_collective("all_gather/two_shot", "no case has algorithm `two_shot`: expected one of push")]
    #[case::part_of_a_name("all_reduce/two", "no case has algorithm `two`: the nearest are two_shot")]
    #[case::dtype("*:bf61", "no case has dtype `bf61`: the nearest is bf16")]
    #[case::operator("*:*,summ", "no case has operator `summ`: the nearest is sum")]
    #[case::world("*:*,*:w=99", "no case has w=99: the nearest are 16, 8, 3")]
    #[case::value("*:*,*:inputs=porbe", "no case has inputs=porbe: the nearest is probe")]
    #[case::far("*:*,*:peer=mpi", "no case has peer=mpi: expected one of nccl_ring")]
    #[case::flag("*:*,*:fault", "no case has fault")]
    #[case::two("all_reduec/*:bf61", "no case has collective `all_reduec`: the nearest is all_reduce; no case has dtype `bf61`: the")]
    #[case::key("*:*,*:of=3", "unknown key `of` in query `*:*,*:of=3`: the nearest is off")]
    #[case::key_far("*:*,*:zzzz=3", "unknown key `zzzz` in query `*:*,*:zzzz=3`: expected one of w, n, nodes, root, counts")]
    #[case::never_together(
        "all_reduce/*:*,*:w=16",
        "no case has both collective all_reduce and w=16: with collective all_reduce, the nearest are 8, 3, 2"
    )]
    #[case::never_with_a_flag(
        "*/one_shot:*,*:in_place",
        "no case has both algorithm one_shot and in_place: with algorithm one_shot, there is none"
    )]
    fn what_is_wrong_is_named_with_the_nearest(#[case] query: &str, #[case] start: &str) {
        let said = said(query);
        assert!(said.starts_with(start) && !said.ends_with('.'), "{said}");
    }

    /// If this fails, somebody believes that 99 ranks were tested.
    #[test]
    fn one_of_several_that_nothing_has_is_named() {
        let query = Query::new("all_reduce/one_shot|two_shto:*,*:w=8,99").unwrap();
        let unknown = query.unknown(&cases()).unwrap();
        assert_eq!(unknown, "no case has algorithm `two_shto`: the nearest is two_shot; no case has w=99: the nearest are 16, 8, 3");
        assert_eq!(Query::new("all_reduce/two_*:bf16|f16,sum:w=3,8").unwrap().unknown(&cases()), None);
    }

    #[test]
    fn three_parts_may_go_together_in_pairs_only() {
        assert_eq!(
            said("*/two_shot|one_shot:*,sum|max:w=2,8:in_place:seed=9"),
            "no case has both in_place and seed=9: with in_place, the nearest is 0"
        );
        let pairs: Vec<CollectiveCase> =
            ["f32,sum:w=2", "f32,max:w=3", "f16,sum:w=3"].map(|rest| format!("all_reduce/two_shot:{rest}:n=1").parse().unwrap()).to_vec();
        assert_eq!(
            Query::new("*:f32,sum:w=3").unwrap().never_together(&pairs),
            "each part is known, and any two of them go together, but no case has all"
        );
    }
}
