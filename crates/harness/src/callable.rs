//! A machine whose ranks are somebody else's processes: what a launch is to do, a callable does there.
//!
//! Memory is this process's. Copies and fills are done here; for a launch, the tensors of all ranks go through a stream to who calls the callable, and
//! come back with the bytes around them. So whatever can be called is judged by its calls' results, and by what it leaves as it was: communicators of
//! frameworks, operations of PyTorch, MPI. Races and hangs inside it are not seen.
//!
//! A question is a line of JSON ([`Question`]) and the bytes of each tensor of each rank; the answer is a line ([`Answer`]) and, if all went well, as many bytes.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    ops::Range,
    time::{Duration, Instant},
};

use passmuster_plan::{
    machine::{Blamed, CANARY, Elapsed, GUARD, How, Machine, MachineError, MachineInfo, Run, layout::Layout},
    plan::{Arg, BufferSpec, Fill, Launch, Op, Plan, Region, Script, Step},
};
use serde::{Deserialize, Serialize};

/// The most ranks.
const MOST_RANKS: usize = 72;

/// The machine. `S` is the stream to who calls the callable.
pub struct Callables<S> {
    stream: BufReader<S>,
    info: MachineInfo,
    groups: Vec<Group>,
    opened: u64,
    /// Why no more calls can be made, once none can.
    lost: Option<String>,
}

struct Group {
    layout: Layout,
    /// The memory of each rank.
    ranks: Vec<Vec<u8>>,
}

/// What the ranks are to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The entry that the launches name: the case's element type.
    pub entry: String,
    /// How many calls the group has made before.
    pub call: u64,
    /// How long it may take, in seconds.
    pub deadline: f64,
    /// Bytes around each tensor's buffer that belong to nobody, on either side.
    pub guard: u64,
    /// Each rank's part.
    pub ranks: Vec<Part>,
}

/// What one rank is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Part {
    /// The values of the task's parameters, in its order.
    pub parameters: Vec<u64>,
    /// Of each tensor, in the task's order, the bytes of its buffer: they follow the question, with [`Question::guard`] more on either side. A tensor lies at
    /// the start of its buffer, which is as large as that of the largest call.
    pub capacities: Vec<u64>,
    /// How late it comes, in microseconds.
    pub late: u64,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// What went wrong on ranks. If nothing did, the bytes of all tensors follow.
    #[serde(default)]
    pub failed: Vec<Failed>,
    /// Whether ranks are stuck, so that no other call can be made.
    #[serde(default)]
    pub stuck: bool,
}

/// What went wrong on a rank.
#[derive(Debug, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub rank: usize,
    /// In which way.
    pub how: Failure,
    /// What there is to say, in a line: an exception with its place, or where the rank stands.
    pub said: String,
}

/// In which way a call failed on a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// It raised an exception.
    Raised,
    /// It returned something that is no result: another type, shape or name.
    Returned,
    /// It was not done in time.
    Late,
    /// Its process ended.
    Died,
}

impl<S: Read + Write> Callables<S> {
    /// A machine on the other side of a stream. `name` is what is called, for records.
    pub fn new(stream: S, name: &str) -> Callables<S> {
        let info = MachineInfo {
            kind: "callable".into(),
            gpu: name.into(),
            gpus: 0,
            driver: String::new(),
            nccl: String::new(),
            link_gbps: None,
            notes: Vec::new(),
        };
        Callables { stream: BufReader::new(stream), info, groups: Vec::new(), opened: 0, lost: None }
    }

    fn group(&mut self, group: usize) -> Result<&mut Group, MachineError> {
        let groups = self.groups.len();
        self.groups.get_mut(group).ok_or_else(|| MachineError::Invalid { reason: format!("group {group}: {groups} are open") })
    }

