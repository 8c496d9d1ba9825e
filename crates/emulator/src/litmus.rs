//! Litmus tests: files of PTX whose first lines say what they show, how they are launched and what is found (docs/emulator/litmus.md has all of them).
//!
//! A line of `// KEY: VALUE` for each thing that is said:
//!
//! | key | value |
//! |---|---|
//! | `launch` | `[RANK] BLOCKS x THREADS KERNEL`, again for each launch, one after the other; rank 0 where none is said |
//! | `ISA` | the sections that it is about |
//! | `expect` | what is found of races, over all schedules, again for each |
//! | `fault` | what stops it |
//! | `hangs` | where, or nothing: it may hang |
//! | `map` | `COLUMNSxROWS in boxes of COLUMNSxROWS`: the last parameter is a tensor map of the words of `data` |
//!
//! Kernels have two parameters before that, addresses of `data` and of `flag`, [`BYTES`] each, zeros at first.

/// Bytes of `data`, and of `flag`.
pub const BYTES: u64 = 1024;

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Litmus {
    /// The first line: what it does.
    pub shows: String,
    /// Sections of the ISA.
    pub sections: Vec<String>,
    /// Its launches, one after the other.
    pub launches: Vec<Launch>,
    /// What is found of races.
    pub expected: Vec<String>,
    /// What stops it.
    pub fault: Option<String>,
    /// It may hang.
    pub hangs: bool,
    /// Of a tensor map over `data`, extents and box along two dimensions, in words.
    pub map: Option<[u64; 4]>,
}

/// One launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The rank that launches it.
    pub rank: usize,
    /// Blocks, along one dimension.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// The entry point.
    pub kernel: String,
}

/// Why the first lines of a file are not those of a litmus test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LitmusError {
    /// The first line is no comment.
    #[error("the first line does not say what it shows")]
    NoPurpose,
    /// Nothing is launched.
    #[error("no line is `// launch: [RANK] BLOCKS x THREADS KERNEL`")]
    NoLaunch,
    /// A launch that cannot be read.
    #[error("// launch: {line}: expected [RANK] BLOCKS x THREADS KERNEL")]
    Launch {
        /// What the line says.
        line: String,
    },
    /// A tensor map that cannot be read.
    #[error("// map: {line}: expected COLUMNSxROWS in boxes of COLUMNSxROWS")]
    Map {
        /// What the line says.
        line: String,
    },
}

impl From<LitmusError> for String {
    fn from(error: LitmusError) -> String {
        error.to_string()
    }
}

impl Litmus {
    /// What the first lines of a file say.
    ///
    /// # Errors
    /// The line that says nothing that can be read, and what was expected.
    pub fn of(text: &str) -> Result<Litmus, LitmusError> {
        let comments = || text.lines().map_while(|line| line.strip_prefix("// "));
        let said =
            |key: &str| -> Vec<&str> { comments().filter_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim).collect() };
        let all = |key: &str| said(key).into_iter().map(str::to_owned).collect::<Vec<String>>();
        let shows = comments().next().ok_or(LitmusError::NoPurpose)?;
        let launches: Vec<Launch> = said("launch").into_iter().map(launch).collect::<Result<_, _>>()?;
        if launches.is_empty() {
            return Err(LitmusError::NoLaunch);
        }
        let map = said("map").first().map(|line| {
            let numbers: Vec<u64> = line.split(['x', ' ']).filter_map(|word| word.parse().ok()).collect();
            numbers.try_into().map_err(|_| LitmusError::Map { line: line.to_string() })
        });
        Ok(Litmus {
            shows: shows.to_owned(),
            sections: all("ISA"),
            launches,
            expected: all("expect"),
            fault: all("fault").into_iter().next(),
            hangs: comments().any(|line| line.starts_with("hangs")),
            map: map.transpose()?,
        })
    }

    /// Ranks that take part.
    pub fn ranks(&self) -> usize {
        self.launches.iter().map(|launch| launch.rank + 1).max().unwrap_or(0)
    }
}

fn launch(line: &str) -> Result<Launch, LitmusError> {
    let wrong = || LitmusError::Launch { line: line.to_owned() };
    let words: Vec<&str> = line.split_whitespace().collect();
    let (rank, [blocks, "x", threads, kernel]) = (match words.as_slice() {
        [rank, rest @ ..] if rest.len() == 4 => (rank.parse().map_err(|_| wrong())?, rest),
        rest => (0, rest),
    }) else {
        return Err(wrong());
    };
    let number = |word: &str| word.parse().map_err(|_| wrong());
    Ok(Launch { rank, blocks: number(blocks)?, threads: number(threads)?, kernel: (*kernel).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_is() {
        let text = "// Shows.\n// ISA: 9.7\n// launch: 2 x 32 k0\n// launch: 1 1 x 64 k1\n// hangs\n// map: 8x4 in boxes of 4x2\n.version 9.0\n// fault: no\n";
        let litmus = Litmus::of(text).unwrap();
        let launch = |rank, blocks, threads, kernel: &str| Launch { rank, blocks, threads, kernel: kernel.into() };
        assert_eq!(litmus.launches, [launch(0, 2, 32, "k0"), launch(1, 1, 64, "k1")]);
        assert_eq!((litmus.ranks(), litmus.hangs, litmus.map, litmus.fault), (2, true, Some([8, 4, 4, 2]), None));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let error = |text| Litmus::of(text).unwrap_err().to_string();
        assert!(error(".version 9.0").contains("first line"));
        assert!(error("// Shows.\n").contains("launch"));
        assert!(error("// Shows.\n// launch: 1 by 32 k\n").contains("1 by 32 k: expected [RANK]"));
        assert!(error("// Shows.\n// launch: 1 x 32 k\n// map: 8x4\n").contains("8x4: expected COLUMNSxROWS"));
    }
}
