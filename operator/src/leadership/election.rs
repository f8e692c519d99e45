//! The rules of the election. Pure: what stands in the Lease and the clock in, what to write out.
//!
//! They are those of Kubernetes' own controllers: the clocks of two machines are never compared, a candidate measures by its own clock
//! how long it has seen the same words. Every write names the version that was read, so of two that take over one is refused.

use k8s_openapi::{api::coordination::v1::LeaseSpec, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use std::time::{Duration, Instant};

/// How long others leave a lease alone that is not renewed.
pub const LEASE: Duration = Duration::from_secs(15);
/// How long a leader that cannot renew leads on. The rest of the lease is for writes that are on their way.
pub const RENEWAL: Duration = Duration::from_secs(10);
/// Between two looks at the lease.
pub const PAUSE: Duration = Duration::from_secs(2);

/// One who wants to lead.
pub struct Election {
    identity: String,
    /// What stood in the lease, and since when it has.
    seen: Option<(LeaseSpec, Instant)>,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Write this; who has written it leads.
    Write(LeaseSpec),
    /// That one leads.
    Follow(String),
}

impl Election {
    /// A candidate with a name that no other one has, not even an earlier process in the same pod.
    pub fn new(identity: String) -> Self {
        Self { identity, seen: None }
    }

    /// Its name.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Decides by what stands in the lease.
    pub fn decide(&mut self, lease: &LeaseSpec, now: Instant, time: Timestamp) -> Verdict {
        let since = match &self.seen {
            Some((seen, since)) if seen == lease => *since,
            _ => now,
        };
        self.seen = Some((lease.clone(), since));
        let holder = lease.holder_identity.as_deref().unwrap_or_default();
        if holder == self.identity {
            return Verdict::Write(LeaseSpec { renew_time: Some(MicroTime(time)), ..self.hold(lease) });
        }
        let duration = lease.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map_or(LEASE, Duration::from_secs);
        if !holder.is_empty() && now.saturating_duration_since(since) < duration {
            return Verdict::Follow(holder.to_owned());
        }
        Verdict::Write(LeaseSpec {
            acquire_time: Some(MicroTime(time)),
            renew_time: Some(MicroTime(time)),
            lease_transitions: Some(lease.lease_transitions.unwrap_or_default().saturating_add(1)),
            ..self.hold(lease)
        })
    }

    fn hold(&self, lease: &LeaseSpec) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE.as_secs()).ok(),
            ..lease.clone()
        }
    }
}

/// The lease when its holder has given it back: the next one need not wait.
pub fn released(lease: &LeaseSpec) -> LeaseSpec {
    LeaseSpec { holder_identity: None, renew_time: None, acquire_time: None, lease_duration_seconds: None, ..lease.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn written(verdict: Verdict) -> LeaseSpec {
        match verdict {
            Verdict::Write(lease) => lease,
            Verdict::Follow(other) => panic!("follows {other}"),
        }
    }

    #[test]
    fn a_lease_that_nobody_holds_is_taken_and_renewed() {
        let (mut election, begun) = (Election::new("a".into()), Instant::now());
        let taken = written(election.decide(&LeaseSpec::default(), begun, at(1)));
        assert_eq!(
            (taken.holder_identity.as_deref(), taken.lease_duration_seconds, taken.lease_transitions),
            (Some("a"), Some(15), Some(1))
        );
        let renewed = written(election.decide(&taken, begun + PAUSE, at(3)));
        assert_eq!((renewed.renew_time, renewed.acquire_time), (Some(MicroTime(at(3))), Some(MicroTime(at(1)))));
        assert_eq!(renewed.lease_transitions, Some(1));
    }

    #[test]
    fn a_lease_is_left_alone_for_as_long_as_its_holder_said_by_the_own_clock() {
        let (mut election, begun) = (Election::new("b".into()), Instant::now());
        let held = written(Election::new("a".into()).decide(&LeaseSpec::default(), begun, at(1)));
        // the holder's clock is an hour behind, which is not our business
        assert_eq!(election.decide(&held, begun, at(3_600)), Verdict::Follow("a".into()));
        assert_eq!(election.decide(&held, begun + Duration::from_secs(14), at(3_614)), Verdict::Follow("a".into()));
        let renewed = LeaseSpec { renew_time: Some(MicroTime(at(15))), ..held };
        assert_eq!(election.decide(&renewed, begun + Duration::from_secs(16), at(3_616)), Verdict::Follow("a".into()));
        let taken = written(election.decide(&renewed, begun + Duration::from_secs(31), at(3_631)));
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("b"), Some(2)));
    }

    #[test]
    fn a_lease_that_was_given_back_is_taken_at_once() {
        let begun = Instant::now();
        let held = written(Election::new("a".into()).decide(&LeaseSpec::default(), begun, at(1)));
        let taken = written(Election::new("b".into()).decide(&released(&held), begun, at(2)));
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("b"), Some(2)));
    }

    /// One candidate as its process sees it.
    struct Process {
        election: Election,
        leads_until: Option<Instant>,
    }

    proptest! {
        /// Candidates that look whenever they please, are stopped for long, and whose writes are late: never do two lead at once.
        #[test]
        fn two_never_lead_at_the_same_time(steps in prop::collection::vec((0..3_usize, 0..9_000_u64, 0..6_000_u64, any::<bool>()), 1..200)) {
            let begun = Instant::now();
            let mut now = begun;
            let mut stored = (LeaseSpec::default(), 0_u64);
            let mut processes: Vec<Process> =
                ["a", "b", "c"].map(|name| Process { election: Election::new(name.into()), leads_until: None }).into();
            for (who, pause, delay, answered) in steps {
                now += Duration::from_millis(pause);
                let process = &mut processes[who];
                let (read, version) = stored.clone();
                let asked = now;
                let verdict = process.election.decide(&read, now, Timestamp::from_microsecond(now.duration_since(begun).as_micros() as i64).expect("a time"));
                now += Duration::from_millis(delay);
                match verdict {
                    Verdict::Follow(_) => process.leads_until = None,
                    Verdict::Write(lease) if stored.1 == version => {
                        stored = (lease, version + 1);
                        // the answer may get lost: then the write is there and its writer does not know
                        if answered {
                            process.leads_until = Some(asked + RENEWAL);
                        }
                    }
                    Verdict::Write(_) => {}
                }
                let leaders = processes.iter().filter(|process| process.leads_until.is_some_and(|until| now < until)).count();
                prop_assert!(leaders <= 1, "{leaders} lead");
            }
        }
    }
}