    /// Runs a plan: what each rank does before its launch, the launches of all ranks together, and what comes after.
    fn carry_out(&mut self, group: usize, plan: &Plan, late: &mut Vec<(usize, u64)>, deadline: Duration) -> Result<(), MachineError> {
        let is_launch = |op: &&Op| matches!(op, Op::Launch(_));
        let launches: Vec<Option<&Launch>> =
            plan.ranks.iter().map(|ops| ops.iter().find_map(|op| if let Op::Launch(launch) = op { Some(launch) } else { None })).collect();
        let at = |ops: &[Op]| ops.iter().position(|op| is_launch(&op)).unwrap_or(ops.len());
        let own = self.group(group)?;
        for (memory, ops) in own.ranks.iter_mut().zip(&plan.ranks) {
            ops[..at(ops)].iter().try_for_each(|op| carry_out(&own.layout, memory, op))?;
        }
        if launches.iter().any(Option::is_some) {
            let launches: Vec<&Launch> = launches
                .into_iter()
                .collect::<Option<_>>()
                .ok_or_else(|| MachineError::Invalid { reason: format!("{}: a rank makes no call", plan.name) })?;
            self.call(group, &launches, std::mem::take(late), deadline)?;
        }
        let own = self.group(group)?;
        for (memory, ops) in own.ranks.iter_mut().zip(&plan.ranks) {
            ops.iter().skip(at(ops) + 1).try_for_each(|op| carry_out(&own.layout, memory, op))?;
        }
        Ok(())
    }

    /// Has all ranks make a call.
    fn call(&mut self, group: usize, launches: &[&Launch], late: Vec<(usize, u64)>, deadline: Duration) -> Result<(), MachineError> {
        if let Some(why) = &self.lost {
            return Err(MachineError::Inconclusive { reason: why.clone(), blamed: Box::default() });
        }
        let Group { layout, ranks } = self.group(group)?;
        let mut parts = Vec::new();
        // Where the bytes of each rank's tensors lie in its memory, with those around them.
        let mut places = Vec::new();
        let mut number = 0;
        for (rank, launch) in launches.iter().enumerate() {
            let asked = Asked::of(layout, launch).map_err(|reason| MachineError::Invalid { reason })?;
            number = asked.call;
            let late = late.iter().filter(|(of, _)| *of == rank).map(|(_, microseconds)| microseconds).sum();
            parts.push(Part { late, ..asked.part });
            places.push(asked.places);
        }
        let question =
            Question { entry: launches[0].entry.clone(), call: number, deadline: deadline.as_secs_f64(), guard: GUARD, ranks: parts };
        let mut sent = serde_json::to_vec(&question).expect("a question is plain data");
        sent.push(b'\n');
        for (memory, places) in ranks.iter().zip(&places) {
            places.iter().for_each(|place| sent.extend_from_slice(&memory[place.clone()]));
        }
        let start = Instant::now();
        let mut exchange = || -> io::Result<Answer> {
            let stream = self.stream.get_mut();
            stream.write_all(&sent)?;
            stream.flush()?;
            let mut line = Vec::new();
            self.stream.read_until(b'\n', &mut line)?;
            let answer: Answer = serde_json::from_slice(&line)?;
            if answer.failed.is_empty() {
                let memories = &mut self.groups[group].ranks;
                for (memory, places) in memories.iter_mut().zip(&places) {
                    places.iter().try_for_each(|place| self.stream.read_exact(&mut memory[place.clone()]))?;
                }
            }
            Ok(answer)
        };
        let answer = exchange().map_err(|error| {
            let reason = format!("who calls the callable cannot be asked: {error}");
            self.lost = Some(reason.clone());
            MachineError::Inconclusive { reason, blamed: Box::default() }
        })?;
        if answer.stuck {
            self.lost = Some("ranks are stuck in an earlier call".into());
        }
        failure(&answer.failed, start.elapsed()).map_or(Ok(()), Err)
    }
}

/// What a launch asks of a rank.
struct Asked {
    part: Part,
    /// Where its tensors lie in its memory, with their guards.
    places: Vec<Range<usize>>,
    /// The number of the call.
    call: u64,
}

