//! Cases: points of the test space, each with an id that reproduces it on one line.
//!
//! `all_reduce/two_shot:bf16,sum:w=8:n=1040:in_place:graph=3x5:inputs=probe:skew=r2+20us@end:seed=9f3c`
//!
//! Keys may come in any order; one that has its default is left out. `docs/reference/case-ids.md` has the grammar.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use super::inputs::{InputClass, Payload, Transform, mix};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, RegistryError, kit::MAX_BLOCKS},
    collective::{Collective, Counts, DType, ReduceOp, Shape},
    machine::Site,
    plan::{Departure, MAX_RANKS},
    words::expected,
};

/// One point of the test space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CollectiveCase {
    /// The collective under test.
    pub collective: Collective,
    /// The algorithm under test; for a sequence of calls, the one that reports count it under.
    pub algorithm: String,
    /// Type of the elements.
    pub dtype: DType,
    /// How they are combined.
    pub op: ReduceOp,
    /// Ranks.
    pub world: u32,
    /// Nodes that they are on, as many on each, in rank order: they reach each other's memory within one.
    pub nodes: u32,
    /// Elements of a slot of the call; 0 for a sequence, whose calls have counts of their own.
    pub count: u64,
    /// The root of a collective that has one; 0 otherwise, and for a sequence, whose calls have roots of their own.
    pub root: u32,
    /// Of an all-to-all-v, the seed of these; `count` is the longest that one may be.
    pub counts: Option<u64>,
    /// Elements between the start of a buffer and of its region.
    pub offset: u64,
    /// Whether the output takes the input's place.
    pub in_place: bool,
    /// Which inputs.
    pub inputs: InputClass,
    /// Calls captured into one graph and how often it is replayed.
    pub graph: Graph,
    /// A peer that makes the same call on the same inputs.
    pub peer: Option<String>,
    /// One rank that is late.
    pub skew: Option<Skew>,
    /// A sequence of calls in place of the standard script.
    pub calls: Vec<Item>,
    /// A fault to inject, after which the harness must name it.
    pub fault: Option<Fault>,
    /// Blocks of a rank that may wait for other ranks' blocks, where it is not for the machine to say.
    pub blocks: Option<u32>,
    /// What every 32-bit word of signals and of state that starts with zeros starts with: epochs about to wrap.
    pub start: u32,
    /// Seed of the inputs.
    pub seed: u64,
}

/// A captured graph: `calls` calls in it, replayed `replays` times with inputs changed in place between replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    /// Calls in the graph.
    pub calls: u32,
    /// Launches of the graph.
    pub replays: u32,
}

impl Default for Graph {
    /// An odd number of calls and an even one of launches: what double buffering gets wrong first.
    fn default() -> Graph {
        Graph { calls: 1, replays: 2 }
    }
}

/// One rank that is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skew {
    /// Which.
    pub rank: u32,
    /// By how much.
    pub microseconds: u32,
    /// Inside the kernel at this site, or on the host before it enqueues.
    pub site: Option<Site>,
}

/// A step of a sequence of calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    /// An eager call.
    Eager(CallSpec),
    /// Calls captured into one graph that is launched `replays` times, with fresh inputs each time.
    Graph {
        /// The captured calls.
        calls: Vec<CallSpec>,
        /// Launches.
        replays: u32,
    },
}

impl Item {
    /// Its calls.
    fn shots(&self) -> &[CallSpec] {
        match self {
            Item::Eager(shot) => std::slice::from_ref(shot),
            Item::Graph { calls, .. } => calls,
        }
    }

    /// Elements of a slot of all its calls together.
    fn elements(&self) -> u64 {
        let launches = if let Item::Graph { replays, .. } = self { u64::from(*replays) } else { 1 };
        self.shots().iter().map(|shot| shot.count).fold(0, u64::saturating_add).saturating_mul(launches)
    }

    /// The same, to be changed.
    pub(super) fn shots_mut(&mut self) -> &mut [CallSpec] {
        match self {
            Item::Eager(shot) => std::slice::from_mut(shot),
            Item::Graph { calls, .. } => calls,
        }
    }
}

