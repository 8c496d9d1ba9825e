//! What memory locations carry from those that release to those that acquire (PTX ISA 8.9.2 to 8.9.4).
//!
//! A strong write leaves a [`Component`] at its location: what its thread published, by its own release, an earlier release on the same
//! location or a fence. An atomic that writes adds to those that are there, since it is next in observation order; any other write
//! replaces them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    clock::{Clock, OperationPos},
    views::{View, Views},
};
use passmuster_ptx::Scope;

/// How far a scope reaches, or must reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Block,
    Cluster,
    Rank,
    System,
}

impl Level {
    pub(super) const COUNT: usize = 4;
    pub(super) const ALL: [Level; Level::COUNT] = [Level::Block, Level::Cluster, Level::Rank, Level::System];

    pub(super) fn of(scope: Scope) -> Level {
        match scope {
            Scope::Cta => Level::Block,
            Scope::Cluster => Level::Cluster,
            Scope::Gpu => Level::Rank,
            Scope::Sys => Level::System,
        }
    }

    pub(super) fn scope(self) -> &'static str {
        match self {
            Level::Block => "cta",
            Level::Cluster => "cluster",
            Level::Rank => "gpu",
            Level::System => "sys",
        }
    }
}

/// A cluster: the operation, and which of its clusters.
pub(super) type Cluster = (u32, u32);

/// A thread, as scopes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) rank: u16,
    pub(super) actor: u32,
    pub(super) cluster: Cluster,
    pub(super) thread: u16,
}

impl Who {
    /// How far scopes of both must reach to include each other.
    pub(super) fn apart(self, other: Who) -> Level {
        match () {
            () if self.actor == other.actor => Level::Block,
            () if self.cluster == other.cluster => Level::Cluster,
            () if self.rank == other.rank => Level::Rank,
            () => Level::System,
        }
    }
}

/// What a write hands on to those that read it or what follows it.
#[derive(Clone, Debug)]
pub(super) struct Component {
    /// Who released; of several threads of a block, the last.
    pub(super) first: Who,
    /// Scope of the first operation of the release pattern.
    pub(super) scope: Level,
    carried: Arc<Carried>,
    /// What the releasing thread did, where the clocks do not have it.
    own: Option<Own>,
    /// What the block had done when its threads met, where the clock of what has retired does not have it.
    retired: Option<Own>,
    /// An atomic after it in observation order was not morally strong with what it saw.
    broken: bool,
}

/// What is handed on but for what the releasing thread did: threads that know the same share it.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// In each view, what is handed on to those that acquire.
    released: [Option<Arc<Clock>>; View::COUNT],
    /// What every strong `.sys` read of it takes, by assumption: in the views of [`View::ASSUMED`].
    assumed: Option<Assumed>,
}

/// What is handed on by assumption, in each of [`View::ASSUMED`].
pub(super) type Assumed = [Arc<Clock>; View::ASSUMED.len()];

impl Carried {
    /// By a strong write of those who know this.
    pub(super) fn new(releases: bool, known: &Views, assumed: Option<Assumed>) -> Carried {
        Carried { released: View::ALL.map(|view| (releases || view.releases_always()).then(|| known.of(view).clone())), assumed }
    }
}

/// What a thread did up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadEpoch {
    pub(super) actor: u32,
    pub(super) place: OperationPos,
    pub(super) thread: u16,
    pub(super) time: u32,
}

/// What a thread did up to a time, and all threads of its block up to an earlier one, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub(super) deeds: ThreadEpoch,
    pub(super) met: u32,
}

impl Own {
    fn has(self, other: ThreadEpoch) -> bool {
        let ThreadEpoch { actor, thread, time, .. } = self.deeds;
        actor == other.actor && (self.met >= other.time || thread == other.thread && time >= other.time)
    }

    fn includes(self, other: Own) -> bool {
        self.deeds.actor == other.deeds.actor && self.met >= other.met && self.has(other.deeds)
    }

    /// What the block did when its threads met, without more of the thread.
    fn of_block(self) -> Own {
        Own { deeds: ThreadEpoch { time: 0, ..self.deeds }, ..self }
    }
}

/// What is handed on in one view: a clock, and what a thread did besides. Most of it is never read, so the two are not made one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Released<'a> {
    pub(super) clock: &'a Arc<Clock>,
    pub(super) own: Option<Own>,
}

