//! Soak: rounds of random scripts, one after the other on one machine. A round opens groups, which share ranks, runs scripts in which their calls come in a
//! drawn order, and closes them again. Every call is checked against its contract.
//!
//! A round is a function of what the soak is of and of its number, so that it can be run again by itself: [`Round`] is written and read as a token.
//!
//! ```
//! use passmuster_harness::{algorithms::Registry, conformance::soak::{Round, Soak}};
//!
//! let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
//! let soak = Soak { seed: 7, worlds: vec![2, 3], bytes: 4096, multicast: false };
//! let round = Round::draw(&registry, soak, 12);
//! assert_eq!(round.to_string(), "soak:seed=7:round=12:worlds=2,3:bytes=4096");
//! assert_eq!(Round::read(&registry, &round.to_string()), Ok(round));
//! ```

mod draw;

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use super::{
    collective_case::{CollectiveCase, Item},
    runner::{self, Settings},
    scenario::{self, Options, Scenario},
    verdict::{Status, Verdict},
};
use passmuster_emulator::choice::Choice;
use passmuster_plan::{
    algorithms::Registry,
    machine::{Machine, MachineError, Waived},
    modules::fnv1a64,
    plan::{MAX_RANKS, Script, Step},
};

/// What a token starts with.
const TOKEN: &str = "soak";

/// What the rounds of a soak are drawn from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Soak {
    /// The seed.
    pub seed: u64,
    /// Ranks that a group may have; at least one number, none of them zero.
    pub worlds: Vec<u32>,
    /// The most bytes of one rank's input or output, whichever is larger.
    pub bytes: u64,
    /// Whether algorithms that use multicast addresses take part.
    pub multicast: bool,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// What it was drawn from.
    pub soak: Soak,
    /// Which it is, from 0.
    pub number: u64,
    /// Sequences of calls, each on groups of its own.
    pub parts: Vec<Part>,
    /// The scripts, one after the other: the parts of each. Groups are opened when the first script of their part is about to run.
    pub runs: Vec<Vec<usize>>,
    /// What the order of steps is drawn from.
    order: u64,
}

/// What one sequence of calls is, and on which streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The calls.
    pub case: CollectiveCase,
    /// The stream of each of its groups. Groups may share one, also with those of other parts.
    pub streams: Vec<usize>,
}

/// Calls and the bytes of all ranks' inputs or outputs, whichever are more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Calls {
    /// How many, a launch of a graph as many as the graph has.
    pub calls: u64,
    /// Of how many bytes.
    pub bytes: u64,
}

impl Round {
    /// Round number `number` of a soak.
    ///
    /// # Panics
    /// Where the soak has no world, or one of no rank or of more than [`MAX_RANKS`].
    pub fn draw(registry: &Registry, soak: Soak, number: u64) -> Round {
        draw::round(registry, soak, number)
    }

    /// Draws the round of a [token](Token), from the algorithms of a registry.
    ///
    /// # Errors
    /// What was expected of the token.
    pub fn read(registry: &Registry, token: &str) -> Result<Round, String> {
        let Token { soak, number } = token.parse()?;
        Ok(Round::draw(registry, soak, number))
    }

    /// Groups that it opens.
    pub fn groups(&self) -> usize {
        self.parts.iter().map(|part| part.streams.len()).sum()
    }

    /// What it calls, by `COLLECTIVE/ALGORITHM`.
    pub fn calls(&self) -> BTreeMap<String, Calls> {
        let mut all: BTreeMap<String, Calls> = BTreeMap::new();
        for case in self.runs.iter().flatten().map(|&part| &self.parts[part].case) {
            for item in &case.calls {
                let (shots, times) = match item {
                    Item::Eager(shot) => (std::slice::from_ref(shot), 1),
                    Item::Graph { calls, replays } => (&calls[..], u64::from(*replays)),
                };
                for shot in shots {
                    let of = all.entry(format!("{}/{}", case.collective, shot.algorithm)).or_default();
                    of.calls += times;
                    of.bytes += times * case.shape(shot.count).larger() * case.dtype.size() * u64::from(case.world);
                }
            }
        }
        all
    }

