//! Compiling: a script as the host of each rank goes through it, with a machine's own commands in place of operations.
//!
//! What is the same on all machines is here: who takes part in which step, which rank an operation goes to, what a graph holds, and that a plan is resolved
//! once. A machine says what memory is called there and what its streams carry out.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use super::MachineError;
use crate::plan::{Departure, Launch, MatmulCall, NcclCall, Op, Plan, Region, Script, Step, Writers};

/// A machine's own part.
pub trait Target {
    /// Where something lies.
    type Address;

    /// What a stream carries out.
    type Command;

    /// Whether the machine has a rank. What others do is left out: they have no actions.
    fn has(&self, rank: usize) -> bool {
        let _ = rank;
        true
    }

    /// Called before what a rank does in a plan is resolved.
    ///
    /// # Errors
    /// Of the rank's device.
    fn enter(&mut self, rank: usize) -> Result<(), MachineError> {
        let _ = rank;
        Ok(())
    }

    /// Address of a region on a rank.
    ///
    /// # Errors
    /// When the group has no such region.
    fn address(&self, group: usize, rank: usize, region: &Region) -> Result<Self::Address, String>;

    /// The command for an operation.
    ///
    /// # Errors
    /// `NotSupported` for what the machine does not do, `Invalid` for what contradicts a kernel.
    fn command(&mut self, place: Place<'_>, op: Resolved<'_, Self::Address, Self::Command>) -> Result<Self::Command, MachineError>;

    /// Adds a command to those before it on the same stream: a machine may make one of several.
    fn append(commands: &mut Vec<Self::Command>, command: Self::Command) {
        commands.push(command);
    }
}

/// Whose operation is resolved.
#[derive(Clone, Copy)]
pub struct Place<'p> {
    /// Number of the group.
    pub group: usize,
    /// Which rank enqueues it.
    pub rank: usize,
    /// The plan, which says what ranks it means.
    pub plan: &'p Plan,
    /// Who writes the words that the plan's streams wait for.
    pub writers: &'p Writers<'p>,
}

/// An [`Op`] of one rank with addresses `A` in place of regions, and for what it forks commands `C`.
pub enum Resolved<'p, A, C> {
    /// A kernel, whose arguments the machine resolves.
    Launch(&'p Launch),
    /// A copy, also to another rank.
    Copy {
        /// Where from.
        from: A,
        /// Where to.
        to: A,
        /// How many bytes.
        bytes: u64,
    },
    /// Sets bytes.
    Fill {
        /// Where.
        at: A,
        /// To what.
        byte: u8,
        /// How many.
        bytes: u64,
    },
    /// Writes a word, also on another rank.
    WriteValue {
        /// Where.
        at: A,
        /// What.
        value: u32,
    },
    /// Waits for a word.
    WaitValue {
        /// Where.
        at: A,
        /// As the plan has it.
        region: &'p Region,
        /// For what.
        value: u32,
    },
    /// A collective of a library.
    Nccl {
        /// Which.
        call: &'p NcclCall,
        /// What the rank puts in.
        input: A,
        /// What it gets.
        output: A,
    },
    /// A product of a library.
    Matmul {
        /// Which.
        call: &'p MatmulCall,
        /// The operands a, b and c.
        operands: [A; 3],
        /// Memory for the library.
        workspace: A,
    },
    /// Hands commands to a side stream.
    Fork {
        /// Number of the side stream, from 1 on.
        side: usize,
        /// What.
        commands: Vec<C>,
    },
    /// Waits for a side stream.
    Join {
        /// Its number.
        side: usize,
    },
    /// Copies memory to the host.
    Fetch {
        /// Where from.
        from: A,
        /// How many bytes.
        bytes: u64,
    },
    /// Notes the time.
    Mark,
}

/// What a rank's host does next.
pub enum Action<C> {
    /// Enqueues commands.
    Enqueue {
        /// Which of the rank's streams.
        stream: usize,
        /// What, of one plan: never nothing.
        commands: Arc<[C]>,
        /// Whether the plan is [of the caller](Plan::of_caller).
        of_caller: bool,
    },
    /// Enqueues a graph.
    Replay {
        /// Which of the rank's streams.
        stream: usize,
        /// Which.
        graph: Arc<Captured<C>>,
    },
    /// Sleeps.
    Sleep(Duration),
    /// Waits for the fetch of this number among those that the rank has enqueued.
    Await(usize),
    /// Notes the time on stream 0.
    Mark,
    /// Ends what this process does, by [`depart`](super::depart).
    Depart(Departure),
}