/// Bytes that one strong write has written: elements, each of which is a location of its own.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// From the start of the page.
    pub(super) offset: u16,
    /// Of an element.
    pub(super) bytes: u8,
    pub(super) elements: u8,
    /// Changes with every write; numbers are those of no other state of any location.
    pub(super) state: u64,
    /// The last write and its scope.
    pub(super) last: (Who, Level),
    pub(super) components: SmallVec<[Component; 1]>,
}

/// A strong read.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) who: Who,
    pub(super) scope: Level,
    pub(super) acquires: bool,
}

/// What a strong read saw of what a write handed on.
#[derive(Clone, Debug)]
pub(super) struct ObservedRelease {
    component: Component,
    /// How far apart who released and the reader are.
    apart: Level,
    /// Whether the read and the write that it saw are morally strong.
    linked: bool,
    scope: Level,
    acquires: bool,
}

impl Component {
    fn released(&self, view: View) -> Option<Released<'_>> {
        let own = self.own.filter(|_| !view.is_across());
        self.carried.released[view as usize].as_ref().map(|clock| Released { clock, own })
    }

    /// Whether a thread that takes this one, and is no further from its releaser, has no use for the other.
    fn includes(&self, other: &Component) -> bool {
        let released = |view| match (self.released(view), other.released(view)) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => own.includes(other),
        };
        let assumed = match (&self.carried.assumed, &other.carried.assumed) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(theirs)) => {
                let all = View::ASSUMED.into_iter().zip(own).zip(theirs);
                all.into_iter().all(|((view, own), theirs)| self.assumed_in(view, own).includes(other.assumed_in(view, theirs)))
            }
        };
        self.scope >= other.scope && self.broken <= other.broken && assumed && View::ALL.into_iter().all(released)
    }

    /// What it hands on by assumption in a view, with this clock.
    fn assumed_in<'a>(&self, view: View, clock: &'a Arc<Clock>) -> Released<'a> {
        Released { clock, own: self.retired.filter(|_| view == View::Retired) }
    }

    /// Puts what the releasing thread did into the clocks.
    fn settle(&mut self) {
        let (own, retired) = (self.own.take(), self.retired.take());
        let Carried { released, assumed } = Arc::make_mut(&mut self.carried);
        if let Some(own) = own {
            let before = std::mem::take(released);
            for view in View::ALL.into_iter().filter(|view| !view.is_across()) {
                let Some(clock) = &before[view as usize] else { continue };
                let same = (0..view as usize).find(|&other| before[other].as_ref().is_some_and(|other| Arc::ptr_eq(other, clock)));
                let shared = same.and_then(|other| released[other].clone());
                released[view as usize] = Some(shared.unwrap_or_else(|| Released { clock, own: Some(own) }.alone()));
            }
            for view in View::ACROSS {
                released[view as usize] = before[view as usize].clone();
            }
        }
        if let Some([.., clock]) = assumed {
            *clock = Released { clock, own: retired }.alone();
        }
    }
}

impl Released<'_> {
    pub(super) fn add_to(&self, clock: &mut Arc<Clock>) {
        Clock::extend(clock, self.clock);
        if let Some(own) = self.own.filter(|own| !clock.has_own(*own)) {
            Arc::make_mut(clock).add_own(own);
        }
    }

    fn alone(&self) -> Arc<Clock> {
        let mut clock = Arc::default();
        self.add_to(&mut clock);
        clock
    }

    /// Whether it has all of the other. It may say no where it has.
    fn includes(&self, other: Released<'_>) -> bool {
        let own = other.own.is_none_or(|other| self.own.is_some_and(|own| own.includes(other)) || self.clock.has_own(other));
        own && (Arc::ptr_eq(self.clock, other.clock) || self.clock.includes(other.clock))
    }
}

impl ObservedRelease {
    /// What it brings in a view, and the least scope of a fence that it takes for that, if it takes one.
    fn brings(&self, view: View) -> Option<(Option<Level>, Released<'_>)> {
        let released = self.component.released(view)?;
        let any = view.ignores_scopes();
        if !any && (!self.linked || self.component.broken || self.component.scope < self.apart) {
            return None;
        }
        match self.acquires || view.acquires_always() {
            true => (any || self.scope >= self.apart).then_some((None, released)),
            false => Some((Some(if any { Level::Block } else { self.apart }), released)),
        }
    }

