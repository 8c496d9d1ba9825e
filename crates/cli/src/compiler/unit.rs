//! What the compiler gets of a kernel: its source and the project's own headers, all from memory and under their paths in the project.
//!
//! `#include "../common/reduce.cuh"` reaches the compiler as `#include "kernels/common/reduce.cuh"`, which names the header in memory. So
//! no path of this machine can reach the PTX, one hash covers all that was compiled, and a mutant's edited headers need no folder of
//! their own. (Headers pasted into the source would not do: a constant of the main source becomes a global in the PTX.)

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path},
};

use anyhow::{Context, bail};
#[cfg(feature = "kernels")]
use passmuster_kernels::HEADERS;
use passmuster_plan::modules::fnv1a64;

/// Where kernels run that do not ask for more: the lowest architecture with scoped acquire and release and `cvt.rn.bf16`.
const LOWEST_TARGET: &str = "compute_80";

/// What kernels elsewhere include passmuster's headers from: `#include "passmuster/reduce.cuh"`.
const OWN_HEADERS: &str = "passmuster/";

/// They come with our kernels.
#[cfg(not(feature = "kernels"))]
const HEADERS: &[(&str, &str)] = &[];

/// One translation unit.
pub(crate) struct Unit {
    /// What messages call it: its path under the root.
    pub(crate) name: String,
    /// The source.
    pub(crate) text: String,
    /// Headers of the project that it includes, directly or not: path under the root and text.
    pub(crate) headers: BTreeMap<String, String>,
    /// Options that the result depends on.
    pub(crate) options: Vec<String>,
    /// Virtual architecture: `compute_80`.
    pub(crate) target: String,
}

/// Where the files of a unit lie.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The folder under which the source has its path.
    pub(crate) root: &'a Path,
    /// The folder of passmuster's own headers; none for those of this binary.
    pub(crate) headers: Option<&'a Path>,
}

/// A text to be put in another's place in one file.
pub(crate) struct Edit<'a> {
    /// Path under the root.
    pub(crate) file: &'a str,
    /// Occurs exactly once in the file.
    pub(crate) find: &'a str,
    /// Takes its place.
    pub(crate) replace: &'a str,
}

impl Unit {
    /// Reads `source`, a path under the root, with edits of it or of the headers that it includes.
    ///
    /// # Errors
    /// A file that cannot be read; an edit of a file that is not part of the unit, or whose text is not there exactly once.
    pub(crate) fn read(root: &Path, source: &str, edits: &[Edit<'_>], defines: Vec<String>) -> anyhow::Result<Unit> {
        Unit::read_with(Origin { root, headers: None }, source, edits, defines)
    }

    /// The same, of files that lie there.
    ///
    /// # Errors
    /// As [`Unit::read`].
    pub(crate) fn read_with(origin: Origin<'_>, source: &str, edits: &[Edit<'_>], defines: Vec<String>) -> anyhow::Result<Unit> {
        let mut files = BTreeMap::new();
        collect(origin, source, edits, &mut files)?;
        for edit in edits {
            if !files.contains_key(edit.file) {
                let names: Vec<&str> = files.keys().map(String::as_str).collect();
                bail!("edits {}, which {source} does not include: it is made of {}", edit.file, names.join(", "));
            }
        }
        let text = files.remove(source).expect("the source was read first");
        let target = text.lines().find_map(|line| line.strip_prefix("// target: ")).unwrap_or(LOWEST_TARGET).trim().to_owned();
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".into()];
        options.extend(defines);
        Ok(Unit { name: source.into(), text, headers: files, options, target })
    }

    /// Hash of all that the result depends on, but for the compiler.
    pub(crate) fn hash(&self) -> u64 {
        let mut all = self.options.join("\0");
        for (name, text) in self.headers.iter().chain([(&self.name, &self.text)]) {
            all += &format!("\0{name}\0{text}");
        }
        fnv1a64(all.as_bytes())
    }
}

/// A file under the root; of passmuster's own headers, which go by `passmuster/NAME` elsewhere, the one of the tree or of this binary.
fn read(Origin { root, headers }: Origin<'_>, file: &str) -> anyhow::Result<String> {
    let text = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {file}"));
    let own = file.strip_prefix(OWN_HEADERS).filter(|_| !root.join(file).exists());
    match (own, headers) {
        (Some(name), Some(folder)) => text(&folder.join(name)),
        (Some(name), None) => {
            let embedded = HEADERS.iter().find(|(known, _)| *known == name);
            embedded.map_or_else(|| text(&root.join(file)), |(_, own)| Ok((*own).to_owned()))
        }
        (None, _) => text(&root.join(file)),
    }
}

