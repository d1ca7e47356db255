//! The bound on open requests that all routers of a process share.

use relay_protocol::limits;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Counts the open requests of a process; clones are handles on the same count. A core gets it with its configuration, so a test has
/// its own.
#[derive(Clone, Debug)]
pub struct ProcessPending {
    open: Arc<AtomicUsize>,
    limit: usize,
}

impl Default for ProcessPending {
    fn default() -> Self {
        Self::new(limits::PENDING_PER_PROCESS_MAX)
    }
}

impl ProcessPending {
    /// A process that has no open request and may have this many.
    pub fn new(limit: usize) -> Self {
        ProcessPending { open: Arc::default(), limit }
    }

    /// The bound.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Open requests now.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }

    /// Takes a place for one request, whichever router asks.
    ///
    /// # Errors
    /// There is none: how many are open.
    pub(super) fn take(&self) -> Result<Place, usize> {
        self.open.fetch_update(Relaxed, Relaxed, |open| (open < self.limit).then_some(open + 1))?;
        Ok(Place(self.open.clone()))
    }
}

/// One request's place. It is given back when it is dropped, so a record cannot end without doing so, whatever ends it: an answer, a
/// deadline, a close, or the panic of its router.
#[derive(Debug)]
pub(super) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_over_all_handles_and_come_back_when_dropped() {
        let process = ProcessPending::new(2);
        let other = process.clone();
        let (first, second) = (process.take().unwrap(), other.take().unwrap());
        assert_eq!((process.take().unwrap_err(), other.take().unwrap_err(), process.open()), (2, 2, 2));
        drop(first);
        assert_eq!(process.open(), 1, "the refused ones took nothing");
        let third = process.take().unwrap();
        drop((second, third));
        assert_eq!(other.open(), 0);
    }

    #[test]
    fn threads_that_take_at_once_never_pass_the_limit_and_leave_nothing() {
        let process = ProcessPending::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let place = process.take();
                        assert!(process.open() <= 3);
                        drop(place);
                    }
                });
            }
        });
        assert_eq!(process.open(), 0);
    }
}