/// One call of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallSpec {
    /// Algorithm.
    pub algorithm: String,
    /// Elements.
    pub count: u64,
    /// The root of a collective that has one; 0 otherwise.
    pub root: u32,
    /// Elements between the start of the buffer and of the region.
    pub offset: u64,
    /// Whether the output takes the input's place.
    pub in_place: bool,
    /// Which of the groups, all of the same ranks; each has a stream of its own.
    pub group: u32,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// This rank never enqueues the second call.
    Absent(u32),
    /// A kernel of this rank writes to an address that is not mapped.
    IllegalAddress(u32),
    /// The process of the ranks is killed while a call runs.
    Killed,
    /// The process of this rank ends, or says nothing any more. This and what follows is for ranks that are processes.
    Departs {
        /// Which rank.
        rank: u32,
        /// What becomes of it.
        how: Departure,
        /// In the middle of what.
        when: Moment,
    },
    /// The process of this rank ends before it has come to the others.
    LostAtStart(u32),
    /// This rank may share hardly any memory with the others.
    Capped(u32),
    /// The process of this rank says what is no message.
    Garbage(u32),
    /// This rank is about to make another call than the others.
    Other {
        /// Which rank.
        rank: u32,
        /// In what it is another.
        field: Field,
    },
    /// The port at which ranks are to come together is somebody else's.
    PortInUse,
    /// Signals start with what an aborted run may have left there. Of all ranks, wherever they are.
    Poisoned,
}

/// When a rank's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Moment {
    /// Before the first call.
    Start,
    /// Between the first call and the second.
    Between,
    /// In the second call, when it is enqueued.
    Call,
    /// When all its work is done.
    End,
}

impl Moment {
    /// All of them.
    pub const ALL: [Moment; 4] = [Moment::Start, Moment::Between, Moment::Call, Moment::End];

    /// What follows the rank in case ids.
    pub fn suffix(self) -> &'static str {
        match self {
            Moment::Start => ".start",
            Moment::Between => "",
            Moment::Call => ".call",
            Moment::End => ".end",
        }
    }
}

/// What ranks compare of a call before they make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// How many elements.
    Count,
    /// Of which type.
    DType,
    /// How they are combined.
    Op,
    /// From or to which rank.
    Root,
    /// Which call comes first.
    Order,
}

impl Field {
    /// All of them.
    pub const ALL: [Field; 5] = [Field::Count, Field::DType, Field::Op, Field::Root, Field::Order];

    /// Its name in case ids.
    pub fn name(self) -> &'static str {
        match self {
            Field::Count => "count",
            Field::DType => "dtype",
            Field::Op => "op",
            Field::Root => "root",
            Field::Order => "order",
        }
    }
}

/// Why a text is no case, or a case that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} in case id `{id}`")]
pub struct CaseError {
    id: String,
    problem: String,
}

impl CaseError {
    pub(super) fn new(id: &str, problem: String) -> CaseError {
        CaseError { id: id.into(), problem }
    }
}

/// What ids are made of: two names, two types, and pairs of a key and a value.
pub trait CaseId {
    /// Names and types: `all_reduce`, `two_shot`, `bf16` and `sum`.
    fn head(&self) -> [&str; 4];

    /// Keys and values in order, without those that have their defaults; of a flag, an empty value.
    fn fields(&self) -> Vec<(&str, String)>;

    /// What a key that the id leaves out stands for.
    fn default_of(&self, key: &str) -> &'static str;

    /// Writes the id.
    ///
    /// # Errors
    /// Those of the formatter.
    fn write_id(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [of, algorithm, dtype, other] = self.head();
        write!(f, "{of}/{algorithm}:{dtype},{other}")?;
        for (key, value) in self.fields() {
            if value.is_empty() { write!(f, ":{key}")? } else { write!(f, ":{key}={value}")? }
        }
        Ok(())
    }
}

/// What an id says: names and types, and pairs of a key and a value.
pub(super) type Parts<'i> = ([&'i str; 4], Vec<(&'i str, &'i str)>);