    /// How long the whole round may take where each of its scripts may take so long: as long again for what is around them.
    pub fn deadline(&self, of_run: Duration) -> Duration {
        of_run * (self.runs.len() as u32 + 1)
    }

    /// How long each of its scripts may take where the round may take so long.
    pub fn of_run(&self, deadline: Duration) -> Duration {
        deadline / (self.runs.len() as u32 + 1)
    }

    /// Runs it, `settings.deadline` for each script. After a verdict of hang or crash the machine must not be used again. Findings name the part that they
    /// are about; the hash of outputs is of all calls whose order is declared.
    pub fn judge(&self, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
        runner::timed(self, || self.try_judge(machine, settings))
    }

    fn try_judge(&self, machine: &mut dyn Machine, settings: &Settings<'_>) -> Result<Verdict, MachineError> {
        machine.close_groups();
        let world = self.parts.iter().map(|part| part.case.world).max().unwrap_or(1);
        let waiting_blocks = machine.waiting_blocks(world as usize, self.groups());
        let mut open: Vec<Option<Open>> = self.parts.iter().map(|_| None).collect();
        let mut passed = Verdict::without_checks(self.to_string(), Status::Pass, "");
        let mut outputs = String::new();
        let mut first_group = 0;
        for (number, parts) in self.runs.iter().enumerate() {
            for &part in parts {
                if open[part].is_some() {
                    continue;
                }
                (settings.progress)("opening groups");
                let case = &self.parts[part].case;
                let options = Options { registry: settings.registry, waiting_blocks, shared_pads: settings.shared_pads };
                let scenario = scenario::build(case, &options).map_err(|reason| MachineError::NotSupported { reason })?;
                machine.check_budget(case.elements())?;
                for buffers in &scenario.groups {
                    machine.open_nodes(case.world as usize, case.nodes as usize, buffers)?;
                }
                let groups = scenario.groups.len();
                open[part] = Some(Open { scenario, first_group });
                first_group += groups;
            }
            (settings.progress)(&format!("running script {number} of {}", self.runs.len()));
            let ran = runner::run(machine, &self.script(number, &open), settings.deadline)?;
            (settings.progress)("checking");
            let mut verdict = passed.clone();
            for &part in parts {
                let Open { scenario, first_group } = open[part].as_ref().expect("it was opened above");
                let mut of_part = runner::check(&self.parts[part].case, scenario, machine, *first_group)?;
                outputs.extend(of_part.outputs.take());
                if !of_part.findings.is_empty() && verdict.findings.is_empty() {
                    verdict.status = of_part.status;
                    verdict.reason = format!("part {part}, script {number}: {}", of_part.reason);
                }
                let of_part =
                    of_part.findings.into_iter().map(|finding| super::Finding { case: Some(self.parts[part].case.to_string()), ..finding });
                verdict.findings.extend(of_part);
            }
            let verdict = ran.on(verdict);
            if verdict.status != Status::Pass {
                return Ok(verdict);
            }
            Waived::add(&mut passed.waived, verdict.waived);
        }
        passed.outputs = (!outputs.is_empty()).then(|| format!("{:016x}", fnv1a64(outputs.as_bytes())));
        Ok(passed)
    }

