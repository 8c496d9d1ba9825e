//! Values that are still on their way to the host.

/// What brings a value, without anybody waiting for it. Dropping it is safe while the value is still on its way.
pub trait Pending<T, E>: Send {
    /// Whether the value is there. It does not wait.
    ///
    /// # Errors
    /// Why it will never be.
    fn is_there(&self) -> Result<bool, E>;

    /// Waits until it is, for as long as that takes.
    ///
    /// # Errors
    /// Why it will never be.
    fn wait(&self) -> Result<(), E>;

    /// The value, which is there.
    fn take(self: Box<Self>) -> T;
}

/// A value that may still be on its way, such as what a device copies to the host: it is waited for when it is first used, and not before.
///
/// It may be dropped at any time. What is on its way then arrives all the same, in memory of its own, and nobody gets to see it.
///
/// ```
/// use passmuster_plan::{machine::{Machine, MachineError}, plan::{BufferSpec, Role}};
///
/// fn flag_of_a_peer(machine: &mut dyn Machine) -> Result<bool, MachineError> {
///     let flag = BufferSpec::new("flag", 4, Role::State);
///     let group = machine.open_group(2, &[flag.clone()])?;
///     let mut valid = machine.fetch(group, 1, &flag.whole())?;
///     // Whatever needs no flag is done here. Then:
///     Ok(valid.get()? != &[0; 4])
/// }
/// ```
pub struct Deferred<T, E = super::MachineError> {
    state: State<T, E>,
}

enum State<T, E> {
    There(T),
    Pending(Box<dyn Pending<T, E>>),
    /// Why there is no value.
    Failed(E),
    /// Only while it changes.
    Settling,
}

impl<T, E: Clone> Deferred<T, E> {
    /// A value that is there.
    pub fn ready(value: T) -> Deferred<T, E> {
        Deferred { state: State::There(value) }
    }

    /// A value that something brings.
    pub fn pending(brought: impl Pending<T, E> + 'static) -> Deferred<T, E> {
        Deferred { state: State::Pending(Box::new(brought)) }
    }

    /// The value if it is there by now. Never waits.
    ///
    /// # Errors
    /// Why there will never be one; the same each time.
    pub fn peek(&mut self) -> Result<Option<&T>, E> {
        let there = match &self.state {
            State::Pending(pending) => pending.is_there(),
            _ => Ok(true),
        };
        match there {
            Ok(false) => Ok(None),
            there => self.settle(there.map(drop)).map(Some),
        }
    }

    /// The value, for which the first call waits.
    ///
    /// # Errors
    /// As [`Deferred::peek`].
    pub fn get(&mut self) -> Result<&T, E> {
        let waited = match &self.state {
            State::Pending(pending) => pending.wait(),
            _ => Ok(()),
        };
        self.settle(waited)
    }

    /// The value, when nothing is on its way any more.
    fn settle(&mut self, arrived: Result<(), E>) -> Result<&T, E> {
        self.state = match (std::mem::replace(&mut self.state, State::Settling), arrived) {
            (State::Pending(_), Err(error)) => State::Failed(error),
            (State::Pending(pending), Ok(())) => State::There(pending.take()),
            (settled, _) => settled,
        };
        match &self.state {
            State::There(value) => Ok(value),
            State::Failed(error) => Err(error.clone()),
            State::Pending(_) | State::Settling => unreachable!("it was settled above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// A value that is there from the n-th look on, or never; counts how often it was waited for, and dropped.
    struct Late {
        looks: AtomicUsize,
        there_after: usize,
        fails: bool,
        told: Arc<(AtomicUsize, AtomicUsize)>,
    }

    impl Pending<&'static str, String> for Late {
        fn is_there(&self) -> Result<bool, String> {
            Ok(self.looks.fetch_add(1, Ordering::Relaxed) >= self.there_after)
        }

        fn wait(&self) -> Result<(), String> {
            self.told.0.fetch_add(1, Ordering::Relaxed);
            if self.fails { Err("lost".into()) } else { Ok(()) }
        }

        fn take(self: Box<Self>) -> &'static str {
            "value"
        }
    }

    impl Drop for Late {
        fn drop(&mut self) {
            self.told.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn late(there_after: usize, fails: bool) -> (Deferred<&'static str, String>, Arc<(AtomicUsize, AtomicUsize)>) {
        let told = Arc::<(AtomicUsize, AtomicUsize)>::default();
        (Deferred::pending(Late { looks: AtomicUsize::new(0), there_after, fails, told: told.clone() }), told)
    }

    fn counts(told: &(AtomicUsize, AtomicUsize)) -> (usize, usize) {
        (told.0.load(Ordering::Relaxed), told.1.load(Ordering::Relaxed))
    }

    /// If this fails, looking waits, or the value is waited for more than once.
    #[test]
    fn it_is_waited_for_on_first_use_only() {
        let (mut value, told) = late(2, false);
        (0..2).for_each(|_| assert_eq!(value.peek(), Ok(None)));
        assert_eq!((value.peek(), counts(&told).0), (Ok(Some(&"value")), 0), "it came by itself");
        assert_eq!((value.get(), counts(&told)), (Ok(&"value"), (0, 1)));
        let (mut value, told) = late(usize::MAX, false);
        (0..2).for_each(|_| assert_eq!(value.get(), Ok(&"value")));
        assert_eq!(value.peek(), Ok(Some(&"value")));
        assert_eq!(counts(&told), (1, 1));
        assert_eq!(Deferred::<_, String>::ready(7).get(), Ok(&7));
    }

    #[test]
    fn what_is_lost_is_lost_each_time() {
        let (mut value, told) = late(usize::MAX, true);
        (0..2).for_each(|_| assert_eq!(value.get(), Err("lost".into())));
        assert_eq!(value.peek(), Err("lost".into()));
        assert_eq!(counts(&told), (1, 1));
    }

    #[test]
    fn it_may_be_dropped_on_its_way() {
        let (value, told) = late(usize::MAX, false);
        drop(value);
        assert_eq!(counts(&told), (0, 1), "nobody waits for what nobody wants");
    }
}
