//! Operations of streams: launches and their blocks, copies, fills, writes of a word and waits for one, library calls.

use std::sync::Arc;

use super::{
    ActorId, At, Code, OperationId, Races,
    actors::{Actor, Block, Kind, Operation},
    check::{Accessor, Span, touch},
    clock::{Clock, OperationPos},
    release::{Carried, Level, Reader, component},
    shadow::{Mode, PAGE, Record, Via},
    views::{View, Views},
};
use crate::memory;
use passmuster_ptx::Module;

/// What an operation that is no launch does with memory.
#[derive(Clone, Copy, Debug)]
struct Whole {
    at: memory::GlobalAddr,
    bytes: u64,
    writes: bool,
    strong: Option<Level>,
}

/// What a stream knew at some time.
#[derive(Clone, Debug)]
pub struct Known(Arc<Views>);

impl Races {
    fn stream(&self, rank: usize, stream: usize) -> usize {
        rank * self.streams_of_rank + stream
    }

    fn begin(&mut self, rank: usize, stream: usize, kind: Kind) -> OperationId {
        let number = self.stream(rank, stream);
        let place = OperationPos { stream: number as u16, index: self.started[number] };
        self.started[number] += 1;
        let start = self.streams[number].clone();
        let id = OperationId(self.operations.len() as u32);
        let begun = self.last[number].take().filter(|_| std::mem::take(&mut self.one_with_the_last[number]));
        self.last[number] = Some((id, begun.map_or_else(|| start.clone(), |(_, known)| known)));
        self.operations.push(Operation { rank, stream, place, kind, end: start.clone(), start, prerequisite: None, waited_for: None });
        id
    }

    fn actor(&mut self, operation: OperationId, block: u32, cluster: u32) -> u32 {
        let Operation { rank, place, .. } = self.operations[operation.0 as usize];
        self.actors.push(Actor { operation: operation.0, block, cluster, rank: rank as u16, place, beside: None });
        self.blocks.push(None);
        self.actors.len() as u32 - 1
    }

    /// An operation is done: its stream knows all that it knew, and all of it.
    fn finish(&mut self, operation: OperationId) {
        let Operation { place, ref end, .. } = self.operations[operation.0 as usize];
        let stream = &mut self.streams[place.stream as usize];
        let known = Views::join(stream, end).with(|clock| clock.add_operation(place));
        *stream = Arc::new(known.across_proxies());
        let operation = &mut self.operations[operation.0 as usize];
        // Accesses of it may be checked against, but what it knew is of no use any more.
        operation.start = self.streams[place.stream as usize].clone();
        operation.end = operation.start.clone();
    }

    /// A launch begins on a stream. `name` is the module's.
    pub fn begin_launch(&mut self, rank: usize, stream: usize, module: &Arc<Module>, name: &str, entry: &str) -> OperationId {
        let kind = self.kernel(module, name, entry);
        self.begin(rank, stream, kind)
    }

    /// A launch begins on a stream that has not waited for the last operation of stream `before` of its rank, which may be the same, but started as
    /// soon as that one had: it knows what that one knew there, and learns of it where its threads wait (`griddepcontrol.wait`).
    pub fn begin_dependent_launch(
        &mut self,
        (rank, stream): (usize, usize),
        before: usize,
        module: &Arc<Module>,
        name: &str,
        entry: &str,
    ) -> OperationId {
        let kind = self.kernel(module, name, entry);
        let before = self.last[self.stream(rank, before)].clone();
        let launch = self.begin(rank, stream, kind);
        if let Some((prerequisite, known)) = before {
            let operation = &mut self.operations[launch.0 as usize];
            operation.prerequisite = Some(prerequisite);
            (operation.start, operation.end) = (known.clone(), known.clone());
            let stream = self.stream(rank, stream);
            self.last[stream] = Some((launch, known));
        }
        launch
    }

    /// What comes next on a stream does what the operation before it did, as one kernel would: a launch that depends on it has waited for neither.
    pub fn go_on_as_one(&mut self, rank: usize, stream: usize) {
        let stream = self.stream(rank, stream);
        self.one_with_the_last[stream] = true;
    }

