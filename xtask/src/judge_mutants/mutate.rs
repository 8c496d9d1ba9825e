//! What can be wrong with a line: a source file goes in, its mutants come out.
//!
//! A mutant is an edit of the text: a range of bytes and what stands there instead. Nothing here knows types: mutants that do not compile are found by
//! compiling them ([`super::build`]).
//!
//! Left alone are tests, constants and types, patterns, assertions, and text that only people read.

use std::{collections::HashMap, ops::Range};

use anyhow::{Context, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::{
    AngleBracketedGenericArguments, Arm, Attribute, BinOp, Block, Expr, ExprBinary, ExprMethodCall, ExprRange, Item, ItemImpl, ItemMacro,
    Lit, Pat, RangeLimits, ReturnType, Signature, Stmt, Type, UnOp, Variant,
    spanned::Spanned,
    visit::{self, Visit},
};

/// One way to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mutation {
    /// Bytes of the file; empty for a [`Form::Inserted`].
    pub(super) range: Range<usize>,
    /// What stands there instead; for a [`Form::Dropped`] nothing.
    pub(super) instead: String,
    pub(super) form: Form,
    /// Counted from 1.
    pub(super) line: usize,
    /// The function, with its type: `Oracle::expect`.
    pub(super) function: String,
    /// What is changed, in a few words: "`<` to `<=`".
    pub(super) change: String,
    /// What stands there, on one line, shortened.
    pub(super) text: String,
}

/// How a mutant stands beside the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// One expression or the other.
    Expression,
    /// A statement, or none.
    Dropped,
    /// A statement more.
    Inserted,
}

/// Longest original text that a mutation quotes.
const LONGEST_TEXT: usize = 60;

/// Traits whose implementations are text for people.
const SHOWN: [&str; 3] = ["Display", "Debug", "Error"];

/// Methods whose arguments only say how much memory is kept.
const SIZES: [&str; 3] = ["with_capacity", "reserve", "shrink_to"];

/// Methods that are taken for each other.
const SWAPPED: [(&str, &str); 12] = [
    ("min", "max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("is_some_and", "is_none_or"),
    ("first", "last"),
    ("min_by_key", "max_by_key"),
    ("wrapping_add", "wrapping_sub"),
    ("saturating_sub", "saturating_add"),
    ("leading_zeros", "trailing_zeros"),
    ("take_while", "skip_while"),
    ("take", "skip"),
];

/// All mutants of a file, in the order of their places.
///
/// # Errors
/// The text is no Rust.
pub(super) fn mutations(text: &str) -> anyhow::Result<Vec<Mutation>> {
    let file = syn::parse_file(text).context("cannot be parsed")?;
    let mut finder = Finder { text, base: 0, found: Vec::new(), within: Vec::new() };
    finder.visit_file(&file);
    let mut found = finder.found;
    found.sort_by_key(|mutation| (mutation.range.start, mutation.range.end));
    Ok(found)
}

/// Modules of a file that only tests have, and that lie in files of their own.
///
/// # Errors
/// The text is no Rust.
pub(super) fn modules_of_tests(text: &str) -> anyhow::Result<Vec<String>> {
    let file = syn::parse_file(text).context("cannot be parsed")?;
    let name = |item| match item {
        Item::Mod(module) if module.content.is_none() && is_of_tests(&module.attrs) => Some(module.ident.to_string()),
        _ => None,
    };
    Ok(file.items.into_iter().filter_map(name).collect())
}

/// What of a file is mutated, as tokens: without comments, layout, tests and imports. A test that is added beside the code changes nothing, nor does a crate
/// that is renamed.
///
/// # Errors
/// The text is no Rust.
pub(super) fn code(text: &str) -> anyhow::Result<String> {
    let file = syn::parse_file(text).context("cannot be parsed")?;
    let mut code = text.to_owned();
    for item in file.items.iter().rev() {
        let is_left_out = match item {
            Item::Mod(module) => is_of_tests(&module.attrs),
            Item::Use(_) => true,
            _ => false,
        };
        if is_left_out {
            code.replace_range(item.span().byte_range(), "");
        }
    }
    let tokens = code.parse::<TokenStream>().map_err(|error| anyhow!("cannot be read as tokens: {error}"))?;
    Ok(without_comments(tokens).to_string())
}

/// Tokens without the attributes that doc comments are.
fn without_comments(tokens: TokenStream) -> TokenStream {
    let is_hash = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == '#');
    let is_bang = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == '!');
    let is_comment = |token: &TokenTree| {
        matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket
            && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc"))
    };
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        if is_comment(&token) {
            if kept.last().is_some_and(is_bang) {
                kept.pop();
            }
            if kept.last().is_some_and(is_hash) {
                kept.pop();
            }
            continue;
        }
        kept.push(match token {
            TokenTree::Group(group) => TokenTree::Group(Group::new(group.delimiter(), without_comments(group.stream()))),
            token => token,
        });
    }
    kept.into_iter().collect()
}