impl Asked {
    /// A launch's arguments are the addresses of the tensors, then the values of parameters, and last the number of the call.
    ///
    /// # Errors
    /// Another argument, or a tensor that has no buffer.
    fn of(layout: &Layout, launch: &Launch) -> Result<Asked, String> {
        let (mut capacities, mut places, mut parameters) = (Vec::new(), Vec::new(), Vec::new());
        for arg in &launch.args {
            match arg {
                Arg::Address(Region { buffer, .. }) => {
                    let of_name = layout.buffers().find(|(spec, _)| spec.name == *buffer);
                    let (spec, offset) = of_name.ok_or_else(|| format!("no buffer `{buffer}`"))?;
                    places.push((offset - GUARD) as usize..(offset + spec.bytes + GUARD) as usize);
                    capacities.push(spec.bytes);
                }
                Arg::U64(number) => parameters.push(*number),
                other => return Err(format!("an argument of a callable is {other:?}")),
            }
        }
        let call = parameters.pop().ok_or("a launch without the number of its call")?;
        Ok(Asked { part: Part { parameters, capacities, late: 0 }, places, call })
    }
}

/// What the failures of ranks come to: who died or raised says more than who was kept waiting by that.
fn failure(failed: &[Failed], after: Duration) -> Option<MachineError> {
    let of = |kinds: &[Failure]| failed.iter().filter(|failed| kinds.contains(&failed.how)).collect::<Vec<_>>();
    let said = |of: &[&Failed]| of.iter().map(|failed| format!("rank {}: {}", failed.rank, failed.said)).collect::<Vec<String>>();
    let (broken, returned, late) = (of(&[Failure::Raised, Failure::Died]), of(&[Failure::Returned]), of(&[Failure::Late]));
    if !broken.is_empty() {
        let how = |failed: &Failed| if failed.how == Failure::Died { How::Lost } else { How::Failed };
        return Some(MachineError::Fault {
            ranks: broken.iter().map(|failed| failed.rank).collect(),
            what: "the callable".into(),
            code: said(&broken).join("; "),
            blamed: broken.iter().map(|failed| Blamed::new(failed.rank, how(failed))).collect(),
        });
    }
    if !returned.is_empty() {
        return Some(MachineError::Finding { findings: said(&returned) });
    }
    (!late.is_empty()).then(|| MachineError::Hang {
        after: Elapsed::WallMs(after.as_millis() as u64),
        cause: String::new(),
        stuck: Vec::new(),
        unfinished: late.iter().map(|failed| failed.rank).collect(),
        standing: said(&late),
        blamed: Box::default(),
    })
}

/// Where a region lies in a rank's memory.
fn place(layout: &Layout, region: &Region) -> Result<Range<usize>, MachineError> {
    let from = layout.find(region).map_err(|error| MachineError::Invalid { reason: error.to_string() })? as usize;
    Ok(from..from + region.bytes as usize)
}

/// Does what is not a launch.
fn carry_out(layout: &Layout, memory: &mut [u8], op: &Op) -> Result<(), MachineError> {
    match op {
        Op::Fill { region, byte } => memory[place(layout, region)?].fill(*byte),
        Op::Copy { from, to, to_rank: None } => {
            let (from, to) = (place(layout, from)?, place(layout, to)?);
            memory.copy_within(from, to.start);
        }
        other => return Err(MachineError::NotSupported { reason: format!("a callable cannot do {other:?}") }),
    }
    Ok(())
}

impl<S: Read + Write> Machine for Callables<S> {
    fn info(&self) -> MachineInfo {
        self.info.clone()
    }

    fn max_world(&self) -> usize {
        MOST_RANKS
    }

    fn waiting_blocks(&self, _world: usize, _groups: usize) -> u32 {
        1
    }

    fn rendezvous(&self) -> u64 {
        self.opened
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        let layout = Layout::of(buffers).map_err(|error| MachineError::NotSupported { reason: error.to_string() })?;
        let mut memory = vec![CANARY; layout.bytes() as usize];
        let mut ranks = Vec::new();
        for rank in 0..world {
            for (spec, offset) in layout.buffers() {
                let place = offset as usize..(offset + spec.bytes) as usize;
                match (&spec.fill, spec.fill.contents(rank, spec.bytes)) {
                    (_, Some(contents)) => memory[place].copy_from_slice(&contents[..]),
                    (Fill::Byte(byte), None) => memory[place].fill(*byte),
                    (_, None) => memory[place].fill(CANARY),
                }
            }
            ranks.push(memory.clone());
        }
        self.groups.push(Group { layout, ranks });
        self.opened += 1;
        Ok(self.groups.len() - 1)
    }