    /// Lanes have waited for the operation before their launch, which is done.
    pub(crate) fn learn_prerequisite(&mut self, at: At, lanes: u32) {
        let Some(prerequisite) = self.operation_of(at.actor.0).prerequisite else { return };
        let end = self.operations[prerequisite.0 as usize].end.clone();
        let launch = self.actors[at.actor.0 as usize].operation as usize;
        let Operation { start, waited_for, .. } = &mut self.operations[launch];
        waited_for.get_or_insert_with(|| Clock::join(start.of(View::Dependency), end.of(View::Dependency)));
        let Some(block) = self.block(at.actor) else { return };
        block.emptied += 1;
        // No state of a location has such a number.
        let lesson = (u64::MAX - u64::from(prerequisite.0), Level::System);
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            block.learn(at.warp * 32 + lane, lesson, |known| Views::join(known, &end));
        }
    }

    fn kernel(&mut self, module: &Arc<Module>, name: &str, entry: &str) -> Kind {
        let code = self.codes.iter().position(|code| Arc::ptr_eq(&code.module, module) && *code.entry == *entry);
        let code = code.unwrap_or_else(|| {
            let mut functions = Vec::with_capacity(module.functions.len());
            for function in &module.functions {
                functions.push(self.points);
                self.points += function.code.len() as u32;
            }
            self.codes.push(Code { module: module.clone(), name: name.into(), entry: entry.into(), functions });
            self.codes.len() - 1
        });
        Kind::Launch(code as u32)
    }

    /// A block of a launch begins, in the cluster of this number.
    pub fn begin_block(&mut self, launch: OperationId, block: u32, cluster: u32, threads: usize) -> ActorId {
        let actor = self.actor(launch, block, cluster);
        let Operation { place, ref start, .. } = self.operations[launch.0 as usize];
        self.blocks[actor as usize] = Some(Box::new(Block::new(actor, place, threads, start.clone())));
        ActorId(actor)
    }

    /// A block has ended.
    pub fn end_block(&mut self, actor: ActorId) {
        let Some(block) = self.blocks[actor.0 as usize].take() else { return };
        let operation = &mut self.operations[self.actors[actor.0 as usize].operation as usize];
        operation.end = block.end(&operation.end);
        self.asynchronous.end_block(actor.0);
    }

    /// All blocks of a launch have ended.
    pub fn end_launch(&mut self, launch: OperationId) {
        self.finish(launch);
    }

    /// Memory was freed.
    pub fn forget(&mut self, allocation: memory::AllocationId) {
        self.shadow.forget(allocation.index());
    }

    fn touch_whole(&mut self, actor: u32, whole: Whole, views: &Arc<Views>) {
        if whole.bytes == 0 || self.ended {
            return;
        }
        let element = if whole.strong.is_some() { whole.bytes as u8 } else { 1 };
        let mode = Mode { writes: whole.writes, strong: whole.strong, via: Via::Own, vector: false, non_coherent: false, element };
        let (allocation, from) = (whole.at.allocation, whole.at.offset);
        let span = Span { allocation, from, to: from + whole.bytes, width: 0, thread: 0, lanes: 1 };
        let like = Record::like(mode, (actor, 1), u32::MAX, false);
        let strict = views.of(View::Strict);
        let accessor = Accessor { strict, across: views.of(View::Alias), start: strict, actor, met: 0, cache: None };
        touch(&mut self.shadow, &self.actors, &mut self.conflicts, span, like, &accessor);
        self.settle_conflicts(strict);
    }

    fn operate(&mut self, rank: usize, stream: usize, kind: Kind, accesses: &[Whole]) {
        let operation = self.begin(rank, stream, kind);
        let actor = self.actor(operation, 0, 0);
        let views = self.operations[operation.0 as usize].start.clone();
        accesses.iter().for_each(|&access| self.touch_whole(actor, access, &views));
        self.finish(operation);
    }

    /// A copy of a stream.
    pub fn copy(&mut self, rank: usize, stream: usize, from: memory::GlobalAddr, to: memory::GlobalAddr, bytes: u64) {
        let whole = |at, writes| Whole { at, bytes, writes, strong: None };
        self.operate(rank, stream, Kind::Copy, &[whole(from, false), whole(to, true)]);
    }

    /// A fill of a stream.
    pub fn fill(&mut self, rank: usize, stream: usize, at: memory::GlobalAddr, bytes: u64) {
        self.operate(rank, stream, Kind::Fill, &[Whole { at, bytes, writes: true, strong: None }]);
    }

    /// A copy to the host.
    pub fn fetch(&mut self, rank: usize, stream: usize, at: memory::GlobalAddr, bytes: u64) {
        self.operate(rank, stream, Kind::Copy, &[Whole { at, bytes, writes: false, strong: None }]);
    }

    /// A product of two operands.
    pub fn multiply(&mut self, rank: usize, stream: usize, inputs: [(memory::GlobalAddr, u64); 2], output: (memory::GlobalAddr, u64)) {
        let whole = |(at, bytes), writes| Whole { at, bytes, writes, strong: None };
        self.operate(rank, stream, Kind::LibraryCall, &[whole(inputs[0], false), whole(inputs[1], false), whole(output, true)]);
    }

    /// What a stream knows now.
    pub fn known(&self, rank: usize, stream: usize) -> Known {
        Known(self.streams[self.stream(rank, stream)].clone())
    }

    /// What follows on a stream comes after what another knew at some time.
    pub fn learn(&mut self, rank: usize, stream: usize, known: &Known) {
        let stream = self.stream(rank, stream);
        self.streams[stream] = Views::join(&self.streams[stream], &known.0);
        if let Some((_, start)) = &mut self.last[stream] {
            *start = Views::join(start, &known.0);
        }
    }

    /// A stream writes a word of four bytes: a release at `.sys` of all that it did.
    pub fn write_value(&mut self, rank: usize, stream: usize, at: memory::GlobalAddr) {
        let write = Whole { at, bytes: 4, writes: true, strong: Some(Level::System) };
        self.operate(rank, stream, Kind::WriteValue, &[write]);
        let actor = self.actors.len() as u32 - 1;
        let who = self.actors[actor as usize].who(actor, 0);
        let views = self.streams[self.stream(rank, stream)].clone();
        let assumed = View::ASSUMED.map(|view| views.of(view).clone());
        let released = component(who, Level::System, Arc::new(Carried::new(true, &views, Some(assumed))), None);
        self.release_at(at.allocation.index(), at.offset, (4, 1, false), who, Level::System, &[released]);
    }

    /// A stream has waited for a word of four bytes: an acquire at `.sys` of what was released there.
    pub fn wait_value(&mut self, rank: usize, stream: usize, at: memory::GlobalAddr) {
        self.operate(rank, stream, Kind::WaitValue, &[Whole { at, bytes: 4, writes: false, strong: Some(Level::System) }]);
        let actor = self.actors.len() as u32 - 1;
        let who = self.actors[actor as usize].who(actor, 0);
        let page = self.shadow.touched(at.allocation.index(), at.offset);
        let Some(location) = page.and_then(|page| page.location((at.offset % PAGE) as u16, 4)) else { return };
        let sights = location.sights(Reader { who, scope: Level::System, acquires: true });
        let number = self.stream(rank, stream);
        let mut views = Views::clone(&self.streams[number]);
        sights.for_each(|sight| sight.merge_into(None, &mut views));
        self.streams[number] = Arc::new(views.across_proxies());
        // Nothing starts before a wait has ended.
        self.last[number] = None;
    }

    /// A library call of ranks, each on a stream, with what each reads and writes: place and bytes.
    pub fn library_call(
        &mut self,
        callers: &[(usize, usize)],
        inputs: &[(memory::GlobalAddr, u64)],
        outputs: &[(memory::GlobalAddr, u64)],
    ) {
        let numbers: Vec<usize> = callers.iter().map(|&(rank, stream)| self.stream(rank, stream)).collect();
        self.meet(&numbers);
        for ((&(rank, stream), &input), &output) in callers.iter().zip(inputs).zip(outputs) {
            let whole = |(at, bytes), writes| Whole { at, bytes, writes, strong: None };
            self.operate(rank, stream, Kind::LibraryCall, &[whole(input, false), whole(output, true)]);
        }
        self.meet(&numbers);
    }

    /// All of these streams know what each of them knows.
    fn meet(&mut self, streams: &[usize]) {
        let nothing = Arc::<Views>::default();
        let joined = streams.iter().fold(nothing, |joined, &stream| Views::join(&joined, &self.streams[stream]));
        streams.iter().for_each(|&stream| self.streams[stream] = joined.clone());
    }
}
