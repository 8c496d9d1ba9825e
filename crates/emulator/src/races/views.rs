//! Clocks side by side: the memory model's own, and those that know more because something is assumed or granted.

use std::{collections::HashSet, sync::Arc};

use super::{
    clock::Clock,
    release::{Own, Released},
};

/// A way to decide what is ordered. Each has a clock of its own, which is handed on along the same paths as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Causality order of the PTX ISA.
    Strict,
    /// And what a stream did before a kernel is published by strong `.sys` writes of that kernel, and what strong reads of a kernel saw released is
    /// acquired where the kernel ends.
    Boundary,
    /// And what launches did that a kernel has waited for (`griddepcontrol.wait`) is published by strong `.sys` writes that follow the wait.
    Dependency,
    /// And what came before a barrier of the block is published by strong `.sys` writes after it. Only for writes after reads.
    Retired,
    /// As if all scopes were `.sys`.
    AnyScope,
    /// As if every strong write released.
    EveryRelease,
    /// As if every strong read acquired.
    EveryAcquire,
    /// All three.
    Everything,
    /// Only paths with a `fence.proxy.alias`, or across a kernel's boundary.
    Alias,
    /// Only paths with a `fence.proxy.async` of global memory, or across a kernel's boundary.
    AsyncGlobal,
    /// The same of shared memory.
    AsyncShared,
    /// Only across a kernel's boundary: fences of tensor maps are of one map each, and remembered beside.
    TensorMap,
}

impl View {
    pub(super) const COUNT: usize = 12;

    pub(super) const ALL: [View; View::COUNT] = [
        View::Strict,
        View::Boundary,
        View::Dependency,
        View::Retired,
        View::AnyScope,
        View::EveryRelease,
        View::EveryAcquire,
        View::Everything,
        View::Alias,
        View::AsyncGlobal,
        View::AsyncShared,
        View::TensorMap,
    ];

    /// Those of other proxies, to which fences between proxies alone add what is known.
    pub(super) const ACROSS: [View; 4] = [View::Alias, View::AsyncGlobal, View::AsyncShared, View::TensorMap];

    /// Those in which the end of a kernel acquires what its strong reads saw.
    pub(super) const THAT_ACQUIRE_AT_THE_END: [View; 2] = [View::Boundary, View::Dependency];

    /// Those in which strong `.sys` writes publish what their thread did not release, by assumption.
    pub(super) const ASSUMED: [View; 3] = [View::Boundary, View::Dependency, View::Retired];

    /// Those in which what a read saw is known without an acquire.
    pub(super) const THAT_ACQUIRE: [View; 2] = [View::EveryAcquire, View::Everything];

    pub(super) fn is_across(self) -> bool {
        View::ACROSS.contains(&self)
    }

    pub(super) fn ignores_scopes(self) -> bool {
        matches!(self, View::AnyScope | View::Everything)
    }

    pub(super) fn releases_always(self) -> bool {
        matches!(self, View::EveryRelease | View::Everything)
    }

    pub(super) fn acquires_always(self) -> bool {
        View::THAT_ACQUIRE.contains(&self)
    }
}

/// What is known in each view.
#[derive(Clone, Debug)]
pub(super) struct Views([Arc<Clock>; View::COUNT]);

impl Default for Views {
    fn default() -> Views {
        let nothing = Arc::<Clock>::default();
        Views(std::array::from_fn(|_| nothing.clone()))
    }
}

impl Views {
    #[inline(always)]
    pub(super) fn of(&self, view: View) -> &Arc<Clock> {
        &self.0[view as usize]
    }

    pub(super) fn set(&mut self, view: View, clock: Arc<Clock>) {
        self.0[view as usize] = clock;
    }

    /// Whether both share all clocks.
    pub(super) fn are(&self, other: &Views) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Whether each view knows all threads of an actor up to a time, or none of them.
    pub(super) fn agree_on(&self, actor: u32, time: u32) -> bool {
        self.0.iter().all(|clock| clock.agrees_on(actor, time))
    }