    /// Script number `run`: the steps of its parts, each part's in their order, between each other as it was drawn.
    fn script(&self, run: usize, open: &[Option<Open>]) -> Script {
        let mut choice = Choice::of_seed(self.order ^ run as u64);
        // Graphs keep their numbers from script to script, so that a machine may replay what it has captured.
        let graphs: Vec<usize> = (0..self.parts.len()).map(|part| part * GRAPHS).collect();
        let mut left: Vec<(usize, std::slice::Iter<'_, Step>)> =
            self.runs[run].iter().filter_map(|&part| Some((part, open[part].as_ref()?.scenario.script.steps.iter()))).collect();
        let mut steps = Vec::new();
        while !left.is_empty() {
            // Parts that have more steps left come more often, so that they end at about the same time.
            let all: u64 = left.iter().map(|(_, steps)| steps.len() as u64).sum();
            let mut at = choice.draw() % all.max(1);
            let next = left.iter().position(|(_, steps)| {
                let here = at < steps.len() as u64;
                at = at.saturating_sub(steps.len() as u64);
                here
            });
            let Some(next) = next else { break };
            let (part, of_part) = &mut left[next];
            let first_group = open[*part].as_ref().map_or(0, |open| open.first_group);
            let streams = &self.parts[*part].streams;
            steps.extend(of_part.next().map(|step| match step {
                Step::Enqueue { group, stream, plan } => {
                    Step::Enqueue { group: first_group + group, stream: streams[*stream], plan: plan.clone() }
                }
                Step::Capture { graph, group, plans } => {
                    Step::Capture { graph: graphs[*part] + graph, group: first_group + group, plans: plans.clone() }
                }
                Step::Replay { graph, stream } => Step::Replay { graph: graphs[*part] + graph, stream: streams[*stream] },
                other => other.clone(),
            }));
            left.retain(|(_, steps)| steps.len() > 0);
        }
        Script { steps }
    }
}

/// More graphs than a part has.
const GRAPHS: usize = 1 << 10;

/// A part whose groups are open: their numbers follow each other.
struct Open {
    scenario: Scenario,
    first_group: usize,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Soak { seed, worlds, bytes, multicast } = &self.soak;
        let worlds: Vec<String> = worlds.iter().map(u32::to_string).collect();
        write!(f, "{TOKEN}:seed={seed:x}:round={}:worlds={}:bytes={bytes}", self.number, worlds.join(","))?;
        if *multicast { f.write_str(":multicast") } else { Ok(()) }
    }
}

/// What names a round: from which soak, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What the round is drawn from.
    pub soak: Soak,
    /// Which it is, from 0.
    pub number: u64,
}

impl FromStr for Token {
    type Err = String;

    /// # Errors
    /// What was expected.
    fn from_str(text: &str) -> Result<Token, String> {
        let expected = || format!("`{text}` is no round: expected {TOKEN}:seed=HEX:round=K:worlds=LIST:bytes=N, and :multicast or nothing");
        let fields: Vec<&str> = text.split(':').collect();
        let (given, multicast) = match &fields[..] {
            [given @ .., "multicast"] => (given, true),
            given => (given, false),
        };
        let [TOKEN, seed, round, worlds, bytes] = given else { return Err(expected()) };
        let field = |field: &'static str, of: &'_ str| {
            of.strip_prefix(field).and_then(|of| of.strip_prefix('=')).map(str::to_owned).ok_or_else(expected)
        };
        let seed = u64::from_str_radix(&field("seed", seed)?, 16).map_err(|_| expected())?;
        let number = field("round", round)?.parse().map_err(|_| expected())?;
        let worlds = worlds_of(&field("worlds", worlds)?)?;
        let bytes = field("bytes", bytes)?.parse().map_err(|_| expected())?;
        Ok(Token { soak: Soak { seed, worlds, bytes, multicast }, number })
    }
}

/// Whether a text is the token of a round, rather than a case's id.
pub fn is_round(text: &str) -> bool {
    text.split(':').next() == Some(TOKEN)
}

/// Numbers of ranks: `2,3,8`, with spans such as `2-4` among them.
///
/// # Errors
/// What was expected.
pub fn worlds_of(text: &str) -> Result<Vec<u32>, String> {
    let expected = || format!("`{text}`: expected numbers of ranks from 1 to {MAX_RANKS}, as in 2,4 or 2-8");
    let mut worlds = Vec::new();
    for span in text.split(',') {
        let (first, last) = span.split_once('-').unwrap_or((span, span));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| expected())?, last.parse().map_err(|_| expected())?);
        if first == 0 || last as usize > MAX_RANKS || first > last {
            return Err(expected());
        }
        worlds.extend(first..=last);
    }
    Ok(worlds)
}

#[cfg(test)]
mod tests;
