//! A queue between two threads that is bounded in items and in bytes.

use parking_lot::{Condvar, Mutex};
use std::{collections::VecDeque, sync::Arc, time::Instant};

/// Both ends share it; items are batches, so its lock is taken once for some hundred documents.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    limits: Limits,
}

/// What a queue holds at most. One item is always taken, however large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

struct State<T> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    /// No more will be put in.
    finished: bool,
    /// Both sides must stop.
    aborted: bool,
}

/// What [`Queue::take`] found.
pub(crate) enum Taken<T> {
    Item(T),
    Nothing,
    End,
}

impl<T> Queue<T> {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let state = State { items: VecDeque::new(), bytes: 0, finished: false, aborted: false };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), limits })
    }

    /// Puts an item in; waits for room. False if the queue was aborted.
    pub(crate) fn put(&self, item: T, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.aborted
            && !state.items.is_empty()
            && (state.items.len() >= self.limits.items || state.bytes + bytes > self.limits.bytes)
        {
            self.changed.wait(&mut state);
        }
        if state.aborted {
            return false;
        }
        state.bytes += bytes;
        state.items.push_back((item, bytes));
        self.changed.notify_all();
        true
    }

    /// Takes an item out; waits for one, at most until the given moment.
    pub(crate) fn take(&self, until: Option<Instant>) -> Taken<T> {
        let mut state = self.state.lock();
        loop {
            if state.aborted {
                return Taken::End;
            }
            if let Some((item, bytes)) = state.items.pop_front() {
                state.bytes -= bytes;
                self.changed.notify_all();
                return Taken::Item(item);
            }
            if state.finished {
                return Taken::End;
            }
            match until {
                None => self.changed.wait(&mut state),
                Some(until) if Instant::now() >= until => return Taken::Nothing,
                Some(until) => {
                    self.changed.wait_until(&mut state, until);
                }
            }
        }
    }

    /// No more will be put in; what is in it can still be taken.
    pub(crate) fn finish(&self) {
        self.state.lock().finished = true;
        self.changed.notify_all();
    }

    /// Both sides stop at once; what is in it is dropped.
    pub(crate) fn abort(&self) {
        let mut state = self.state.lock();
        state.aborted = true;
        state.items.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn putting_waits_for_room_in_items_and_in_bytes_p21() {
        let queue = Queue::new(Limits { items: 2, bytes: 10 });
        assert!(queue.put(1, 100), "a large item goes alone");
        let putter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || (2..=20).all(|item| queue.put(item, 4))
        });
        let mut seen = Vec::new();
        while seen.len() < 20 {
            assert!(queue.state.lock().items.len() <= 2);
            match queue.take(None) {
                Taken::Item(item) => seen.push(item),
                _ => break,
            }
        }
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        assert!(putter.join().expect("putter"));
    }

    #[test]
    fn an_aborted_queue_wakes_both_sides() {
        let queue = Queue::<u8>::new(Limits { items: 1, bytes: 1 });
        queue.put(1, 1);
        let putter = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.put(2, 1)
        });
        queue.abort();
        assert!(!putter.join().expect("putter"));
        assert!(matches!(queue.take(None), Taken::End));
    }

    #[test]
    fn a_finished_queue_gives_what_it_has() {
        let queue = Queue::new(Limits { items: 9, bytes: 9 });
        queue.put(1, 1);
        queue.finish();
        assert!(matches!(queue.take(None), Taken::Item(1)));
        assert!(matches!(queue.take(None), Taken::End));
        let open = Queue::<u8>::new(Limits { items: 9, bytes: 9 });
        assert!(matches!(open.take(Some(Instant::now() + Duration::from_millis(1))), Taken::Nothing));
    }
}
