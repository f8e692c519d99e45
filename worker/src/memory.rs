//! The memory of a thread, told by the allocator: a look costs two loads, so it can be had for every document and every step
//! of a program. Knows nobody else of this crate.

use tikv_jemalloc_ctl::thread::{ThreadLocal, allocatedp, deallocatedp};

// Documents are made by one thread and freed by another; the system's allocator is several times slower at that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

thread_local! {
    static COUNTERS: Option<Counters> = Counters::open();
}

/// Where the allocator counts for one thread.
#[derive(Clone, Copy)]
struct Counters {
    allocated: ThreadLocal<u64>,
    freed: ThreadLocal<u64>,
}

impl Counters {
    fn open() -> Option<Self> {
        Some(Self { allocated: allocatedp::read().ok()?, freed: deallocatedp::read().ok()? })
    }

    fn held(self) -> u64 {
        self.allocated.get().wrapping_sub(self.freed.get())
    }
}

/// What this thread has allocated and freed since it was made.
pub(crate) struct Meter {
    counters: Option<Counters>,
    allocated: u64,
    held: u64,
}

impl Meter {
    /// Counts from now on. A meter stays in its thread.
    pub(crate) fn start() -> Self {
        let counters = COUNTERS.with(|counters| *counters);
        Self { allocated: counters.map_or(0, |counters| counters.allocated.get()), held: counters.map_or(0, Counters::held), counters }
    }

    /// Bytes allocated, whether they were freed again or not.
    pub(crate) fn allocated(&self) -> u64 {
        self.counters.map_or(0, |counters| counters.allocated.get().wrapping_sub(self.allocated))
    }

    /// Bytes allocated and not freed. None if more was freed than allocated.
    pub(crate) fn held(&self) -> u64 {
        let held = self.counters.map_or(0, |counters| counters.held().wrapping_sub(self.held));
        if held > i64::MAX as u64 { 0 } else { held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_thread_allocates_and_frees_is_seen_and_nothing_of_others() {
        let meter = Meter::start();
        let kept = vec![1_u8; 1 << 20];
        drop(vec![1_u8; 2 << 20]);
        std::thread::spawn(|| drop(vec![1_u8; 64 << 20])).join().expect("joined");
        assert!((3 << 20..4 << 20).contains(&meter.allocated()), "{}", meter.allocated());
        assert!((1 << 20..2 << 20).contains(&meter.held()), "{}", meter.held());
        drop(kept);
        assert!(meter.held() < 1 << 20, "{}", meter.held());
    }

    #[test]
    fn more_freed_than_allocated_is_nothing_held() {
        let before = vec![1_u8; 1 << 20];
        let meter = Meter::start();
        drop(before);
        assert_eq!(meter.held(), 0);
    }
}