/// Names and types of an id, and its keys with their values, each once.
pub(super) fn pairs<'i>(id: &'i str, types_form: &str) -> Result<Parts<'i>, String> {
    let mut parts = id.split(':');
    let path = parts.next().unwrap_or_default();
    let (of, algorithm) = path.split_once('/').ok_or_else(|| format!("`{path}` is not COLLECTIVE/ALGORITHM"))?;
    let types = parts.next().ok_or_else(|| format!("no {types_form}"))?;
    let (dtype, other) = types.split_once(',').ok_or_else(|| format!("`{types}` is not {types_form}"))?;
    let pairs: Vec<(&str, &str)> = parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    for (at, (key, _)) in pairs.iter().enumerate() {
        if pairs[..at].iter().any(|(other, _)| other == key) {
            return Err(format!("`{key}` given twice"));
        }
    }
    Ok(([of, algorithm, dtype, other], pairs))
}

impl CollectiveCase {
    /// A case with every default: tagged inputs, rank 0 as root, no offset, out of place, seed 0.
    pub fn new(collective: Collective, algorithm: &str, dtype: DType, op: ReduceOp, world: u32, count: u64) -> CollectiveCase {
        CollectiveCase {
            collective,
            algorithm: algorithm.into(),
            dtype,
            op,
            world,
            nodes: 1,
            count,
            root: 0,
            counts: None,
            offset: 0,
            in_place: false,
            inputs: InputClass::Tagged,
            graph: Graph::default(),
            peer: None,
            skew: None,
            calls: Vec::new(),
            fault: None,
            blocks: None,
            start: 0,
            seed: 0,
        }
    }

    /// The algorithms that the case runs, the peer included, each once.
    ///
    /// # Errors
    /// An unknown algorithm, with the names there are.
    pub fn algorithms(&self, registry: &Registry) -> Result<Vec<Arc<dyn Algorithm>>, RegistryError> {
        let mut names: Vec<&str> = if self.calls.is_empty() { vec![&self.algorithm] } else { Vec::new() };
        names.extend(self.shots().map(|shot| shot.algorithm.as_str()));
        names.extend(self.peer.as_deref());
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| registry.find(self.collective, name)).collect()
    }

    /// Whether a registry has all the algorithms that the case names.
    ///
    /// # Errors
    /// An unknown algorithm, with the names there are.
    pub fn check_known(&self, registry: &Registry) -> Result<(), String> {
        self.algorithms(registry)?;
        registry.find(self.collective, &self.algorithm).map(drop).map_err(String::from)
    }

    /// Environment variables that the machine's process needs for this case.
    pub fn environment(&self, registry: &Registry) -> BTreeMap<&'static str, &'static str> {
        self.algorithms(registry).unwrap_or_default().iter().flat_map(|a| a.environment().iter().copied()).collect()
    }

    /// The inputs of its call of this number.
    pub fn payload(&self, call: u32) -> Payload {
        let CollectiveCase { inputs: class, dtype, world, seed, .. } = *self;
        Payload { class, dtype, world, seed, call, transform: Transform::None }
    }

    /// The bits of each rank's factor in pre-multiplied sums.
    pub fn factors(&self) -> Vec<u64> {
        (0..self.world).map(|rank| self.payload(0).factor(rank)).collect()
    }

    /// What a call of `count` elements a slot is about.
    pub fn shape(&self, count: u64) -> Shape {
        let counts = self.counts.map(|seed| Counts::new(self.world, |sender, receiver| part(seed, (sender, receiver), count)));
        Shape::new(self.collective, self.world, count).with_root(self.root).with_counts(counts)
    }

    /// All calls of a sequence.
    pub fn shots(&self) -> impl Iterator<Item = &CallSpec> {
        self.calls.iter().flat_map(Item::shots)
    }

    /// The count of its largest call.
    pub fn largest_count(&self) -> u64 {
        self.shots().map(|shot| shot.count).max().unwrap_or(self.count)
    }

    /// Elements of all ranks' inputs or outputs of its largest call, whichever are more.
    pub(super) fn elements(&self) -> u64 {
        self.shape(self.largest_count()).larger().saturating_mul(self.world.into())
    }

    /// The same of all its calls together, about: what its time on the emulator goes by.
    pub(super) fn elements_of_calls(&self) -> u64 {
        let counts: u64 = match self.calls.is_empty() {
            true => self.count.saturating_mul(EAGER_CALLS + u64::from(self.graph.calls) * u64::from(self.graph.replays)),
            false => self.calls.iter().map(Item::elements).fold(0, u64::saturating_add),
        };
        self.shape(1).larger().saturating_mul(self.world.into()).saturating_mul(counts)
    }

    /// Groups that the case opens.
    pub fn groups(&self) -> u32 {
        self.shots().map(|shot| shot.group + 1).max().unwrap_or(1)
    }

    fn check(&self) -> Result<(), String> {
        if self.world == 0 || self.world as usize > MAX_RANKS {
            return Err(format!("w={}: a group has 1 to {MAX_RANKS} ranks", self.world));
        }
        if self.nodes == 0 || !self.world.is_multiple_of(self.nodes) {
            return Err(format!("nodes={}: as many of the {} ranks are on each", self.nodes, self.world));
        }
        let ranks = [self.skew.map(|s| s.rank), self.fault.and_then(Fault::rank)];
        if let Some(rank) = ranks.into_iter().flatten().find(|&rank| rank >= self.world) {
            return Err(format!("rank {rank} of {}: ranks are 0 to {}", self.world, self.world - 1));
        }
        if !self.collective.operators().contains(&self.op) {
            let allowed: Vec<&str> = self.collective.operators().iter().map(|op| op.name()).collect();
            return Err(format!("operator {} of {}: expected one of {}", self.op, self.collective, allowed.join(", ")));
        }
        let roots = if self.collective.has_root() { self.world } else { 1 };
        if let Some(root) = self.shots().map(|shot| shot.root).chain([self.root]).find(|&root| root >= roots) {
            let allowed = if self.collective.has_root() { format!("roots are 0 to {}", roots - 1) } else { "it has no root".into() };
            return Err(format!("root {root} of {}: {allowed}", self.collective));
        }
        if self.blocks.is_some_and(|blocks| !(1..=MAX_BLOCKS).contains(&blocks)) {
            return Err(format!("blocks={}: 1 to {MAX_BLOCKS}", self.blocks.unwrap_or_default()));
        }
        if self.counts.is_some() && self.collective != Collective::AllToAll {
            return Err(format!("counts: {} takes no counts", self.collective));
        }
        if !self.collective.has_in_place() && (self.in_place || self.shots().any(|shot| shot.in_place)) {
            return Err(format!("in_place: {} has no call in place", self.collective));
        }
        Ok(())
    }
}