    /// What it brings at once, by assumption.
    fn assumed(&self) -> impl Iterator<Item = (View, Released<'_>)> {
        let assumed = self.component.carried.assumed.as_ref().filter(|_| self.scope == Level::System);
        let all = assumed.into_iter().flat_map(|assumed| View::ASSUMED.into_iter().zip(assumed));
        all.map(|(view, clock)| (view, self.component.assumed_in(view, clock)))
    }

    /// What it brings without a fence.
    pub(super) fn at_once(&self) -> impl Iterator<Item = (View, Released<'_>)> {
        let views: &[View] = if self.acquires { &View::ALL } else { &View::THAT_ACQUIRE };
        let brings = |&view: &View| self.brings(view).map(|(_, released)| (view, released));
        views.iter().filter_map(brings).chain(self.assumed())
    }

    /// What it brings where the kernel ends that saw it: what it does at once, and by assumption what an acquire would take.
    pub(super) fn at_the_end(&self) -> impl Iterator<Item = (View, Released<'_>)> {
        let views = View::THAT_ACQUIRE_AT_THE_END.into_iter().filter(|_| !self.acquires);
        self.at_once().chain(views.filter_map(|view| self.brings(view).map(|(_, released)| (view, released))))
    }

    /// Whether it may bring something to those who fence with a scope.
    pub(super) fn may_need(&self, level: Level) -> bool {
        !self.acquires && (level == Level::Block || level == self.apart)
    }

    /// Adds what it brings with just this fence, or at once.
    pub(super) fn merge_into(&self, fence: Option<Level>, views: &mut Views) {
        views.learn(View::ALL.map(|view| self.brings(view).filter(|(needs, _)| *needs == fence).map(|(_, released)| released)));
        if fence.is_none() {
            self.assumed().for_each(|(view, released)| views.learn_in(view, released));
        }
    }

    /// What it brings at once in a view. A thread that polls data has many of these and is asked of them often: of most, the read says that it is nothing.
    fn at_once_in(&self, view: View) -> impl Iterator<Item = Released<'_>> {
        let brought = (self.acquires || view.acquires_always()).then(|| self.brings(view)).flatten().map(|(_, released)| released);
        let assumed = View::ASSUMED.contains(&view).then(|| self.assumed().find(|(of, _)| *of == view)).flatten();
        brought.into_iter().chain(assumed.map(|(_, released)| released))
    }

    /// Whether what any of them brings at once in a view has what a thread did. None of them acquires.
    pub(super) fn any_tells(all: &[ObservedRelease], view: View, deeds: ThreadEpoch) -> bool {
        if !view.acquires_always() && !View::ASSUMED.contains(&view) {
            return false;
        }
        // What one kernel's threads released has mostly one clock, and of each something of its own.
        let mut last: Option<&Arc<Clock>> = None;
        all.iter().flat_map(|sight| sight.at_once_in(view)).any(|released| {
            let again = last.replace(released.clock).is_some_and(|last| Arc::ptr_eq(last, released.clock));
            released.own.is_some_and(|own| own.has(deeds)) || !again && released.clock.has(deeds)
        })
    }
}

impl Location {
    pub(super) fn end(&self) -> u16 {
        self.offset + u16::from(self.bytes) * u16::from(self.elements)
    }

    /// Elements that end where `to` is or before.
    pub(super) fn up_to(&self, to: u16) -> Option<Location> {
        let elements = (to.saturating_sub(self.offset) / u16::from(self.bytes)).min(self.elements.into()) as u8;
        (elements > 0).then(|| Location { elements, ..self.clone() })
    }

    /// Elements that begin where `from` is or after.
    pub(super) fn starting_at(&self, from: u16) -> Option<Location> {
        let skipped = from.saturating_sub(self.offset).div_ceil(self.bytes.into()).min(self.elements.into()) as u8;
        let offset = self.offset + u16::from(skipped) * u16::from(self.bytes);
        (skipped < self.elements).then(|| Location { offset, elements: self.elements - skipped, ..self.clone() })
    }

    /// What a read of this state sees.
    pub(super) fn sights(&self, reader: Reader) -> impl Iterator<Item = ObservedRelease> {
        let Reader { who, scope, acquires } = reader;
        let linked = self.last.0.apart(who) <= self.last.1.min(scope);
        let sight = move |component: &Component| ObservedRelease {
            component: component.clone(),
            apart: component.first.apart(who),
            linked,
            scope,
            acquires,
        };
        self.components.iter().map(sight)
    }