/// One rank's part of a graph.
pub struct Captured<C> {
    /// The place of the graph among those of the script.
    pub index: usize,
    /// The commands of each plan in it, but for plans that have the rank do nothing.
    pub plans: Vec<Arc<[C]>>,
}

/// A graph of a script.
pub struct Graph<'s, C> {
    /// Its number in the script.
    pub number: usize,
    /// Whose buffers its plans use.
    pub group: usize,
    /// What is captured.
    pub plans: &'s [Arc<Plan>],
    /// What that is on each rank of the script.
    pub ranks: Vec<Arc<Captured<C>>>,
}

/// A script, compiled.
pub struct Compiled<'s, C> {
    /// What each rank's host does.
    pub actions: Vec<Vec<Action<C>>>,
    /// The graphs in the order of the script.
    pub graphs: Vec<Graph<'s, C>>,
}

/// Compiles a script that [validation](super::validation::validate) has found in order. `world` is how many ranks it needs.
///
/// # Errors
/// What the machine says of a rank, an address or a command.
pub fn compile<'s, T: Target>(script: &'s Script, world: usize, target: &mut T) -> Result<Compiled<'s, T::Command>, MachineError> {
    let mut graphs: Vec<Graph<'s, T::Command>> = Vec::new();
    let mut indices: BTreeMap<usize, usize> = BTreeMap::new();
    let mut actions: Vec<Vec<Action<T::Command>>> = (0..world).map(|_| Vec::new()).collect();
    let mut left: Vec<bool> = (0..world).map(|rank| !target.has(rank)).collect();
    let mut plans = Plans { target, compiled: HashMap::new() };
    for step in &script.steps {
        let is_present = |&(rank, _): &(usize, &mut Vec<_>)| !left[rank];
        let mut present = actions.iter_mut().enumerate().filter(is_present);
        match step {
            Step::Enqueue { group, stream, plan } => {
                let compiled = plans.compile(*group, plan)?;
                for (rank, actions) in present {
                    if let Some(commands) = compiled.get(rank).filter(|commands| !commands.is_empty()) {
                        actions.push(Action::Enqueue { stream: *stream, commands: commands.clone(), of_caller: plan.of_caller });
                    }
                }
            }
            Step::Capture { graph: number, group, plans: captured } => {
                let mut of_rank: Vec<Vec<Arc<[T::Command]>>> = vec![Vec::new(); world];
                for plan in captured {
                    for (of_rank, commands) in
                        of_rank.iter_mut().zip(plans.compile(*group, plan)?).filter(|(_, commands)| !commands.is_empty())
                    {
                        of_rank.push(commands.clone());
                    }
                }
                let index = graphs.len();
                indices.insert(*number, index);
                let ranks = of_rank.into_iter().map(|plans| Arc::new(Captured { index, plans })).collect();
                graphs.push(Graph { number: *number, group: *group, plans: captured, ranks });
            }
            Step::Replay { graph, stream } => {
                let of_rank = &graphs[indices[graph]].ranks;
                for (rank, actions) in present.filter(|&(rank, _)| !of_rank[rank].plans.is_empty()) {
                    actions.push(Action::Replay { stream: *stream, graph: of_rank[rank].clone() });
                }
            }
            Step::Delay { rank, microseconds } => {
                if let Some((_, actions)) = present.find(|(present, _)| present == rank) {
                    actions.push(Action::Sleep(Duration::from_micros(*microseconds)));
                }
            }
            Step::Leave { rank, how: Departure::Idle } => left[*rank] = true,
            Step::Leave { rank, how } => {
                let here = (0..world).filter(|&rank| plans.target.has(rank)).count();
                if here > 1 {
                    let how = how.name();
                    return Err(MachineError::NotSupported {
                        reason: format!("rank {rank} is to be {how}: its process has {here} ranks here, and all would be"),
                    });
                }
                if let Some((_, actions)) = present.find(|(present, _)| present == rank) {
                    actions.push(Action::Depart(*how));
                }
                left[*rank] = true;
            }
            Step::Await { fetch } => present.for_each(|(_, actions)| actions.push(Action::Await(*fetch))),
            Step::Mark => present.for_each(|(_, actions)| actions.push(Action::Mark)),
        }
    }
    Ok(Compiled { actions, graphs })
}