impl CaseId for CollectiveCase {
    fn head(&self) -> [&str; 4] {
        [self.collective.name(), &self.algorithm, self.dtype.name(), self.op.name()]
    }

    fn fields(&self) -> Vec<(&str, String)> {
        let mut fields = vec![("w", self.world.to_string())];
        if self.calls.is_empty() {
            fields.push(("n", self.count.to_string()));
        }
        let mut push = |key, given: bool, value: String| given.then(|| fields.push((key, value)));
        push("nodes", self.nodes != 1, self.nodes.to_string());
        push("root", self.root != 0, self.root.to_string());
        push("counts", self.counts.is_some(), format!("{:x}", self.counts.unwrap_or_default()));
        push("off", self.offset != 0, self.offset.to_string());
        push("in_place", self.in_place, String::new());
        push("graph", self.graph != Graph::default(), format!("{}x{}", self.graph.calls, self.graph.replays));
        push("inputs", self.inputs != InputClass::Tagged, self.inputs.to_string());
        push("peer", self.peer.is_some(), self.peer.clone().unwrap_or_default());
        push("skew", self.skew.is_some(), self.skew.map(|s| s.to_string()).unwrap_or_default());
        push("calls", !self.calls.is_empty(), self.calls.iter().map(Item::to_string).collect::<Vec<_>>().join("+"));
        push("fault", self.fault.is_some(), self.fault.map(|f| f.to_string()).unwrap_or_default());
        push("blocks", self.blocks.is_some(), self.blocks.unwrap_or_default().to_string());
        push("start", self.start != 0, format!("{:x}", self.start));
        push("seed", self.seed != 0, format!("{:x}", self.seed));
        fields
    }