    /// Adds what is handed on in each view. Views that are equal in both stay shared.
    pub(super) fn learn(&mut self, released: [Option<Released<'_>>; View::COUNT]) {
        let before = self.0.each_ref().map(Arc::as_ptr);
        for view in 0..View::COUNT {
            let Some(brought) = released[view] else { continue };
            let shares = |other: Released<'_>| Arc::ptr_eq(other.clock, brought.clock) && other.own == brought.own;
            match (0..view).find(|&other| before[view] == before[other] && released[other].is_some_and(shares)) {
                Some(other) => self.0[view] = self.0[other].clone(),
                None => brought.add_to(&mut self.0[view]),
            }
        }
    }

    /// Adds what is handed on in one view.
    pub(super) fn learn_in(&mut self, view: View, released: Released<'_>) {
        released.add_to(&mut self.0[view as usize]);
    }

    /// With much that is handed on, each in one view: many threads have seen the same clocks, each with something of its own besides. Views
    /// that are equal and receive the same stay shared.
    pub(super) fn with_all<'r>(self: &Arc<Views>, all: impl Iterator<Item = (View, Released<'r>)>) -> Arc<Views> {
        let mut clocks: [Vec<&Arc<Clock>>; View::COUNT] = Default::default();
        let mut deeds: [Vec<Own>; View::COUNT] = Default::default();
        let mut known = HashSet::new();
        for (view, released) in all {
            let clocks = &mut clocks[view as usize];
            let again = clocks.last().is_some_and(|last| Arc::ptr_eq(last, released.clock));
            if !again && known.insert((view as usize, Arc::as_ptr(released.clock))) {
                clocks.push(released.clock);
            }
            deeds[view as usize].extend(released.own);
        }
        let mut views = Views::clone(self);
        for view in 0..View::COUNT {
            let alike = |other: &usize| {
                let same = |(own, other): (&&Arc<Clock>, &&Arc<Clock>)| Arc::ptr_eq(own, other);
                let clocks = clocks[view].len() == clocks[*other].len() && clocks[view].iter().zip(&clocks[*other]).all(same);
                Arc::ptr_eq(&self.0[view], &self.0[*other]) && clocks && deeds[view] == deeds[*other]
            };
            if let Some(other) = (0..view).find(alike) {
                views.0[view] = views.0[other].clone();
                continue;
            }
            clocks[view].iter().for_each(|clock| Clock::extend(&mut views.0[view], clock));
            Clock::extend_by(&mut views.0[view], &deeds[view]);
        }
        if views.are(self) { self.clone() } else { Arc::new(views) }
    }

    /// What either knows. Views that are equal in both stay shared.
    pub(super) fn join(a: &Arc<Views>, b: &Arc<Views>) -> Arc<Views> {
        if Arc::ptr_eq(a, b) {
            return a.clone();
        }
        let mut joined = Views::clone(a);
        for view in 0..View::COUNT {
            let same = (0..view).find(|&other| Arc::ptr_eq(&a.0[view], &a.0[other]) && Arc::ptr_eq(&b.0[view], &b.0[other]));
            joined.0[view] = same.map_or_else(|| Clock::join(&a.0[view], &b.0[view]), |other| joined.0[other].clone());
        }
        match () {
            () if joined.are(a) => a.clone(),
            () if joined.are(b) => b.clone(),
            () => Arc::new(joined),
        }
    }

    /// The first, with what the second knows in some views.
    pub(super) fn join_in(first: &Arc<Views>, second: &Views, views: &[View]) -> Arc<Views> {
        let mut joined = Views::clone(first);
        for &view in views {
            joined.set(view, Clock::join(first.of(view), second.of(view)));
        }
        if joined.are(first) { first.clone() } else { Arc::new(joined) }
    }

    /// With a change to all views but those of other proxies.
    pub(super) fn with(&self, change: impl Fn(&mut Clock)) -> Views {
        self.changed(View::ALL.into_iter().filter(|view| !view.is_across()), change)
    }

    /// With a change to all views.
    pub(super) fn everywhere(&self, change: impl Fn(&mut Clock)) -> Views {
        self.changed(View::ALL.into_iter(), change)
    }

    fn changed(&self, views: impl Iterator<Item = View>, change: impl Fn(&mut Clock)) -> Views {
        let mut changed = self.clone();
        for view in views.map(|view| view as usize) {
            // Views of other proxies come last, so those before one are changed alike.
            let same = (0..view).find(|&other| Arc::ptr_eq(&self.0[view], &self.0[other]));
            changed.0[view] = same.map_or_else(
                || {
                    let mut clock = Clock::clone(&self.0[view]);
                    change(&mut clock);
                    Arc::new(clock)
                },
                |other| changed.0[other].clone(),
            );
        }
        changed
    }

    /// A fence between aliases, or a kernel's boundary: all that is known in order is known to other proxies too.
    pub(super) fn across_proxies(mut self) -> Views {
        for view in View::ACROSS {
            self.set(view, Clock::join(self.of(view), self.of(View::Strict)));
        }
        self
    }
}