    /// Adds what a write hands on. Threads of one block that release with one scope are taken together.
    pub(super) fn add(&mut self, component: &Component) {
        let same = |known: &&mut Component| {
            (known.first.actor, known.scope, known.broken) == (component.first.actor, component.scope, component.broken)
        };
        let Some(known) = self.components.iter_mut().find(same) else { return self.components.push(component.clone()) };
        if component.includes(known) {
            *known = component.clone();
            return;
        }
        let mut other = component.clone();
        known.settle();
        other.settle();
        let (own, other_carried) = (Arc::make_mut(&mut known.carried), &*other.carried);
        let before = own.released.clone();
        let same = |a: &Option<Arc<Clock>>, b: &Option<Arc<Clock>>| a.as_ref().map(Arc::as_ptr) == b.as_ref().map(Arc::as_ptr);
        let theirs = &other_carried.released;
        for view in 0..View::COUNT {
            let alike = (0..view).find(|&of| same(&before[view], &before[of]) && same(&theirs[view], &theirs[of]));
            own.released[view] = match (alike, &before[view], &theirs[view]) {
                (Some(of), ..) => own.released[of].clone(),
                (None, Some(own), Some(other)) => Some(Clock::join(own, other)),
                (None, own, other) => own.as_ref().or(other.as_ref()).cloned(),
            };
        }
        own.assumed = match (own.assumed.take(), other_carried.assumed.clone()) {
            (Some(own), Some(other)) => Some(std::array::from_fn(|at| Clock::join(&own[at], &other[at]))),
            (own, other) => own.or(other),
        };
        known.first = other.first;
    }

    /// Forgets what was handed on by operations that are over where a later one of their rank, which is not, hands on all of it: a word that atomics
    /// alone write would carry something of every call that there was.
    pub(super) fn forget(&mut self, is_over: impl Fn(Who) -> bool) {
        if self.components.len() < 2 {
            return;
        }
        let over: Vec<bool> = self.components.iter().map(|component| is_over(component.first)).collect();
        let later = |old: &Component| {
            let rest = self.components.iter().zip(&over).filter(|(component, over)| !**over && component.first.rank == old.first.rank);
            rest.into_iter().any(|(component, _)| component.includes(old))
        };
        let kept: Vec<bool> = self.components.iter().zip(&over).map(|(component, over)| !over || !later(component)).collect();
        let mut kept = kept.into_iter();
        self.components.retain(|_| kept.next().unwrap_or(true));
    }

    /// What is left of it where `who` writes with a scope: all of it for an atomic, else only what `who` released here.
    pub(super) fn overwrite(&mut self, who: Who, scope: Level, atomic: bool) {
        if !atomic {
            self.components.retain(|component| component.first == who);
        } else if self.last.0.apart(who) > self.last.1.min(scope) {
            self.components.iter_mut().for_each(|component| component.broken = true);
        }
        self.last = (who, scope);
    }
}

/// What a strong write releases: what its thread knows and did.
pub(super) fn component(who: Who, scope: Level, carried: Arc<Carried>, own: Option<Own>) -> Component {
    Component { first: who, scope, carried, own, retired: own.map(Own::of_block), broken: false }
}

/// What a strong write carries of a fence before it.
pub(super) fn of_fence(who: Who, scope: Level, at_fence: &Views) -> Component {
    component(who, scope, Arc::new(Carried::new(true, at_fence, None)), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a thread of a block did, and all of the block's: whether the first has all of the second.
    #[test]
    fn deeds_include_those_before_them() {
        let own = |actor, thread, time, met| {
            let place = OperationPos { stream: 0, index: 0 };
            Own { deeds: ThreadEpoch { actor, place, thread, time }, met }
        };
        let this = own(1, 3, 9, 5);
        for (other, included) in [
            (this, true),
            (own(1, 3, 8, 5), true),
            (own(1, 3, 9, 4), true),
            (own(1, 4, 5, 5), true),
            (own(1, 4, 5, 4), true),
            (own(1, 3, 10, 5), false),
            (own(1, 4, 6, 5), false),
            (own(1, 3, 9, 6), false),
            (own(2, 3, 9, 5), false),
        ] {
            assert_eq!(this.includes(other), included, "{other:?}");
        }
    }
}