    fn default_of(&self, key: &str) -> &'static str {
        match key {
            "root" | "off" | "start" | "seed" => "0",
            "nodes" => "1",
            "inputs" => InputClass::Tagged.name(),
            "graph" => "1x2",
            _ => "",
        }
    }
}

impl fmt::Display for CollectiveCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_id(f)
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}+{}us", self.rank, self.microseconds)?;
        self.site.map_or(Ok(()), |site| write!(f, "@{}", site.name()))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Eager(shot) => shot.fmt(f),
            Item::Graph { calls, replays } => {
                let calls: Vec<String> = calls.iter().map(CallSpec::to_string).collect();
                write!(f, "[{}]x{replays}", calls.join("+"))
            }
        }
    }
}

impl fmt::Display for CallSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.algorithm, self.count)?;
        if self.root != 0 {
            write!(f, ".root{}", self.root)?;
        }
        if self.offset != 0 {
            write!(f, ".off{}", self.offset)?;
        }
        if self.in_place {
            f.write_str(".in_place")?;
        }
        if self.group != 0 {
            write!(f, ".g{}", self.group)?;
        }
        Ok(())
    }
}

impl Fault {
    /// The rank that the fault befalls, where it is one rank's.
    pub fn rank(self) -> Option<u32> {
        match self {
            Fault::Absent(rank)
            | Fault::IllegalAddress(rank)
            | Fault::Departs { rank, .. }
            | Fault::LostAtStart(rank)
            | Fault::Capped(rank)
            | Fault::Garbage(rank)
            | Fault::Other { rank, .. } => Some(rank),
            Fault::Killed | Fault::PortInUse | Fault::Poisoned => None,
        }
    }

    /// Its name, with the rank of those that are one rank's left out: `killed@rRANK.end`.
    fn form(self) -> String {
        match self {
            Fault::Absent(_) => "absent@rRANK".into(),
            Fault::IllegalAddress(_) => "illegal_address@rRANK".into(),
            Fault::Killed => "killed".into(),
            Fault::Departs { how, when, .. } => format!("{}@rRANK{}", how.name(), when.suffix()),
            Fault::LostAtStart(_) => "lost_at_start@rRANK".into(),
            Fault::Capped(_) => "capped@rRANK".into(),
            Fault::Garbage(_) => "garbage@rRANK".into(),
            Fault::Other { field, .. } => format!("other_{}@rRANK", field.name()),
            Fault::PortInUse => "port_in_use".into(),
            Fault::Poisoned => "poisoned".into(),
        }
    }

    /// All of them, of this rank where they are one rank's.
    pub fn all(rank: u32) -> Vec<Fault> {
        let departs = |how| Moment::ALL.map(|when| Fault::Departs { rank, how, when });
        let mut all = vec![Fault::Absent(rank), Fault::IllegalAddress(rank), Fault::Killed];
        all.extend(Departure::OF_PROCESSES.into_iter().flat_map(departs));
        all.extend([Fault::LostAtStart(rank), Fault::Capped(rank), Fault::Garbage(rank)]);
        all.extend(Field::ALL.map(|field| Fault::Other { rank, field }));
        all.extend([Fault::PortInUse, Fault::Poisoned]);
        all
    }

    /// Whether it needs ranks that are processes of their own.
    pub fn is_of_processes(self) -> bool {
        !matches!(self, Fault::Absent(_) | Fault::IllegalAddress(_) | Fault::Killed | Fault::Poisoned)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.form().replace("RANK", &self.rank().unwrap_or_default().to_string()))
    }
}

/// The keys of an id, in the order in which they are written.
pub(super) const KEYS: [&str; 16] = [
    "w", "n", "nodes", "root", "counts", "off", "in_place", "graph", "inputs", "peer", "skew", "calls", "fault", "blocks", "start", "seed",
];

/// The most calls in one graph, launches of it, and groups.
/// Calls of a case that names none, beside those of its graph.
const EAGER_CALLS: u64 = 6;
const MOST_CALLS: u32 = 16;
const MOST_REPLAYS: u32 = 1000;
const MOST_GROUPS: u32 = 8;