    fn close_groups(&mut self) {
        self.groups.clear();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        let Group { layout, ranks } = self.group(group)?;
        Ok(ranks[rank][place(layout, region)?].to_vec())
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        let Group { layout, ranks } = self.group(group)?;
        if bytes.len() as u64 != region.bytes {
            return Err(MachineError::Invalid { reason: format!("{} bytes for region {region}", bytes.len()) });
        }
        ranks[rank][place(layout, region)?].copy_from_slice(bytes);
        Ok(())
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        let Group { layout, ranks } = self.group(group)?;
        for (rank, memory) in ranks.iter().enumerate() {
            for (start, bytes) in layout.gaps() {
                let gap = &memory[start as usize..(start + bytes) as usize];
                let broken = gap.iter().position(|&byte| byte != CANARY);
                if let Some((buffer, distance)) = broken.and_then(|at| layout.beside(start + at as u64)) {
                    return Ok(Some((rank, buffer.to_owned(), distance)));
                }
            }
        }
        Ok(None)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        let mut late = Vec::new();
        for step in &script.steps {
            match step {
                Step::Enqueue { group, plan, .. } => self.carry_out(*group, plan, &mut late, deadline)?,
                Step::Delay { rank, microseconds } => late.push((*rank, *microseconds)),
                Step::Leave { .. } => {
                    return Err(MachineError::NotSupported { reason: "a rank of a callable cannot be kept from its call".into() });
                }
                other => return Err(MachineError::NotSupported { reason: format!("a callable cannot do {other:?}") }),
            }
        }
        Ok(Run::default())
    }
}

#[cfg(test)]
mod tests {
    use passmuster_plan::plan::{Dim3, Role};

    use super::*;

    /// Who calls: answers with what `reply` makes of a question and its bytes.
    struct Caller {
        written: Vec<u8>,
        answers: io::Cursor<Vec<u8>>,
        reply: fn(&Question, &mut [u8]) -> Answer,
    }