struct Finder<'t> {
    /// The whole file.
    text: &'t str,
    /// Where what is parsed begins in it: the body of a macro is parsed by itself.
    base: usize,
    found: Vec<Mutation>,
    /// Names of the types and functions that are open.
    within: Vec<String>,
}

impl Finder<'_> {
    fn range(&self, node: &impl Spanned) -> Range<usize> {
        let range = node.span().byte_range();
        range.start + self.base..range.end + self.base
    }

    fn source(&self, node: &impl Spanned) -> &str {
        &self.text[self.range(node)]
    }

    fn add(&mut self, range: Range<usize>, form: Form, instead: String, change: impl Into<String>) {
        let line = 1 + self.text[..range.start].matches('\n').count();
        let shown = if form == Form::Inserted { "" } else { &self.text[range.clone()] };
        let mut text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() > LONGEST_TEXT {
            text = text.chars().take(LONGEST_TEXT - 3).chain("...".chars()).collect();
        }
        self.found.push(Mutation { range, instead, form, line, function: self.within.join("::"), change: change.into(), text });
    }

    fn replace(&mut self, node: &impl Spanned, instead: String, change: impl Into<String>) {
        self.add(self.range(node), Form::Expression, instead, change);
    }

    /// The opposite of a condition, if it binds no names.
    fn negate(&mut self, condition: &Expr, of: &str) {
        if !binds(condition) {
            self.replace(condition, format!("!({})", self.source(condition)), format!("condition of `{of}` negated"));
        }
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.within.push(name);
        visit(self);
        self.within.pop();
    }

    fn function(&mut self, attributes: &[Attribute], signature: &Signature, block: &Block) {
        if is_of_tests(attributes) || signature.constness.is_some() || self.is_text(&signature.output) {
            return;
        }
        self.within(signature.ident.to_string(), |finder| {
            finder.early_returns(signature, block);
            finder.visit_block(block);
        });
    }

    /// Whether what is returned is text for people.
    fn is_text(&self, output: &ReturnType) -> bool {
        let ReturnType::Type(_, of) = output else { return false };
        let of: String = self.source(of).split_whitespace().collect();
        ["String", "Option<String>", "Vec<String>", "fmt::Result", "std::fmt::Result"].contains(&&*of)
            || ["Cow<", "impl", "&str", "&'staticstr"]
                .iter()
                .any(|start| of.starts_with(start) && (*start != "impl" || of.contains("Display")))
    }

    fn early_returns(&mut self, signature: &Signature, block: &Block) {
        if block.stmts.is_empty() {
            return;
        }
        let inside = self.range(block).start + 1;
        let returned: &[&str] = match &signature.output {
            ReturnType::Default => &[""],
            ReturnType::Type(_, of) => match &**of {
                Type::Path(of) if of.path.is_ident("bool") => &["true", "false"],
                Type::Path(of) if of.path.segments.last().is_some_and(|last| last.ident == "Option") => &["None"],
                _ => &[],
            },
        };
        for value in returned {
            let value = if value.is_empty() { String::new() } else { format!(" {value}") };
            self.add(inside..inside, Form::Inserted, format!("return{value};"), format!("returns{value} at once"));
        }
    }

    fn literal(&mut self, literal: &Lit) {
        match literal {
            Lit::Int(number) => {
                let Ok(value) = number.base10_parse::<u128>() else { return };
                let mut values = vec![value + 1];
                match value {
                    0 => {}
                    1 => values.push(0),
                    2..=9 => values.push(value - 1),
                    _ => values.extend([0, value - 1]),
                }
                for other in values {
                    self.replace(literal, format!("{other}{}", number.suffix()), format!("{value} to {other}"));
                }
            }
            Lit::Float(number) => {
                let Ok(value) = number.base10_parse::<f64>() else { return };
                let other = if value == 0.0 { 1.0 } else { value * 2.0 };
                self.replace(literal, format!("{other:?}{}", number.suffix()), format!("{value:?} to {other:?}"));
            }
            Lit::Bool(value) => self.replace(literal, (!value.value).to_string(), format!("{} to {}", value.value, !value.value)),
            _ => {}
        }
    }

    fn binary(&mut self, binary: &ExprBinary) {
        let (left, right) = (self.source(&binary.left).to_owned(), self.source(&binary.right).to_owned());
        let operator = self.source(&binary.op).to_owned();
        let others: &[&str] = match binary.op {
            BinOp::Lt(_) => &["<=", ">"],
            BinOp::Le(_) => &["<", "=="],
            BinOp::Gt(_) => &[">=", "<"],
            BinOp::Ge(_) => &[">", "=="],
            BinOp::Eq(_) => &["!="],
            BinOp::Ne(_) => &["=="],
            // Names that the left binds are known on the right.
            BinOp::And(_) if binds(&binary.left) || binds(&binary.right) => &[],
            BinOp::And(_) => &["||"],
            BinOp::Or(_) => &["&&"],
            BinOp::Add(_) => &["-"],
            BinOp::Sub(_) => &["+"],
            BinOp::Mul(_) => &["+"],
            BinOp::Div(_) | BinOp::Rem(_) => &["*"],
            BinOp::BitAnd(_) => &["|"],
            BinOp::BitOr(_) | BinOp::BitXor(_) => &["&"],
            BinOp::Shl(_) => &[">>"],
            BinOp::Shr(_) => &["<<"],
            BinOp::AddAssign(_) => &["-="],
            BinOp::SubAssign(_) => &["+="],
            BinOp::BitOrAssign(_) => &["&="],
            BinOp::BitAndAssign(_) => &["|="],
            _ => &[],
        };
        let assigns = operator.ends_with('=') && !["==", "!=", "<=", ">="].contains(&&*operator);
        for other in others {
            // What is assigned to is a place, not a value.
            let instead = if assigns { format!("{left} {other} {right}") } else { format!("({left}) {other} ({right})") };
            self.replace(binary, instead, format!("`{operator}` to `{other}`"));
        }
        if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) && !others.is_empty() {
            self.replace(binary, left, format!("right of `{operator}` dropped"));
            self.replace(binary, right, format!("left of `{operator}` dropped"));
        }
    }

    fn call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        let other = SWAPPED.iter().find_map(|&(a, b)| if name == a { Some(b) } else { (name == b).then_some(a) });
        if let Some(other) = other {
            let (whole, method) = (self.range(call), self.range(&call.method));
            let instead = format!("{}{other}{}", &self.text[whole.start..method.start], &self.text[method.end..whole.end]);
            self.replace(call, instead, format!("`{name}` to `{other}`"));
        }
    }

    fn range_end(&mut self, range: &ExprRange) {
        let Some(end) = &range.end else { return };
        let source = self.source(end).to_owned();
        match range.limits {
            RangeLimits::HalfOpen(_) => self.replace(end, format!("({source}) + 1"), "`..` to `..=`"),
            RangeLimits::Closed(_) => self.replace(end, format!("({source}) - 1"), "`..=` to `..`"),
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        let Stmt::Expr(expression, Some(_)) = statement else { return };
        let called = if let Expr::Try(tried) = expression { &*tried.expr } else { expression };
        let what = match called {
            Expr::MethodCall(call) if call.method == "push_str" || SIZES.iter().any(|size| call.method == size) => return,
            Expr::MethodCall(call) => format!("call of `{}` dropped", call.method),
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => {
                    format!("call of `{}` dropped", path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default())
                }
                _ => return,
            },
            Expr::Assign(_) => "assignment dropped".to_owned(),
            _ => return,
        };
        self.add(self.range(statement), Form::Dropped, String::new(), what);
    }

    /// The body of a `macro_rules!`, parsed as items, if it can be: `$name` is a name there.
    fn macro_bodies(&mut self, item: &ItemMacro) {
        let groups =
            item.mac.tokens.clone().into_iter().filter_map(|token| if let TokenTree::Group(group) = token { Some(group) } else { None });
        let groups: Vec<_> = groups.collect();
        for body in groups.iter().skip(1).step_by(2).filter(|body| body.delimiter() == Delimiter::Brace) {
            let range = self.base + body.span_open().byte_range().end..self.base + body.span_close().byte_range().start;
            // Of the same length, so that places stay what they are.
            let parsed = self.text[range.clone()].replace('$', "_");
            let Ok(file) = syn::parse_file(&parsed) else { continue };
            let before = std::mem::replace(&mut self.base, range.start);
            self.visit_file(&file);
            self.base = before;
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Const(_) | Item::Static(_) | Item::Enum(_) | Item::Struct(_) | Item::Use(_) | Item::Type(_) => {}
            Item::Fn(function) => self.function(&function.attrs, &function.sig, &function.block),
            Item::Mod(module) if is_of_tests(&module.attrs) => {}
            Item::Macro(item) if item.mac.path.is_ident("macro_rules") => {
                let name = item.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                self.within(name, |finder| finder.macro_bodies(item));
            }
            Item::Trait(item) => self.within(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item)),
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        let shown =
            item.trait_.as_ref().and_then(|(path, _)| path.segments.last()).is_some_and(|last| SHOWN.iter().any(|of| last.ident == of));
        if !shown && !is_of_tests(&item.attrs) {
            let name = match &*item.self_ty {
                Type::Path(of) => of.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
                of => self.source(of).to_owned(),
            };
            self.within(name, |finder| visit::visit_item_impl(finder, item));
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.attrs, &function.sig, block);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_attribute(&mut self, _: &'a Attribute) {}
    fn visit_type(&mut self, _: &'a Type) {}
    fn visit_variant(&mut self, _: &'a Variant) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'a AngleBracketedGenericArguments) {}
    fn visit_pat(&mut self, _: &'a Pat) {}

    fn visit_arm(&mut self, arm: &'a Arm) {
        if let Pat::Guard(guarded) = &arm.pat {
            self.negate(&guarded.guard, "match");
            self.visit_expr(&guarded.guard);
        }
        self.visit_expr(&arm.body);
    }

    fn visit_stmt(&mut self, statement: &'a Stmt) {
        self.statement(statement);
        visit::visit_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        match expression {
            Expr::Lit(literal) => self.literal(&literal.lit),
            Expr::Binary(binary) => self.binary(binary),
            Expr::MethodCall(call) => self.call(call),
            Expr::Range(range) => self.range_end(range),
            Expr::If(of) => self.negate(&of.cond, "if"),
            Expr::While(of) => self.negate(&of.cond, "while"),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                self.replace(unary, self.source(&unary.expr).to_owned(), "`!` dropped");
            }
            Expr::Macro(of) if of.mac.path.is_ident("matches") => self.replace(of, format!("!{}", self.source(of)), "`matches!` negated"),
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Const(_) => return,
            _ => {}
        }
        match expression {
            Expr::MethodCall(call) if SIZES.iter().any(|size| call.method == size) => self.visit_expr(&call.receiver),
            Expr::Call(call) if SIZES.iter().any(|size| self.source(&call.func).ends_with(size)) => {}
            _ => visit::visit_expr(self, expression),
        }
    }
}

/// Whether a condition binds names, as `let` does in a chain.
fn binds(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => matches!(binary.op, BinOp::And(_)) && (binds(&binary.left) || binds(&binary.right)),
        _ => false,
    }
}

fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().segments.last().is_some_and(|last| last.ident == "test" || last.ident == "rstest")
            || attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|of| of == "test")
    })
}

