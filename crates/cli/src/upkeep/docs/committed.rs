//! The records of fixtures/records/, and which of them a part of a document was made from.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
};

use anyhow::Context;
use passmuster_harness::conformance::report::{
    Record, RecordCase, Source, packed,
    provenance::{Freshness, comment, marked},
};
use passmuster_plan::algorithms::Registry;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::upkeep::records::FOLDER;

/// The committed records, each read once. It knows which were asked for.
pub(super) struct Committed {
    /// Documents are of passmuster's own kernels.
    pub(super) registry: Registry,
    folder: PathBuf,
    values: RefCell<BTreeMap<String, Rc<Value>>>,
    asked: RefCell<BTreeSet<String>>,
}

impl Committed {
    pub(super) fn new(root: &Path) -> Committed {
        Committed { registry: crate::built_in(), folder: root.join(FOLDER), values: RefCell::default(), asked: RefCell::default() }
    }

    /// The root of the project.
    pub(super) fn root(&self) -> &Path {
        self.folder.ancestors().nth(Path::new(FOLDER).components().count()).expect("the folder lies below it")
    }

    /// A record, by its name without `.json`.
    ///
    /// # Errors
    /// There is no such record, or it is no JSON.
    pub(super) fn value(&self, name: &str) -> anyhow::Result<Rc<Value>> {
        self.asked.borrow_mut().insert(name.to_owned());
        if let Some(value) = self.values.borrow().get(name) {
            return Ok(value.clone());
        }
        let text = packed::committed(&self.folder, name).with_context(|| format!("cannot read the record {name} in {FOLDER}"))?;
        let value: Rc<Value> = Rc::new(serde_json::from_str(&text).with_context(|| format!("{name} is no record"))?);
        self.values.borrow_mut().insert(name.to_owned(), value.clone());
        Ok(value)
    }

    /// A record of cases of a kind.
    ///
    /// # Errors
    /// There is no such record, or it has cases of another kind.
    pub(super) fn record<C: RecordCase + DeserializeOwned>(&self, name: &str) -> anyhow::Result<Record<C>> {
        Record::deserialize(&*self.value(name)?).with_context(|| format!("{name}.json is no record that this version reads"))
    }

    /// What is made, after a comment that names the records that were read for it and the kernels that have changed since.
    pub(super) fn quoted(&self, make: impl FnOnce(&Committed) -> anyhow::Result<String>) -> anyhow::Result<String> {
        self.asked.borrow_mut().clear();
        let text = make(self)?;
        let names = self.asked.take();
        if names.is_empty() {
            return Ok(text);
        }
        let changed: BTreeMap<String, Vec<String>> =
            names.iter().map(|name| Ok((name.clone(), self.changed(name)?))).collect::<anyhow::Result<_>>()?;
        // A table needs an empty line before it.
        let between = if text.starts_with('|') { "\n" } else { "" };
        Ok(marked(&format!("{}\n{between}{text}", comment(&names)), &changed))
    }

    /// The kernels that have changed since a record was made.
    fn changed(&self, name: &str) -> anyhow::Result<Vec<String>> {
        let value = self.value(name)?;
        let source = Source::deserialize(&value["source"]).with_context(|| format!("{name}.json does not say what was tested"))?;
        Ok(Freshness::of(value["kind"].as_str().unwrap_or_default(), &source, &self.registry.library()).changed().to_vec())
    }
}

/// The cases of a record as they stand in it.
pub(super) fn cases(record: &Value) -> impl Iterator<Item = &Value> {
    record["cases"].as_array().into_iter().flatten()
}

/// A whole number of a JSON object.
///
/// # Errors
/// There is none of that name.
pub(super) fn number(object: &Value, key: &str) -> anyhow::Result<u64> {
    object[key].as_u64().with_context(|| format!("no number `{key}` in {object}"))
}

/// Words in lines of at most 150 characters.
pub(super) fn paragraph(text: &str) -> String {
    const WIDTH: usize = 150;
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&std::mem::take(&mut line));
            lines.push('\n');
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

/// The geometric mean and the least of ratios.
pub(super) fn mean_and_least(ratios: &[f64]) -> (f64, f64) {
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    (mean, ratios.iter().copied().fold(f64::INFINITY, f64::min))
}

/// Bytes, as the first column of tables has them.
pub(super) fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}

/// Whether a contender is NCCL's or PyTorch's.
pub(super) fn is_peer(name: &str) -> bool {
    name.starts_with("nccl_") || name.starts_with("torch_")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// If this fails, a part does not say what it was made from, or that the kernels are no longer those.
    #[test]
    fn a_part_names_its_records_and_what_has_changed_since() {
        let root = std::env::temp_dir().join(format!("passmuster-docs-{}", std::process::id()));
        fs::create_dir_all(root.join(FOLDER)).unwrap();
        let source = r#"{"commit": "0", "dirty": false, "ptx_hash": "", "modules": {"all_reduce/forgotten": "0"}}"#;
        fs::write(root.join(FOLDER).join("old.json"), format!(r#"{{"kind": "bench", "source": {source}, "seconds": 3}}"#)).unwrap();
        let committed = Committed::new(&root);
        let made = committed.quoted(|committed| Ok(format!("| {} s |\n", committed.value("old")?["seconds"])));
        let expected = "<!-- records: old -->\n*Kernels have changed since: `all_reduce/forgotten`.*\n\n| 3 s |\n";
        assert_eq!(made.unwrap(), expected);
        assert_eq!(committed.quoted(|_| Ok("of no record\n".into())).unwrap(), "of no record\n");
        let missing = committed.quoted(|committed| Ok(committed.value("new")?.to_string())).unwrap_err();
        assert_eq!(missing.to_string(), format!("cannot read the record new in {FOLDER}"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn lines_are_filled() {
        let words = vec!["word"; 40].join(" ");
        let filled = paragraph(&words);
        assert_eq!((filled.lines().count(), filled.split_whitespace().count()), (2, 40));
        assert!(filled.lines().all(|line| line.len() <= 150) && filled.lines().next().unwrap().len() > 145);
    }
}