    impl Read for Caller {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.answers.read(to)
        }
    }

    impl Write for Caller {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            let written = std::mem::take(&mut self.written);
            let end = written.iter().position(|&byte| byte == b'\n').unwrap();
            let question: Question = serde_json::from_slice(&written[..end]).unwrap();
            let mut bytes = written[end + 1..].to_vec();
            let answer = (self.reply)(&question, &mut bytes);
            let mut line = serde_json::to_vec(&answer).unwrap();
            line.push(b'\n');
            if answer.failed.is_empty() {
                line.extend_from_slice(&bytes);
            }
            self.answers = io::Cursor::new(line);
            Ok(())
        }
    }

    fn machine(reply: fn(&Question, &mut [u8]) -> Answer) -> Callables<Caller> {
        Callables::new(Caller { written: Vec::new(), answers: io::Cursor::default(), reply }, "test")
    }

    /// A call of one tensor in a buffer of 8 bytes and of one parameter, as the second of its group.
    fn script(late: u64) -> Script {
        let region = Region::new("task.a", 0, 8);
        let args = vec![Arg::Address(region.clone()), Arg::U64(7), Arg::U64(1)];
        let one = Dim3::from(1);
        let launch = Launch {
            module: "callable".into(),
            entry: "call".into(),
            grid: one,
            block: one,
            cluster: None,
            dynamic_shared: 0,
            registers: None,
            waits_for_peers: false,
            programmatic: false,
            variables: Vec::new(),
            args,
        };
        let ops = vec![Op::Fill { region, byte: 1 }, Op::Launch(launch)];
        let plan = Plan::per_rank("call", 2, |_| ops.clone());
        Script { steps: vec![Step::Delay { rank: 1, microseconds: late }, Step::Enqueue { group: 0, stream: 0, plan: plan.into() }] }
    }

    fn run(reply: fn(&Question, &mut [u8]) -> Answer) -> (Callables<Caller>, Result<Run, MachineError>) {
        let mut machine = machine(reply);
        machine.open_group(2, &[BufferSpec::new("task.a", 8, Role::Data)]).unwrap();
        let ran = machine.run(&script(20), Duration::from_secs(3));
        (machine, ran)
    }

    const RANK: usize = 8 + 2 * GUARD as usize;

    #[test]
    fn tensors_go_there_and_come_back() {
        let (mut machine, ran) = run(|question, bytes| {
            assert_eq!((&*question.entry, question.call, question.deadline, question.guard), ("call", 1, 3.0, GUARD));
            assert_eq!(question.ranks.iter().map(|part| part.late).collect::<Vec<_>>(), [0, 20]);
            assert_eq!((&*question.ranks[1].parameters, &*question.ranks[1].capacities), (&[7][..], &[8][..]));
            assert_eq!(bytes.len(), 2 * RANK);
            bytes[RANK + GUARD as usize] = 9;
            Answer::default()
        });
        ran.unwrap();
        assert_eq!(machine.read(0, 0, &Region::new("task.a", 0, 8)).unwrap(), [1; 8]);
        assert_eq!(machine.read(0, 1, &Region::new("task.a", 0, 8)).unwrap(), [9, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(machine.broken_canary(0).unwrap(), None);
    }

    #[test]
    fn bytes_around_a_tensor_are_watched() {
        let (mut machine, ran) = run(|_, bytes| {
            bytes[RANK + GUARD as usize - 1] ^= 1;
            Answer::default()
        });
        ran.unwrap();
        assert_eq!(machine.broken_canary(0).unwrap(), Some((1, "task.a".into(), -1)));
    }

    #[test]
    fn who_raised_is_blamed_and_not_who_waited_for_it() {
        let (_, ran) = run(|_, _| Answer {
            failed: vec![
                Failed { rank: 0, how: Failure::Late, said: "at mine.py:3".into() },
                Failed { rank: 1, how: Failure::Raised, said: "ValueError: no (mine.py:7)".into() },
            ],
            stuck: true,
        });
        let error = ran.unwrap_err();
        assert_eq!(error.to_string(), "ranks [1]: the callable failed: rank 1: ValueError: no (mine.py:7)");
        assert_eq!(error.blamed(), [Blamed::new(1, How::Failed)]);
    }

    #[test]
    fn after_a_hang_no_call_is_made() {
        let (mut machine, ran) =
            run(|_, _| Answer { failed: vec![Failed { rank: 1, how: Failure::Late, said: "at mine.py:3".into() }], stuck: true });
        let error = ran.unwrap_err();
        assert!(matches!(&error, MachineError::Hang { unfinished, .. } if **unfinished == [1]), "{error}");
        assert!(error.to_string().contains("rank 1: at mine.py:3"), "{error}");
        let again = machine.run(&script(0), Duration::from_secs(3)).unwrap_err();
        assert!(matches!(&again, MachineError::Inconclusive { reason, .. } if reason.contains("stuck")), "{again}");
    }

    #[test]
    fn what_is_no_result_is_a_finding() {
        let (_, ran) = run(|_, _| Answer {
            failed: vec![Failed { rank: 0, how: Failure::Returned, said: "output has dtype float64, expected float32".into() }],
            stuck: false,
        });
        assert_eq!(ran.unwrap_err(), MachineError::Finding { findings: vec!["rank 0: output has dtype float64, expected float32".into()] });
    }

    #[test]
    fn who_has_gone_is_no_finding() {
        let mut machine = Callables::new(io::Cursor::new(Vec::new()), "test");
        machine.open_group(2, &[BufferSpec::new("task.a", 8, Role::Data)]).unwrap();
        let gone = machine.run(&script(0), Duration::from_secs(3)).unwrap_err();
        assert!(matches!(&gone, MachineError::Inconclusive { reason, .. } if reason.contains("cannot be asked")), "{gone}");
    }

    #[test]
    fn ranks_cannot_leave() {
        let mut machine = machine(|_, _| Answer::default());
        let leave = Script { steps: vec![Step::Leave { rank: 0, how: passmuster_plan::plan::Departure::Idle }] };
        assert!(matches!(machine.run(&leave, Duration::ZERO), Err(MachineError::NotSupported { .. })));
    }
}
