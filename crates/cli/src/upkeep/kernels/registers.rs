//! What the assembler says of every kernel: registers and spills, which decide how many blocks fit and how fast they run.

use std::{fs, path::Path, process::ExitCode};

use anyhow::Context;
use passmuster_harness::conformance::report::table;
use xshell::{Shell, cmd};

use super::Product;

#[derive(Debug, Default, PartialEq)]
struct Entry {
    name: String,
    registers: u32,
    spilled_bytes: u32,
}

/// Prints a line for every entry of every product, and assembles them all for Hopper by the way.
pub(super) fn print(sh: &Shell, root: &Path, ptxas: &Path, products: &[Product]) -> anyhow::Result<ExitCode> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut total = 0;
    for product in products {
        let path = root.join(&product.path);
        let bytes = fs::metadata(&path).with_context(|| format!("cannot read {}", product.path))?.len();
        total += bytes;
        let architecture = if product.unit.target.ends_with('a') { "sm_90a" } else { "sm_90" };
        let output = cmd!(sh, "{ptxas} -v -arch={architecture} -o /dev/null {path}").quiet().ignore_status().output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            anyhow::bail!("ptxas refuses {}: {}", product.path, said.trim());
        }
        for (index, entry) in parse(&said).into_iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            rows.push(vec![
                once(product.path.clone()),
                entry.name,
                entry.registers.to_string(),
                entry.spilled_bytes.to_string(),
                once(bytes.to_string()),
            ]);
        }
    }
    println!("{}", table::aligned(&["file", "entry", "registers", "spilled bytes", "PTX bytes"], 2, &rows));
    println!("{} files, {total} bytes of PTX", products.len());
    Ok(ExitCode::SUCCESS)
}

/// Entries in the order of `ptxas -v`, sorted by name: the assembler's own order is not the file's.
fn parse(said: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entries.push(Entry { name: rest.split('\'').next().unwrap_or_default().into(), ..Entry::default() });
        }
        let Some(entry) = entries.last_mut() else { continue };
        if line.contains("bytes spill stores") {
            let numbers: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            entry.spilled_bytes = numbers.iter().skip(1).sum();
        } else if let Some((_, rest)) = line.split_once("Used ") {
            entry.registers = rest.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default();
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_ptxas_says() {
        let said = "ptxas info    : 0 bytes gmem\n\
                    ptxas info    : Compiling entry function 'b_sum' for 'sm_90'\n\
                    ptxas info    : Function properties for b_sum\n    \
                    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                    ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size\n\
                    ptxas info    : Compiling entry function 'a_sum' for 'sm_90'\n\
                    ptxas info    : Used 32 registers, used 1 barriers\n";
        let entry = |name: &str, registers, spilled_bytes| Entry { name: name.into(), registers, spilled_bytes };
        assert_eq!(parse(said), [entry("a_sum", 32, 0), entry("b_sum", 40, 20)]);
    }
}