/// How often the same mutation comes before, in the order of the file: what tells those apart that are alike.
pub(super) fn occurrences(mutations: &[Mutation]) -> Vec<usize> {
    let mut seen: HashMap<(&str, &str, &str), usize> = HashMap::new();
    let nth = |mutation| {
        let Mutation { function, change, text, .. }: &Mutation = mutation;
        let count = seen.entry((function, change, text)).or_default();
        *count += 1;
        *count - 1
    };
    mutations.iter().map(nth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mutants of a snippet: what is changed, and the snippet with the change.
    fn mutants(text: &str) -> Vec<(String, String)> {
        let apply = |mutation: Mutation| {
            let Range { start, end } = mutation.range;
            (mutation.change, format!("{}{}{}", &text[..start], mutation.instead, &text[end..]))
        };
        mutations(text).unwrap().into_iter().map(apply).collect()
    }

    fn changes(text: &str) -> Vec<String> {
        mutants(text).into_iter().map(|(change, _)| change).collect()
    }

    #[test]
    fn comparisons_become_neighbours() {
        assert_eq!(
            mutants("fn f(a: u8, b: u8) -> u8 { g(a < b) }"),
            [
                ("`<` to `<=`".into(), "fn f(a: u8, b: u8) -> u8 { g((a) <= (b)) }".to_owned()),
                ("`<` to `>`".into(), "fn f(a: u8, b: u8) -> u8 { g((a) > (b)) }".to_owned()),
            ]
        );
    }

    #[test]
    fn conditions_are_negated() {
        let text = "fn f(a: bool, b: u8) -> u8 { if a { g() } else { match b { _ if a => h(), _ => i() } } }";
        assert_eq!(changes(text), ["condition of `if` negated", "condition of `match` negated"]);
        assert!(mutants(text)[1].1.contains("_ if !(a) =>"));
    }

    #[test]
    fn bound_names_stay_bound() {
        assert_eq!(changes("fn f(a: Option<u8>, b: bool) -> u8 { if let Some(a) = a && b { g(a) } else { h() } }"), [""; 0]);
    }

    #[test]
    fn sides_of_connectives_are_dropped() {
        let found = mutants("fn f(a: bool, b: bool) -> u8 { g(a && !b) }");
        let changes: Vec<&str> = found.iter().map(|(change, _)| &**change).collect();
        assert_eq!(changes, ["`&&` to `||`", "right of `&&` dropped", "left of `&&` dropped", "`!` dropped"]);
        assert!(found[2].1.ends_with("{ g(!b) }"));
    }

    #[test]
    fn statements_are_dropped() {
        let text = "fn f(a: &mut Vec<u8>) -> u8 { a.push(b); c()?; d = e; a.reserve(7); write!(x, \"1\"); g(a) }";
        assert_eq!(changes(text), ["call of `push` dropped", "call of `c` dropped", "assignment dropped"]);
        assert!(mutants(text)[0].1.contains("{  c()?;"));
    }

    #[test]
    fn returns_come_early() {
        assert_eq!(changes("fn f() -> bool { a() }"), ["returns true at once", "returns false at once"]);
        assert_eq!(changes("fn f() -> Option<u8> { a() }"), ["returns None at once"]);
        assert_eq!(mutants("fn f() { a() }"), [("returns at once".into(), "fn f() {return; a() }".into())]);
    }

    #[test]
    fn numbers_move_by_one() {
        assert_eq!(
            changes("fn f() -> u8 { g(0, 1, 3, 0x10u8) }"),
            ["0 to 1", "1 to 2", "1 to 0", "3 to 4", "3 to 2", "16 to 17", "16 to 0", "16 to 15"]
        );
        assert!(mutants("fn f() -> u8 { g(7u8) }")[0].1.contains("g(8u8)"));
        assert_eq!(changes("fn f() -> u8 { g(0.0, 0.5) }"), ["0.0 to 1.0", "0.5 to 1.0"]);
    }

    #[test]
    fn ranges_end_elsewhere() {
        assert_eq!(mutants("fn f(n: u8) -> u8 { g(a..n) }"), [("`..` to `..=`".into(), "fn f(n: u8) -> u8 { g(a..(n) + 1) }".into())]);
        assert_eq!(changes("fn f(n: u8) -> u8 { g(a..=n) }"), ["`..=` to `..`"]);
    }

    #[test]
    fn methods_are_swapped() {
        let text = "fn f(a: u8) -> u8 { a.min(b).max(c) }";
        assert_eq!(changes(text), ["`min` to `max`", "`max` to `min`"]);
        assert!(mutants(text)[1].1.contains("a.min(b).min(c)"));
    }

    #[test]
    fn constants_and_tests_stay() {
        for text in [
            "const A: u8 = 1 + 2; static B: [u8; 4] = [0; 4]; enum C { D = 1 }",
            "const fn f(a: u8) -> bool { a < 3 }",
            "#[cfg(test)] mod tests { fn f() { a(); } }",
            "#[test] fn f() { a(); }",
            "impl fmt::Display for A { fn fmt(&self) -> R { if a { b } else { c } } }",
            "fn f() -> String { if a { b } else { c } }",
            "fn f(a: u8) -> u8 { match a { 1 | 2..=3 => b, _ => c } }",
            "fn f() -> u8 { assert!(a < 3); debug_assert_eq!(a + 1, b); g::<4>([a; 5]) }",
            "fn f() -> u8 { Vec::with_capacity(a + 1) }",
        ] {
            assert_eq!(changes(text), [""; 0], "{text}");
        }
    }

    /// If this fails, a test or a comment that is added makes the record stale, or a change of the code does not.
    #[test]
    fn code_is_without_comments_tests_and_imports() {
        let text = "//! A file.\n/// A function.\nfn f(a: u8) -> u8 {\n    a + 1 // Why.\n}\n#[cfg(test)]\nmod tests { fn g() {} }\n";
        let of = |text: &str| code(text).unwrap();
        assert_eq!(of(text), of("fn f(a: u8) -> u8 { a + 1 }"));
        assert_eq!(of(text), of(&text.replace("A function.", "Another.").replace("fn g() {}", "fn h() {}")));
        assert_ne!(of(text), of(&text.replace("a + 1", "a + 2")));
        assert_eq!(of("use a::b;\nfn f() {}"), of("use c::b;\nfn f() {}"));
        assert_ne!(of("#[inline]\nfn f() {}"), of("fn f() {}"));
    }

    #[test]
    fn modules_of_tests_are_named() {
        let text = "mod a; #[cfg(test)] mod b; #[cfg(test)] mod c { fn f() {} }";
        assert_eq!(modules_of_tests(text).unwrap(), ["b"]);
    }

    #[test]
    fn macro_bodies_are_mutated() {
        let text = "macro_rules! m { ($t:ty, $n:expr) => { impl $t { fn f(a: $t) -> u8 { g(a & $n) } } }; }";
        let found = mutants(text);
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("g((a) | ($n))"), "{}", found[0].1);
        assert_eq!(mutations(text).unwrap()[0].function, "m::_t::f");
    }

    #[test]
    fn alike_mutants_are_told_apart() {
        let found = mutations("impl A { fn f(a: u8) -> u8 { g(a & b, a & b) } }").unwrap();
        assert_eq!(occurrences(&found), [0, 1]);
        assert_eq!((&*found[0].function, found[0].line, &*found[0].text), ("A::f", 1, "a & b"));
    }
}