impl FromStr for CollectiveCase {
    type Err = CaseError;

    fn from_str(id: &str) -> Result<CollectiveCase, CaseError> {
        parse(id).map_err(|problem| CaseError::new(id, problem))
    }
}

fn parse(id: &str) -> Result<CollectiveCase, String> {
    let ([collective, algorithm, dtype, op], pairs) = pairs(id, "DTYPE,OP")?;
    let mut case = CollectiveCase::new(collective.parse()?, algorithm, dtype.parse()?, op.parse()?, 0, 0);
    for &(key, value) in &pairs {
        match key {
            "w" => case.world = number(key, value)?,
            "n" => case.count = number(key, value)?,
            "nodes" => case.nodes = number(key, value)?,
            "root" => case.root = number(key, value)?,
            "counts" => case.counts = Some(hexadecimal(key, value)?),
            "off" => case.offset = number(key, value)?,
            "in_place" if value.is_empty() => case.in_place = true,
            "graph" => case.graph = graph(value)?,
            "inputs" => case.inputs = value.parse()?,
            "peer" => case.peer = Some(value.into()),
            "skew" => case.skew = Some(value.parse()?),
            "calls" => case.calls = split_outside_brackets(value).into_iter().map(item).collect::<Result<_, _>>()?,
            "fault" => case.fault = Some(value.parse()?),
            "blocks" => case.blocks = Some(number(key, value)?),
            "start" => {
                let start = hexadecimal(key, value)?;
                case.start = u32::try_from(start).map_err(|_| format!("start={value}: at most ffffffff"))?;
            }
            "seed" => case.seed = hexadecimal(key, value)?,
            _ => return Err(format!("unknown key `{key}`: {}", expected(key, &KEYS))),
        }
    }
    let given = |key| pairs.iter().any(|&(given, _)| given == key);
    if !given("w") {
        return Err("no world size (w=)".into());
    }
    if given("n") == given("calls") {
        return Err("exactly one of n= and calls= must be given".into());
    }
    case.check()?;
    Ok(case)
}

/// The elements of a part, up to `most`: of four, one has none, one has all, the others any number.
fn part(seed: u64, (sender, receiver): (u32, u32), most: u64) -> u64 {
    let drawn = mix(seed ^ mix(u64::from(sender) << 32 | u64::from(receiver)));
    match drawn >> 62 {
        0 => 0,
        1 => most,
        _ => ((u128::from(drawn << 2) * (u128::from(most) + 1)) >> 64) as u64,
    }
}

pub(super) fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value} is not a number that fits"))
}

pub(super) fn hexadecimal(key: &str, value: &str) -> Result<u64, String> {
    u64::from_str_radix(value, 16).map_err(|_| format!("{key}={value} is not hexadecimal"))
}

fn graph(value: &str) -> Result<Graph, String> {
    let (calls, replays) = value.split_once('x').ok_or_else(|| format!("graph={value} is not CALLSxREPLAYS"))?;
    let graph = Graph { calls: number("graph", calls)?, replays: number("graph", replays)? };
    check_graph(graph.calls as usize, graph.replays, value)?;
    Ok(graph)
}

fn check_graph(calls: usize, replays: u32, text: &str) -> Result<(), String> {
    if calls == 0 || calls > MOST_CALLS as usize || replays > MOST_REPLAYS {
        return Err(format!("`{text}`: a graph has 1 to {MOST_CALLS} calls and at most {MOST_REPLAYS} replays"));
    }
    Ok(())
}

impl FromStr for Skew {
    type Err = String;

