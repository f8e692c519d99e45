//! Signs of life: which reconciles are at work, and which tasks have died that must not.

use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// A reconcile that takes longer is stuck.
pub const LONGEST_RECONCILE: Duration = Duration::from_secs(300);

/// What is known of the life of the process. Clones know the same.
#[derive(Clone, Default)]
pub struct Vitals(Arc<Known>);

#[derive(Default)]
struct Known {
    at_work: Mutex<HashMap<String, Instant>>,
    dead: Mutex<BTreeSet<String>>,
}

impl Vitals {
    /// An object is at work until the guard is dropped.
    pub fn at_work(&self, object: &str) -> AtWork {
        self.0.at_work.lock().insert(object.to_owned(), Instant::now());
        AtWork { vitals: self.clone(), object: object.to_owned() }
    }

    /// A task lives that must not end before the process does. If the guard is dropped without a word, by a panic for example, it is
    /// dead.
    pub fn task(&self, name: impl Into<String>) -> Alive {
        Alive { vitals: self.clone(), name: name.into(), may_end: false }
    }

    /// What is wrong at that time, if anything is.
    pub fn trouble(&self, now: Instant) -> Option<String> {
        let dead: Vec<String> = self.0.dead.lock().iter().cloned().collect();
        if !dead.is_empty() {
            return Some(format!("ended by itself: {}", dead.join(", ")));
        }
        let at_work = self.0.at_work.lock();
        let stuck = at_work.iter().find(|(_, begun)| now.saturating_duration_since(**begun) > LONGEST_RECONCILE);
        stuck.map(|(object, begun)| {
            format!("the reconcile of {object} has not returned for {} s", now.saturating_duration_since(*begun).as_secs())
        })
    }
}

/// A reconcile at work.
pub struct AtWork {
    vitals: Vitals,
    object: String,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.vitals.0.at_work.lock().remove(&self.object);
    }
}

/// A task that lives.
pub struct Alive {
    vitals: Vitals,
    name: String,
    may_end: bool,
}

impl Alive {
    /// It ends because the process does.
    pub fn ends(mut self) {
        self.may_end = true;
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if !self.may_end {
            self.vitals.0.dead.lock().insert(std::mem::take(&mut self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconcile_that_does_not_return_is_trouble_until_it_does() {
        let (vitals, now) = (Vitals::default(), Instant::now());
        let reconcile = vitals.at_work("Pipeline.shop/books");
        assert_eq!(vitals.trouble(now + Duration::from_secs(299)), None);
        let trouble = vitals.trouble(now + Duration::from_secs(302)).expect("it is stuck");
        assert!(trouble.starts_with("the reconcile of Pipeline.shop/books has not returned for 30"), "{trouble}");
        drop(reconcile);
        assert_eq!(vitals.trouble(now + Duration::from_secs(302)), None);
    }

    #[tokio::test]
    async fn a_task_that_panics_is_named_and_one_that_ends_in_order_is_not() {
        let vitals = Vitals::default();
        vitals.task("watch of Job").ends();
        assert_eq!(vitals.trouble(Instant::now()), None);
        let alive = vitals.task("controller of Pipeline");
        let task = tokio::spawn(async move {
            let _alive = alive;
            assert_eq!(1, 2, "something that cannot be");
        });
        assert!(task.await.is_err());
        assert_eq!(vitals.trouble(Instant::now()).as_deref(), Some("ended by itself: controller of Pipeline"));
    }
}