/// Of each rank of a group, the commands of a plan.
type OfRanks<C> = Vec<Arc<[C]>>;

/// Plans of a script, each compiled the first time it is met on a group.
struct Plans<'t, T: Target> {
    target: &'t mut T,
    compiled: HashMap<(usize, *const Plan), OfRanks<T::Command>>,
}

impl<T: Target> Plans<'_, T> {
    /// The commands of each rank of the group.
    fn compile(&mut self, group: usize, plan: &Arc<Plan>) -> Result<&[Arc<[T::Command]>], MachineError> {
        match self.compiled.entry((group, Arc::as_ptr(plan))) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let writers = &plan.writers();
                let of_rank = |(rank, ops): (usize, &Vec<Op>)| {
                    if !self.target.has(rank) {
                        return Ok(Vec::new().into());
                    }
                    self.target.enter(rank)?;
                    Ok(commands(self.target, Place { group, rank, plan, writers }, ops)?.into())
                };
                Ok(entry.insert(plan.ranks.iter().enumerate().map(of_rank).collect::<Result<_, _>>()?))
            }
        }
    }
}

fn commands<T: Target>(target: &mut T, place: Place<'_>, ops: &[Op]) -> Result<Vec<T::Command>, MachineError> {
    let mut made = Vec::with_capacity(ops.len());
    for op in ops {
        let resolved = match op {
            Op::Fork { stream, ops } => Resolved::Fork { side: *stream, commands: commands(target, place, ops)? },
            op => resolve(target, place, op).map_err(|reason| MachineError::Invalid { reason })?,
        };
        let command = target.command(place, resolved)?;
        T::append(&mut made, command);
    }
    Ok(made)
}

