//! What every reconcile has around it: only the leader acts, an object that wakes too often is slowed down, failures wait longer each time.

use crate::{
    context::Context,
    error::{Error, ErrorClass},
};
use kube::{
    Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{controller::Action, events::EventType, reflector::ObjectRef},
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

/// So many reconciles of one object …
const BURST: usize = 20;
/// … within this time are enough.
const WINDOW: Duration = Duration::from_secs(10);

/// A kind that the operator reconciles.
pub trait Reconciler: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static {
    /// Brings the world nearer to what the object asks for, and says when to look again.
    fn reconcile(&self, context: &Context) -> impl Future<Output = Result<Action, Error>> + Send;
}

/// Failures in a row and times of late reconciles, by object.
#[derive(Default)]
pub struct History {
    failures: Mutex<HashMap<String, u32>>,
    times: Mutex<HashMap<String, VecDeque<Instant>>>,
}

impl History {
    /// Notes a reconcile. How long it should wait instead, if there were too many of late.
    fn begin(&self, object: &str, now: Instant) -> Option<Duration> {
        let mut times = self.times.lock();
        let times = times.entry(object.to_owned()).or_default();
        while times.front().is_some_and(|time| now.saturating_duration_since(*time) > WINDOW) {
            times.pop_front();
        }
        match times.front() {
            Some(first) if times.len() >= BURST => Some(WINDOW - now.saturating_duration_since(*first)),
            _ => {
                times.push_back(now);
                None
            }
        }
    }

    fn succeeded(&self, object: &str) {
        self.failures.lock().remove(object);
    }

    fn failed(&self, object: &str, class: ErrorClass) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(object.to_owned()).or_default();
        *count += 1;
        class.wait(*count)
    }

    /// Forgets an object that is gone.
    fn forget(&self, object: &str) {
        self.failures.lock().remove(object);
        self.times.lock().remove(object);
    }
}

/// Kind, namespace and name: the key of an object in the history.
fn key<K: Resource<DynamicType = ()>>(object: &DeserializeGuard<K>) -> String {
    ObjectRef::from_obj(object).to_string()
}

/// Reconciles one object.
///
/// # Errors
/// What [`Reconciler::reconcile`] says, or the object cannot be read.
pub async fn reconcile<K: Reconciler>(object: Arc<DeserializeGuard<K>>, context: Arc<Context>) -> Result<Action, Error> {
    if !context.shared.leadership.is_leader() {
        return Ok(Action::await_change());
    }
    let key = key(&object);
    if let Some(wait) = context.shared.history.begin(&key, Instant::now()) {
        context.shared.metrics.throttled(&K::kind(&()));
        return Ok(Action::requeue(wait));
    }
    let kind = K::kind(&());
    let timer = context.shared.metrics.reconcile(&kind);
    let _at_work = context.shared.vitals.at_work(&key);
    let result = match &object.0 {
        Ok(object) => object.reconcile(&context).await,
        Err(invalid) => Err(Error::Unreadable { kind: K::kind(&()).into_owned(), name: key.clone(), reason: invalid.error.clone() }),
    };
    match &result {
        Ok(_) => {
            timer.succeeded();
            context.shared.history.succeeded(&key);
            if object.meta().deletion_timestamp.is_some() && object.finalizers().is_empty() {
                context.shared.history.forget(&key);
            }
        }
        Err(error) => timer.failed(error.class()),
    }
    result
}

/// What is done after a failure.
pub fn error_policy<K: Reconciler>(object: Arc<DeserializeGuard<K>>, error: &Error, context: Arc<Context>) -> Action {
    let (key, class) = (key(&object), error.class());
    let wait = context.shared.history.failed(&key, class);
    tracing::warn!(object = key, error = error.chain(), class = class.as_str(), wait_seconds = wait.as_secs_f64(), "reconcile failed");
    if matches!(class, ErrorClass::Invalid | ErrorClass::Forbidden) {
        context.shared.tell(&*object, EventType::Warning, "ReconcileFailed", error.chain());
    }
    Action::requeue(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_wakes_without_end_is_slowed_down_and_others_are_not() {
        let (history, begun) = (History::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(history.begin("a", begun), None);
        }
        assert_eq!(history.begin("a", begun + Duration::from_secs(4)), Some(Duration::from_secs(6)));
        assert_eq!(history.begin("b", begun), None);
        assert_eq!(history.begin("a", begun + Duration::from_secs(11)), None);
    }

    #[test]
    fn failures_in_a_row_wait_longer_and_a_success_ends_the_row() {
        let history = History::default();
        let waits: Vec<u64> = (0..4).map(|_| history.failed("a", ErrorClass::Transient).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8]);
        history.succeeded("a");
        assert_eq!(history.failed("a", ErrorClass::Transient).as_secs(), 1);
    }
}