    fn from_str(value: &str) -> Result<Skew, String> {
        let form = || format!("skew={value} is not rRANK+MICROSECONDSus or rRANK+MICROSECONDSus@SITE");
        let (late, site) = value.split_once('@').map_or((value, None), |(late, site)| (late, Some(site)));
        let (rank, time) = late.strip_prefix('r').and_then(|l| l.split_once('+')).ok_or_else(form)?;
        let microseconds = number("skew", time.strip_suffix("us").ok_or_else(form)?)?;
        let site = site
            .map(|name| {
                Site::ALL
                    .into_iter()
                    .find(|s| s.name() == name)
                    .ok_or_else(|| format!("unknown site `{name}`: expected enter, start, end or leave"))
            })
            .transpose()?;
        Ok(Skew { rank: number("skew", rank)?, microseconds, site })
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(value: &str) -> Result<Fault, String> {
        let rank = match value.split_once("@r") {
            Some((_, rest)) => number("fault", rest.split('.').next().unwrap_or_default())?,
            None => 0,
        };
        Fault::all(rank).into_iter().find(|fault| fault.to_string() == value).ok_or_else(|| {
            let allowed: Vec<String> = Fault::all(0).into_iter().map(Fault::form).collect();
            format!("unknown fault `{value}`: {}", expected(value, &allowed))
        })
    }
}

fn split_outside_brackets(value: &str) -> Vec<&str> {
    let mut inside = false;
    value
        .split(|c| {
            inside = if c == '[' {
                true
            } else if c == ']' {
                false
            } else {
                inside
            };
            c == '+' && !inside
        })
        .collect()
}

fn item(text: &str) -> Result<Item, String> {
    let Some(rest) = text.strip_prefix('[') else { return Ok(Item::Eager(shot(text)?)) };
    let (calls, replays) = rest.split_once("]x").ok_or_else(|| format!("`{text}` is not [CALL+CALL]xREPLAYS"))?;
    let (calls, replays) = (calls.split('+').map(shot).collect::<Result<Vec<_>, _>>()?, number("calls", replays)?);
    check_graph(calls.len(), replays, text)?;
    if calls.iter().any(|shot| shot.group != calls[0].group) {
        return Err(format!("`{text}`: the calls of one graph are of one group"));
    }
    Ok(Item::Graph { calls, replays })
}

fn shot(text: &str) -> Result<CallSpec, String> {
    let mut parts = text.split('.');
    let algorithm = parts.next().unwrap_or_default().to_owned();
    let count = number("calls", parts.next().ok_or_else(|| format!("`{text}` is not ALGORITHM.COUNT"))?)?;
    let mut shot = CallSpec { algorithm, count, root: 0, offset: 0, in_place: false, group: 0 };
    for part in parts {
        match part {
            "in_place" => shot.in_place = true,
            _ => match (part.strip_prefix("root"), part.strip_prefix("off"), part.strip_prefix('g')) {
                (Some(root), ..) => shot.root = number("root", root)?,
                (_, Some(offset), _) => shot.offset = number("off", offset)?,
                (.., Some(group)) => {
                    shot.group = number("g", group)?;
                    if shot.group >= MOST_GROUPS {
                        return Err(format!("`.{part}` in call `{text}`: groups are 0 to {}", MOST_GROUPS - 1));
                    }
                }
                _ => return Err(format!("unknown `.{part}` in call `{text}`: expected .rootN, .offN, .in_place or .gN")),
            },
        }
    }
    Ok(shot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{REGISTRY, conformance::Case};
    use rstest::rstest;

    #[rstest]
    #[case("all_reduce/two_shot:bf16,sum:w=8:n=1040")]
    #[case("all_reduce/two_shot:bf16,sum:w=8:n=1040:off=3:in_place:graph=3x5:inputs=probe:peer=nccl_ring:skew=r2+20us@end:seed=9f3c")]
    #[case("all_reduce/one_shot:i32,max:w=3:skew=r0+5us:calls=one_shot.7+[two_shot.9.off1+one_shot.0.in_place]x4+two_shot.33.g1")]
    #[case("all_reduce/one_shot:f64,avg:w=2:n=5:fault=illegal_address@r1")]
    #[case("all_reduce/one_shot:f64,avg:w=2:n=5:fault=killed")]
    #[case("all_reduce/one_shot:f64,avg:w=12:n=5:fault=killed@r11")]
    #[case("all_reduce/one_shot:f64,avg:w=12:n=5:fault=stopped@r10.call")]
    #[case("all_reduce/one_shot:f64,avg:w=2:n=5:fault=other_dtype@r1")]
    #[case("all_reduce/one_shot:f64,avg:w=2:n=5:fault=port_in_use")]
    #[case("all_gather/push:bf16,copy:w=4:n=1040:in_place:peer=nccl_ring")]
    #[case("all_reduce/hierarchical:bf16,sum:w=6:n=1040:nodes=3:peer=nccl_ring")]
    #[case("reduce_scatter/pull:f32,avg:w=5:calls=pull.7.in_place+[pull.33.off1]x2")]
    #[case("all_to_all/push:f64,copy:w=5:n=33:off=1:peer=nccl_send_recv")]
    #[case("broadcast/push:bf16,copy:w=4:n=1040:root=3:in_place:peer=nccl_ring")]
    #[case("reduce/pull:f32,avg:w=5:calls=pull.7.root4.in_place+[pull.33.root1.off1.g1]x2")]
    fn ids_are_read_and_written(#[case] id: &str) {
        assert_eq!(Case::resolve(id, &REGISTRY).unwrap().to_string(), id);
    }

    #[test]
    fn keys_come_in_any_order() {
        let a: CollectiveCase = "all_reduce/two_shot:bf16,sum:n=5:in_place:w=8".parse().unwrap();
        assert_eq!(a.to_string(), "all_reduce/two_shot:bf16,sum:w=8:n=5:in_place");
    }

    #[rstest]
    #[case("all_reduce", "`all_reduce` is not COLLECTIVE/ALGORITHM")]
    #[case(
        "all_redcue/x:bf16,sum:w=2:n=1",
        "unknown collective `all_redcue`: did you mean `all_reduce`? expected one of all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce"
    )]
    #[case("all_gather/push:bf16,sum:w=2:n=1", "operator sum of all_gather: expected one of copy")]
    #[case("reduce/pull:bf16,sum:w=2:n=1:root=2", "root 2 of reduce: roots are 0 to 1")]
    #[case("reduce/pull:bf16,sum:w=2:calls=pull.1+pull.1.root2", "root 2 of reduce: roots are 0 to 1")]
    #[case("all_reduce/hierarchical:bf16,sum:w=6:n=1:nodes=4", "nodes=4: as many of the 6 ranks are on each")]
    #[case("all_reduce/two_shot:bf16,sum:w=2:n=1:root=1", "root 1 of all_reduce: it has no root")]
    #[case("all_to_all/push:bf16,copy:w=2:n=1:in_place", "in_place: all_to_all has no call in place")]
    #[case("all_to_all/push:bf16,copy:w=2:calls=push.1+[push.2.in_place]x2", "in_place: all_to_all has no call in place")]
    #[case("all_reduce/two_shot:bf16,copy:w=2:n=1", "operator copy of all_reduce: expected one of sum, min, max, avg, prod")]
    #[case(
        "all_reduce/tow_shot:bf16,sum:w=2:n=1",
        "unknown algorithm `tow_shot` of all_reduce: did you mean `two_shot`? expected one of one_shot, two_shot"
    )]
    #[case("all_reduce/two_shot:bf16,sum:n=1", "no world size (w=)")]
    #[case("all_reduce/two_shot:bf16,sum:w=2", "exactly one of n= and calls= must be given")]
    #[case("all_reduce/two_shot:bf16,sum:w=73:n=1", "w=73: a group has 1 to 72 ranks")]
    #[case("all_reduce/two_shot:bf16,sum:w=2:n=99999999999999999999", "n=99999999999999999999 is not a number that fits")]
    #[case("all_reduce/two_shot:bf16,sum:w=2:n=1:fault=absent@r2", "rank 2 of 2: ranks are 0 to 1")]
    #[case("all_reduce/two_shot:bf16,sum:w=2:n=1:w=3", "`w` given twice")]
    #[case("all_reduce/two_shot:bf16,sum:w=2:n=1:of=3", "unknown key `of`: did you mean `off`? expected one of w, n, nodes, root")]
    fn errors_say_what_was_expected(#[case] id: &str, #[case] start: &str) {
        let error = Case::resolve(id, &REGISTRY).unwrap_err().to_string();
        assert!(error.starts_with(start) && error.ends_with(&format!("in case id `{id}`")), "{error}");
    }
}
