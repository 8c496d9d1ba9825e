//! What memory locations carry from those that release to those that acquire (PTX ISA 8.9.2 to 8.9.4).
//!
//! A strong write leaves a [`Component`] at its location: what its thread published, by its own release, an earlier release on the same
//! location or a fence. An atomic that writes adds to those that are there, since it is next in observation order; any other write
//! replaces them.

use std::sync::Arc;

use super::{
    clock::Clock,
    views::{View, Views},
};
use crate::emulator::ptx::Scope;

/// How far a scope reaches, or must reach. A cluster is one block here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Block,
    Rank,
    System,
}

impl Level {
    pub(super) const COUNT: usize = 3;
    pub(super) const ALL: [Level; Level::COUNT] = [Level::Block, Level::Rank, Level::System];

    pub(super) fn of(scope: Scope) -> Level {
        match scope {
            Scope::Cta | Scope::Cluster => Level::Block,
            Scope::Gpu => Level::Rank,
            Scope::Sys => Level::System,
        }
    }

    pub(super) fn scope(self) -> &'static str {
        match self {
            Level::Block => "cta",
            Level::Rank => "gpu",
            Level::System => "sys",
        }
    }
}

/// A thread, as scopes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) rank: u16,
    pub(super) actor: u32,
    pub(super) thread: u16,
}

impl Who {
    /// How far scopes of both must reach to include each other.
    pub(super) fn apart(self, other: Who) -> Level {
        match () {
            () if self.actor == other.actor => Level::Block,
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
    /// In each view, what is handed on to those that acquire.
    pub(super) released: [Option<Arc<Clock>>; View::COUNT],
    /// What every strong `.sys` read of it takes, by assumption: in the views of the boundary and of what has retired.
    pub(super) assumed: Option<[Arc<Clock>; 2]>,
    /// An atomic after it in observation order was not morally strong with what it saw.
    pub(super) broken: bool,
}

/// Bytes that strong writes have written as one.
#[derive(Clone, Debug)]
pub(super) struct Location {
    /// From the start of the page.
    pub(super) offset: u16,
    pub(super) bytes: u8,
    /// Changes with every write; numbers are those of no other state of any location.
    pub(super) state: u64,
    /// The last write and its scope.
    pub(super) last: (Who, Level),
    pub(super) components: Vec<Arc<Component>>,
}

/// A strong read.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) who: Who,
    pub(super) scope: Level,
    pub(super) acquires: bool,
}

/// What a read takes: now, and by the scope that a fence after it must have.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) now: Vec<(View, Arc<Clock>)>,
    pub(super) pending: Vec<(Level, View, Arc<Clock>)>,
}

impl Location {
    /// What a read of this state takes.
    pub(super) fn take(&self, reader: Reader, taken: &mut Taken) {
        let linked = self.last.0.apart(reader.who) <= self.last.1.min(reader.scope);
        for component in &self.components {
            let apart = component.first.apart(reader.who);
            for view in View::ALL {
                let Some(released) = &component.released[view as usize] else { continue };
                let any = view.ignores_scopes();
                if !any && (!linked || component.broken || component.scope < apart) {
                    continue;
                }
                if !(reader.acquires || view.acquires_always()) {
                    taken.pending.push((if any { Level::Block } else { apart }, view, released.clone()));
                } else if any || reader.scope >= apart {
                    taken.now.push((view, released.clone()));
                }
            }
            if let Some([boundary, retired]) = component.assumed.as_ref().filter(|_| reader.scope == Level::System) {
                taken.now.push((View::Boundary, boundary.clone()));
                taken.now.push((View::Retired, retired.clone()));
            }
        }
    }

    /// Adds what a write hands on. Threads of one block that release with one scope are taken together.
    pub(super) fn add(&mut self, component: Component) {
        let same = |known: &&mut Arc<Component>| {
            (known.first.actor, known.scope, known.broken) == (component.first.actor, component.scope, component.broken)
        };
        let Some(known) = self.components.iter_mut().find(same) else { return self.components.push(Arc::new(component)) };
        let known = Arc::make_mut(known);
        for (own, other) in known.released.iter_mut().zip(component.released) {
            *own = match (own.take(), other) {
                (Some(own), Some(other)) => Some(Clock::join(&own, &other)),
                (own, other) => own.or(other),
            };
        }
        known.assumed = match (known.assumed.take(), component.assumed) {
            (Some(own), Some(other)) => Some(std::array::from_fn(|at| Clock::join(&own[at], &other[at]))),
            (own, other) => own.or(other),
        };
        known.first = component.first;
    }

    /// What is left of it where `who` writes with a scope: all of it for an atomic, else only what `who` released here.
    pub(super) fn overwrite(&mut self, who: Who, scope: Level, atomic: bool) {
        if !atomic {
            self.components.retain(|component| component.first == who);
        } else if self.last.0.apart(who) > self.last.1.min(scope) {
            self.components.iter_mut().for_each(|component| Arc::make_mut(component).broken = true);
        }
        self.last = (who, scope);
    }
}

/// What a strong write releases.
pub(super) fn component(who: Who, scope: Level, releases: bool, published: &Views, assumed: impl FnOnce() -> [Arc<Clock>; 2]) -> Component {
    let of = |view: View| (releases || view.releases_always()).then(|| published.of(view).clone());
    Component { first: who, scope, released: View::ALL.map(of), assumed: (scope == Level::System).then(assumed), broken: false }
}

/// What a strong write carries of a fence before it.
pub(super) fn of_fence(who: Who, scope: Level, at_fence: &Views) -> Component {
    let released = View::ALL.map(|view| Some(at_fence.of(view).clone()));
    Component { first: who, scope, released, assumed: None, broken: false }
}