/// Adds `file` and all that it includes to `files`, edited, and with the headers called by their paths under the root.
fn collect(origin: Origin<'_>, file: &str, edits: &[Edit<'_>], files: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    let mut source = read(origin, file)?;
    for edit in edits.iter().filter(|edit| edit.file == file) {
        match source.matches(edit.find).count() {
            1 => source = source.replacen(edit.find, edit.replace, 1),
            count => bail!("this must be exactly once in {file}, but is there {count} times: `{}`", edit.find),
        }
    }
    let mut headers = Vec::new();
    let mut text = String::with_capacity(source.len());
    for line in source.lines() {
        match line.trim().strip_prefix("#include \"").and_then(|rest| rest.split_once('"')) {
            Some((name, rest)) => {
                let header = resolve(file, name);
                text += &format!("#include \"{header}\"{rest}\n");
                headers.push(header);
            }
            None => {
                text += line;
                text.push('\n');
            }
        }
    }
    files.insert(file.to_owned(), text);
    for header in headers {
        if !files.contains_key(&header) {
            collect(origin, &header, edits, files).with_context(|| format!("included by {file}"))?;
        }
    }
    Ok(())
}

/// The path under the root, or from it (`../common/any.cuh`), of what `file` includes as `name`.
fn resolve(file: &str, name: &str) -> String {
    let mut resolved = Path::new(file).parent().map(Path::to_owned).unwrap_or_default();
    for part in Path::new(name).components() {
        match part {
            Component::ParentDir if matches!(resolved.components().next_back(), Some(Component::Normal(_))) => {
                resolved.pop();
            }
            Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is around it").to_owned()
    }

    fn read(edits: &[Edit<'_>]) -> anyhow::Result<Unit> {
        Unit::read(&root(), "kernels/all_reduce/two_shot.cu", edits, Vec::new())
    }

    #[test]
    fn headers_go_by_their_paths_in_the_project_and_lines_keep_their_numbers() {
        let unit = read(&[]).unwrap();
        let headers: Vec<&str> = unit.headers.keys().map(String::as_str).collect();
        assert!(headers.contains(&"kernels/common/reduce.cuh") && headers.contains(&"kernels/common/types.cuh"), "{headers:?}");
        assert!(unit.text.contains("#include \"kernels/common/reduce.cuh\"\n"));
        let source = fs::read_to_string(root().join("kernels/all_reduce/two_shot.cu")).unwrap();
        assert_eq!(unit.text.lines().count(), source.lines().count(), "messages would name wrong lines");
    }

    /// If this fails, a kernel whose headers lie beside its folder, and not in it, does not compile.
    #[test]
    fn headers_may_lie_outside_the_folder_of_the_source() {
        let unit = Unit::read(&root().join("kernels/reduce"), "chain.cu", &[], Vec::new()).unwrap();
        let headers: Vec<&str> = unit.headers.keys().map(String::as_str).collect();
        assert!(headers.contains(&"chain.cuh") && headers.contains(&"../common/any.cuh"), "{headers:?}");
        assert_eq!(resolve("../common/any.cuh", "types.cuh"), "../common/types.cuh");
        assert_eq!(resolve("../common/any.cuh", "../../shared/a.cuh"), "../../shared/a.cuh");
    }

    #[test]
    fn edits_of_headers_change_the_hash_and_must_match_exactly_once() {
        let edit = |find| Edit { file: "kernels/common/signals.cuh", find, replace: "// gone" };
        let edited = read(&[edit("stall<SITE_ENTER>(sync);")]).unwrap();
        assert!(edited.headers["kernels/common/signals.cuh"].contains("// gone"));
        assert_ne!(edited.hash(), read(&[]).unwrap().hash());
        let message = |find| format!("{:#}", read(&[edit(find)]).err().expect("this edit is ambiguous"));
        assert!(message("no such text").contains("but is there 0 times: `no such text`"));
        assert!(message("u32").contains("kernels/common/signals.cuh, but is there"));
        let elsewhere = Edit { file: "kernels/all_reduce/one_shot.cu", find: "a", replace: "b" };
        assert!(format!("{:#}", read(&[elsewhere]).err().unwrap()).contains("which kernels/all_reduce/two_shot.cu does not include"));
    }
}
