//! The barrier behind a step: once it has passed, no event of the step can come any more that is not in the log already.
//!
//! (1) The workers have committed behind the step's last documents; (2) the indexers have committed what was in the dest topic
//! then; (3) the log is read to where it ended then. What is pending afterwards is unaccounted for.

use super::route::Route;
use crate::kafka::KafkaError;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How often the brokers are asked.
const INTERVAL: Duration = Duration::from_millis(50);

/// Where the barrier is.
#[derive(Debug)]
pub(super) enum Barrier {
    /// The workers are to commit behind these offsets, by partition.
    Workers(BTreeMap<u32, u64>),
    /// The indexers are to commit these offsets.
    Indexers(BTreeMap<u32, u64>),
    /// The log is to be read up to this offset; it is not known yet.
    LogEnd,
    /// The log is to be read up to this offset.
    Log(u64),
}

/// Passes the barrier, one question at a time.
pub(super) struct Passing {
    state: Barrier,
    asked: Option<Instant>,
}

impl Passing {
    /// Behind documents with these highest offsets in the source topic.
    pub fn behind(source_offsets: &BTreeMap<u32, u64>) -> Self {
        let behind = source_offsets.iter().map(|(partition, offset)| (*partition, offset + 1)).collect();
        Self { state: Barrier::Workers(behind), asked: None }
    }

    /// Goes on as far as it can; true once the barrier has passed. `log_read`: the log is read up to there.
    ///
    /// # Errors
    /// The brokers cannot be asked, and will not answer later either.
    pub fn go_on(&mut self, route: &Route, log_end: impl FnOnce() -> Option<u64>, log_read: u64, now: Instant) -> Result<bool, KafkaError> {
        if let Barrier::Log(end) = self.state {
            return Ok(log_read >= end);
        }
        if self.asked.is_some_and(|asked| now - asked < INTERVAL) {
            return Ok(false);
        }
        self.asked = Some(now);
        match self.ask(route, log_end) {
            Ok(Some(next)) => {
                // the next question need not wait
                self.state = next;
                self.asked = None;
                Ok(false)
            }
            Ok(None) => Ok(false),
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                tracing::debug!(%error, "the barrier waits for an answer");
                Ok(false)
            }
        }
    }

    fn ask(&self, route: &Route, log_end: impl FnOnce() -> Option<u64>) -> Result<Option<Barrier>, KafkaError> {
        match &self.state {
            Barrier::Workers(wanted) => {
                let committed = route.committed(&route.names.workers_group, &route.names.source, wanted.keys().copied())?;
                if !is_behind(&committed, wanted) {
                    return Ok(None);
                }
                if !route.is_distributed {
                    return Ok(Some(Barrier::LogEnd));
                }
                let ends = route.ends(&route.names.dest)?;
                Ok(Some(Barrier::Indexers(ends.into_iter().filter(|(_, end)| *end > 0).collect())))
            }
            Barrier::Indexers(wanted) => {
                let committed = route.committed(&route.names.indexers_group, &route.names.dest, wanted.keys().copied())?;
                Ok(is_behind(&committed, wanted).then_some(Barrier::LogEnd))
            }
            Barrier::LogEnd => Ok(log_end().map(Barrier::Log)),
            Barrier::Log(_) => Ok(None),
        }
    }
}

fn is_behind(committed: &BTreeMap<u32, u64>, wanted: &BTreeMap<u32, u64>) -> bool {
    wanted.iter().all(|(partition, offset)| committed.get(partition).is_some_and(|committed| committed >= offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_that_is_asked_for_must_be_committed() {
        let offsets = |pairs: &[(u32, u64)]| pairs.iter().copied().collect::<BTreeMap<_, _>>();
        let wanted = offsets(&[(0, 5), (2, 9)]);
        assert!(is_behind(&offsets(&[(0, 5), (1, 0), (2, 12)]), &wanted));
        assert!(!is_behind(&offsets(&[(0, 5), (2, 8)]), &wanted));
        assert!(!is_behind(&offsets(&[(0, 7)]), &wanted));
        assert!(is_behind(&offsets(&[]), &offsets(&[])));
    }
}
