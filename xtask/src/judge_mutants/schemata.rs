//! One text with all mutants in it: each stands beside the original, and a number chooses at run time.

use std::{cmp::Reverse, fmt::Write, ops::Range};

use super::mutate::{Form, Mutation};

/// What chooses, in each crate that has mutants. Off, it costs a load and a comparison.
pub(super) const CHOOSER: &str = include_str!("chooser.rs.txt");

/// A file with mutants in it.
pub(super) struct Rendered {
    pub(super) text: String,
    /// Where each mutant stands in the text, by its number.
    places: Vec<(u32, Range<usize>)>,
    /// The whole of each choice, with all numbers that it is between.
    choices: Vec<(Vec<u32>, Range<usize>)>,
}

impl Rendered {
    /// The mutants that a place in the text is part of: that one, or all of the smallest choice around it.
    pub(super) fn at(&self, place: Range<usize>) -> Vec<u32> {
        let around = |range: &Range<usize>| range.start <= place.start && place.end <= range.end;
        let mutant = self.places.iter().filter(|(_, range)| around(range)).min_by_key(|(_, range)| range.len());
        let choice = self.choices.iter().filter(|(_, range)| around(range)).min_by_key(|(_, range)| range.len());
        match (mutant, choice) {
            (Some((number, own)), Some((_, whole))) if own.len() < whole.len() => vec![*number],
            (_, Some((numbers, _))) => numbers.clone(),
            (Some((number, _)), None) => vec![*number],
            (None, None) => Vec::new(),
        }
    }

    /// The mutants on some bytes of the text, whole or in part.
    pub(super) fn touching(&self, place: Range<usize>) -> Vec<u32> {
        let meets = |range: &Range<usize>| range.start < place.end && place.start < range.end;
        self.choices.iter().filter(|(_, range)| meets(range)).flat_map(|(numbers, _)| numbers.iter().copied()).collect()
    }
}

/// Writes mutants, each with its number, into their file.
pub(super) fn render(text: &str, mutants: &[(u32, &Mutation)]) -> Rendered {
    let mut sorted = mutants.to_vec();
    sorted.sort_by_key(|(number, mutation)| (mutation.range.start, Reverse(mutation.range.end), Reverse(mutation.form), *number));
    let mut renderer =
        Renderer { source: text, mutants: sorted, rendered: Rendered { text: String::new(), places: vec![], choices: vec![] } };
    renderer.all(0..text.len(), 0..mutants.len());
    renderer.rendered
}

struct Renderer<'t> {
    source: &'t str,
    /// What lies in another comes after it.
    mutants: Vec<(u32, &'t Mutation)>,
    rendered: Rendered,
}

impl Renderer<'_> {
    /// Writes the source of a range, and the mutants that lie in it.
    fn all(&mut self, range: Range<usize>, mutants: Range<usize>) {
        let (mut at, mut next) = (range.start, mutants.start);
        while next < mutants.end {
            let first = self.mutants[next].1;
            let (place, form) = (first.range.clone(), first.form);
            let alike = self.mutants[next..mutants.end].iter().take_while(|(_, other)| other.range == place && other.form == form).count();
            let inner = if form == Form::Inserted {
                0
            } else {
                self.mutants[next + alike..mutants.end].iter().take_while(|(_, other)| other.range.end <= place.end).count()
            };
            self.rendered.text.push_str(&self.source[at..place.start]);
            self.choice(place.clone(), form, next..next + alike, next + alike + inner);
            (at, next) = (place.end, next + alike + inner);
        }
        self.rendered.text.push_str(&self.source[at..range.end]);
    }

    fn choice(&mut self, place: Range<usize>, form: Form, alike: Range<usize>, inner_end: usize) {
        let start = self.rendered.text.len();
        let numbers: Vec<u32> = self.mutants[alike.clone()].iter().map(|(number, _)| *number).collect();
        match form {
            Form::Expression => {
                self.rendered.text.push('(');
                for at in alike.clone() {
                    let (number, mutation) = self.mutants[at];
                    self.push(format_args!("if crate::mutant::is({number}) {{ "));
                    let from = self.rendered.text.len();
                    self.rendered.text.push_str(&mutation.instead);
                    self.rendered.places.push((number, from..self.rendered.text.len()));
                    self.rendered.text.push_str(" } else ");
                }
                self.rendered.text.push_str("{ ");
                self.all(place, alike.end..inner_end);
                self.rendered.text.push_str(" })");
            }
            Form::Dropped => {
                self.push(format_args!("if !crate::mutant::is({}) {{ ", numbers[0]));
                self.all(place, alike.end..inner_end);
                self.rendered.text.push_str(" }");
            }
            Form::Inserted => {
                for at in alike {
                    let (number, mutation) = self.mutants[at];
                    let from = self.rendered.text.len();
                    self.push(format_args!(" if crate::mutant::is({number}) {{ {} }}", mutation.instead));
                    self.rendered.places.push((number, from..self.rendered.text.len()));
                }
            }
        }
        let end = self.rendered.text.len();
        self.rendered.choices.push((numbers, start..end));
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.rendered.text.write_fmt(arguments).expect("a String takes all");
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mutate::mutations, *};

    fn rendered(text: &str) -> (Rendered, Vec<Mutation>) {
        let all = mutations(text).unwrap();
        let numbered: Vec<(u32, &Mutation)> = (1..).zip(&all).collect();
        (render(text, &numbered), all.clone())
    }

    #[test]
    fn mutants_stand_beside_originals() {
        let (of, _) = rendered("fn f(a: u8) -> u8 { g(a == b) }");
        assert_eq!(of.text, "fn f(a: u8) -> u8 { g((if crate::mutant::is(1) { (a) != (b) } else { a == b })) }");
        let (of, _) = rendered("fn f() { a.b(); }");
        assert_eq!(of.text, "fn f() { if crate::mutant::is(1) { return; } if !crate::mutant::is(2) { a.b(); } }");
    }

    #[test]
    fn mutants_nest() {
        let (of, _) = rendered("fn f() -> u8 { g(a & b | c) }");
        assert_eq!(
            of.text,
            "fn f() -> u8 { g((if crate::mutant::is(2) { (a & b) & (c) } else { (if crate::mutant::is(1) { (a) | (b) } else { a & b }) | c })) }"
        );
    }

    /// If this fails, the text with mutants is not the source when all are off.
    #[test]
    fn everything_parses() {
        let text = include_str!("mutate.rs");
        let (of, all) = rendered(text);
        assert!(all.len() > 200 && of.choices.len() > 100, "{} mutants", all.len());
        syn::parse_file(&of.text).unwrap();
    }

    #[test]
    fn errors_lead_to_mutants() {
        let (of, all) = rendered("fn f() -> u8 { g(a & b | c); h() }");
        let find = |what: &str| of.text.find(what).map(|at| at..at + what.len()).unwrap();
        let changes = |numbers: Vec<u32>| numbers.iter().map(|&number| &*all[number as usize - 1].change).collect::<Vec<_>>();
        assert_eq!(changes(of.at(find("(a & b) & (c)"))), ["`|` to `&`"]);
        assert_eq!(changes(of.at(find("(a) |"))), ["`&` to `|`"]);
        assert_eq!(changes(of.at(find("g("))), ["call of `g` dropped"]);
        assert!(of.at(find("h()")).is_empty());
        assert_eq!(of.touching(0..of.text.len()).len(), all.len());
    }
}