/// An operation that forks nothing, with its addresses.
fn resolve<'p, T: Target>(target: &T, place: Place<'_>, op: &'p Op) -> Result<Resolved<'p, T::Address, T::Command>, String> {
    let on = |rank, region| target.address(place.group, rank, region);
    let own = |region| on(place.rank, region);
    let to = |to_rank: Option<u32>, region| on(place.plan.rank_of(place.rank, to_rank), region);
    Ok(match op {
        Op::Launch(launch) => Resolved::Launch(launch),
        Op::Copy { from, to: region, to_rank } => Resolved::Copy { from: own(from)?, to: to(*to_rank, region)?, bytes: from.bytes },
        Op::Fill { region, byte } => Resolved::Fill { at: own(region)?, byte: *byte, bytes: region.bytes },
        Op::WriteValue { to: region, value, to_rank } => Resolved::WriteValue { at: to(*to_rank, region)?, value: *value },
        Op::WaitValue { at, value } => Resolved::WaitValue { at: own(at)?, region: at, value: *value },
        Op::Nccl(nccl) => Resolved::Nccl { call: nccl, input: own(&nccl.call.input)?, output: own(&nccl.call.output)? },
        Op::Matmul(call) => {
            let operands = [own(&call.operands.a)?, own(&call.operands.b)?, own(&call.operands.c)?];
            Resolved::Matmul { call, operands, workspace: own(&call.workspace)? }
        }
        Op::Fork { .. } => unreachable!("what is forked is resolved before it"),
        Op::Join { stream } => Resolved::Join { side: *stream },
        Op::Fetch { from } => Resolved::Fetch { from: own(from)?, bytes: from.bytes },
        Op::Mark => Resolved::Mark,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands are words; addresses are `RANK.BUFFER+OFFSET`.
    #[derive(Default)]
    struct Words {
        entered: Vec<usize>,
        /// The rank that is here, where not all are.
        only: Option<usize>,
    }

    impl Target for Words {
        type Address = String;
        type Command = String;

        fn has(&self, rank: usize) -> bool {
            self.only.is_none_or(|only| only == rank)
        }

        fn enter(&mut self, rank: usize) -> Result<(), MachineError> {
            self.entered.push(rank);
            Ok(())
        }

        fn address(&self, group: usize, rank: usize, region: &Region) -> Result<String, String> {
            Ok(format!("{group}.{rank}.{}+{}", region.buffer, region.offset))
        }

        fn command(&mut self, _: Place<'_>, op: Resolved<'_, String, String>) -> Result<String, MachineError> {
            Ok(match op {
                Resolved::Copy { from, to, bytes } => format!("copy {from} {to} {bytes}"),
                Resolved::Fill { at, byte, bytes } => format!("fill {at} {byte} {bytes}"),
                Resolved::WriteValue { at, value } => format!("write {at} {value}"),
                Resolved::Fork { side, commands } => format!("fork {side} [{}]", commands.join(", ")),
                Resolved::Join { side } => format!("join {side}"),
                Resolved::Mark => "mark".into(),
                _ => return Err(MachineError::NotSupported { reason: "no words for it".into() }),
            })
        }

        fn append(commands: &mut Vec<String>, command: String) {
            match commands.last_mut() {
                Some(last) if last.starts_with("write") && command.starts_with("write") => *last += &format!("; {command}"),
                _ => commands.push(command),
            }
        }
    }

    fn told(action: &Action<String>) -> String {
        match action {
            Action::Enqueue { stream, commands, .. } => format!("{stream}: {}", commands.join(", ")),
            Action::Replay { stream, graph } => format!("{stream}: graph {} {}", graph.index, graph.plans.concat().join(", ")),
            Action::Sleep(time) => format!("sleep {time:?}"),
            Action::Await(fetch) => format!("await {fetch}"),
            Action::Mark => "mark".into(),
            Action::Depart(how) => format!("is {}", how.name()),
        }
    }

    fn actions(target: &mut Words, world: usize, steps: Vec<Step>) -> Vec<Vec<String>> {
        let script = Script { steps };
        let compiled = compile(&script, world, target).unwrap();
        compiled.actions.iter().map(|of_rank| of_rank.iter().map(told).collect()).collect()
    }

    fn region() -> Region {
        Region::new("a", 8, 4)
    }

    fn fills(world: u32) -> Arc<Plan> {
        Arc::new(Plan::per_rank("fill", world, |rank| vec![Op::Fill { region: region(), byte: rank as u8 }]))
    }

    /// If this fails, an operation touches another rank's memory than the plan says, on every machine.
    #[test]
    fn operations_go_to_their_rank() {
        let write = |to_rank| Op::WriteValue { to: region(), value: 7, to_rank };
        let copy = Op::Copy { from: region(), to: region(), to_rank: Some(0) };
        let plan = Plan::per_rank("words", 2, |rank| if rank == 1 { vec![write(Some(0)), write(None), copy.clone()] } else { vec![] });
        let steps = vec![Step::Enqueue { group: 3, stream: 1, plan: Arc::new(plan) }];
        let expected = ["1: write 3.0.a+8 7; write 3.1.a+8 7, copy 3.1.a+8 3.0.a+8 4"];
        assert_eq!(actions(&mut Words::default(), 2, steps), [&[][..], &expected]);
    }

    /// If this fails, what is forked to a side stream is lost, or joined with what comes before it.
    #[test]
    fn forks_hold_what_is_forked() {
        let write = Op::WriteValue { to: region(), value: 7, to_rank: None };
        let ops = vec![write.clone(), Op::beside(2, &[write.clone(), write]), Op::Join { stream: 2 }, Op::Mark];
        let steps = vec![Step::Enqueue { group: 0, stream: 0, plan: Arc::new(Plan::per_rank("fork", 1, |_| ops.clone())) }];
        let expected = "0: write 0.0.a+8 7, fork 2 [write 0.0.a+8 7; write 0.0.a+8 7], join 2, mark";
        assert_eq!(actions(&mut Words::default(), 1, steps), [[expected]]);
    }

    /// If this fails, who has left goes on, or who is there does not.
    #[test]
    fn who_has_left_takes_no_part_in_anything() {
        let plan = fills(2);
        let all = || {
            vec![
                Step::Enqueue { group: 0, stream: 0, plan: plan.clone() },
                Step::Replay { graph: 5, stream: 1 },
                Step::Delay { rank: 0, microseconds: 3 },
                Step::Delay { rank: 1, microseconds: 4 },
                Step::Await { fetch: 6 },
                Step::Mark,
            ]
        };
        let mut steps = vec![Step::Capture { graph: 5, group: 0, plans: vec![plan.clone()] }];
        steps.extend(all());
        steps.push(Step::Leave { rank: 0, how: Departure::Idle });
        steps.extend(all());
        let once = |rank| {
            let fill = format!("fill 0.{rank}.a+8 {rank} 4");
            [format!("0: {fill}"), format!("1: graph 0 {fill}"), format!("sleep {}µs", 3 + rank), "await 6".into(), "mark".into()]
        };
        assert_eq!(actions(&mut Words::default(), 2, steps), [once(0).to_vec(), [once(1), once(1)].concat()]);
    }

    /// If this fails, a process that has several ranks is killed for one of them, or one that has another rank.
    #[test]
    fn a_rank_s_process_ends_where_it_has_no_other_rank() {
        let steps = || {
            let enqueue = || Step::Enqueue { group: 0, stream: 0, plan: fills(3) };
            vec![enqueue(), Step::Leave { rank: 1, how: Departure::Killed }, enqueue()]
        };
        let fill = |rank: u32| format!("0: fill 0.{rank}.a+8 {rank} 4");
        let of = |rank: usize| actions(&mut Words { only: Some(rank), ..Words::default() }, 3, steps()).swap_remove(rank);
        assert_eq!([of(0), of(1)], [vec![fill(0), fill(0)], vec![fill(1), "is killed".into()]]);
        let refused = compile(&Script { steps: steps() }, 3, &mut Words::default()).err().unwrap().to_string();
        assert!(refused.contains("rank 1 is to be killed: its process has 3 ranks here, and all would be"), "{refused}");
    }

    /// If this fails, a process enqueues what is for other ranks' processes to enqueue, or resolves it for nothing.
    #[test]
    fn what_other_machines_ranks_do_is_left_out() {
        let steps = vec![
            Step::Capture { graph: 5, group: 0, plans: vec![fills(3)] },
            Step::Enqueue { group: 0, stream: 0, plan: fills(3) },
            Step::Delay { rank: 0, microseconds: 3 },
            Step::Replay { graph: 5, stream: 1 },
            Step::Mark,
        ];
        let mut words = Words { only: Some(1), ..Words::default() };
        let own = ["0: fill 0.1.a+8 1 4", "1: graph 0 fill 0.1.a+8 1 4", "mark"];
        assert_eq!(actions(&mut words, 3, steps), [&[][..], &own, &[]]);
        assert!(words.entered.iter().all(|&rank| rank == 1));
    }

    /// If this fails, graphs are confused, or ranks are given the graphs of groups that they are not in.
    #[test]
    fn graphs_are_found_by_their_numbers() {
        let (one, two) = (fills(1), fills(2));
        let capture = |graph, group, plans| Step::Capture { graph, group, plans };
        let replay = |graph| Step::Replay { graph, stream: 0 };
        let steps = vec![capture(9, 0, vec![one.clone(), one]), capture(4, 1, vec![two]), replay(4), replay(9)];
        let of_rank_0 = ["0: graph 1 fill 1.0.a+8 0 4", "0: graph 0 fill 0.0.a+8 0 4, fill 0.0.a+8 0 4"];
        assert_eq!(actions(&mut Words::default(), 2, steps), [&of_rank_0[..], &["0: graph 1 fill 1.1.a+8 1 4"]]);
    }

    /// If this fails, a script of a thousand calls of one plan resolves it a thousand times.
    #[test]
    fn a_plan_is_resolved_once_for_each_group() {
        let plan = fills(2);
        let enqueue = |group| Step::Enqueue { group, stream: 0, plan: plan.clone() };
        let mut target = Words::default();
        let capture = Step::Capture { graph: 0, group: 0, plans: vec![plan.clone()] };
        actions(&mut target, 2, vec![enqueue(0), enqueue(0), capture, enqueue(1)]);
        assert_eq!(target.entered, [0, 1, 0, 1]);
    }
}
