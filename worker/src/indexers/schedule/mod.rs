//! What a lane's sender does next: pure decisions over its requests in flight, without clock, chance, network or threads.
//!
//! The rules:
//! * An id is in at most one request at a time. What was answered is released, so only refused items hold up their id.
//! * Only busy items are sent again. An answer counts against `maxRetries` while others pass: others in the same answer, or
//!   in an earlier one of the same request as long as the backend is not known to take nothing.
//! * A request that is refused as a whole, or in which every item is busy, is an outage: nothing is counted, one request at
//!   a time is tried, and after `maxElapsed` the lane ends with its documents pending.
//! * A request that is refused for something in it (too large, for example) is sent in halves; an item that is refused when
//!   it stands alone fails.

use super::{
    Answer, BackendError, ItemAnswer, Refusal,
    batch::{Ids, Packet},
    retry,
};
use crate::wording::counted;
use penstock_crds::indexers::Retry;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The requests of a lane that are not completely answered, and what is known of the backend.
pub(super) struct Schedule {
    retry: Retry,
    max_in_flight: usize,
    next_number: u64,
    deliveries: Vec<Delivery>,
    ids: Ids,
    outage: Option<Outage>,
}

/// A request until it is completely answered.
struct Delivery {
    number: u64,
    /// Away while it is being sent.
    packet: Option<Packet>,
    /// How many items it has.
    size: usize,
    /// What is to be sent, one after the other.
    parts: VecDeque<Vec<u32>>,
    /// Busy answers that count, one for each item; empty before the first.
    refusals: Vec<u32>,
    /// Rounds with such answers.
    rounds: u32,
    /// An item of it was taken.
    passed: bool,
    not_before: Option<Instant>,
}

/// The backend takes nothing.
struct Outage {
    since: Instant,
    probes: u32,
    next_probe: Instant,
}

/// Something to send.
pub(super) struct Sending {
    pub number: u64,
    pub packet: Packet,
    pub items: Vec<u32>,
}

/// What an answer means.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Items that the backend has.
    pub finished: Vec<u32>,
    /// How many of them were stale.
    pub stale: u64,
    /// Items that failed.
    pub failed: Vec<Failure>,
    /// How many items will be sent again, as a counted retry.
    pub retried: u64,
    /// The backend began or ceased to take nothing.
    pub change: Option<Change>,
    /// The lane must end.
    pub end: Option<BackendError>,
}

/// An item that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub item: u32,
    pub reason: String,
    pub attempts: u32,
}

/// A change in what is known of the backend.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It takes nothing, for this reason.
    Refuses(String),
    /// It takes documents again, after so long.
    Takes(Duration),
}

impl Schedule {
    /// Nothing is on its way yet.
    pub fn new(retry: Retry, max_in_flight: usize) -> Self {
        Self { retry, max_in_flight, next_number: 0, deliveries: Vec::new(), ids: Ids::default(), outage: None }
    }

    /// Whether there is room for one more request.
    pub fn has_room(&self) -> bool {
        self.deliveries.len() < self.max_in_flight
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Whether the lane waits for a backend that takes nothing.
    pub fn is_waiting(&self) -> bool {
        self.outage.is_some()
    }

    /// Whether a request may join: there is room, and none of its ids is on its way.
    pub fn admits(&self, packet: &Packet) -> bool {
        self.has_room() && !packet.keys.iter().any(|key| self.ids.contains(key))
    }

    /// Takes in a request.
    pub fn admit(&mut self, packet: Packet) {
        self.ids.extend(&packet.keys);
        let size = packet.request.items.len();
        let all = (0..size as u32).collect();
        self.deliveries.push(Delivery {
            number: self.next_number,
            packet: Some(packet),
            size,
            parts: VecDeque::from([all]),
            refusals: Vec::new(),
            rounds: 0,
            passed: false,
            not_before: None,
        });
        self.next_number += 1;
    }

    /// What may be sent now.
    pub fn next(&mut self, now: Instant) -> Option<Sending> {
        if self.earliest()?.is_some_and(|at| at > now) {
            return None;
        }
        let ready = |delivery: &&mut Delivery| delivery.packet.is_some() && delivery.not_before.is_none_or(|at| at <= now);
        let delivery = self.deliveries.iter_mut().find(ready)?;
        let packet = delivery.packet.take()?;
        delivery.not_before = None;
        Some(Sending { number: delivery.number, packet, items: delivery.parts.pop_front().unwrap_or_default() })
    }

    /// When to look again if nothing is answered and nothing arrives before.
    pub fn wake(&self) -> Option<Instant> {
        self.earliest().flatten()
    }

    /// When something may be sent at the earliest, if there is something; `Some(None)` means now.
    fn earliest(&self) -> Option<Option<Instant>> {
        let probing = self.outage.is_some() && self.deliveries.iter().any(|delivery| delivery.packet.is_none());
        if probing {
            return None;
        }
        let resting = self.deliveries.iter().filter(|delivery| delivery.packet.is_some());
        let always = self.outage.as_ref().map(|outage| outage.next_probe);
        resting.map(|delivery| delivery.not_before.max(always)).min()
    }

    /// Judges the answer to what was sent. The packet stays with the caller until [`Schedule::give_back`].
    pub fn answered(&mut self, sent: &mut Sending, answer: Answer, now: Instant, random: f64) -> Settled {
        let Some(at) = self.deliveries.iter().position(|delivery| delivery.number == sent.number) else { return Settled::default() };
        let mut settled = Settled::default();
        match answer {
            Answer::Done => {
                settled.finished = std::mem::take(&mut sent.items);
                self.passed(at, now, &mut settled);
            }
            Answer::Items(answers) if answers.len() == sent.items.len() => self.sort(at, &sent.items, answers, now, random, &mut settled),
            Answer::Items(answers) => {
                let message = format!(
                    "the backend gave {} to {}; what became of them is unknown",
                    counted(answers.len() as u64, "answer"),
                    counted(sent.items.len() as u64, "document")
                );
                settled.end = Some(BackendError { message, unreachable: false, source: None });
            }
            Answer::Outage(refusal) => {
                self.deliveries[at].parts.push_front(std::mem::take(&mut sent.items));
                self.refused(refusal, now, random, &mut settled);
            }
            Answer::Split(refusal) => self.split(at, &sent.items, refusal, &mut settled),
            Answer::Fatal(error) => settled.end = Some(error),
        }
        self.release(sent, &settled);
        settled
    }

    /// Takes the packet back. Returns it if all of it is answered.
    pub fn give_back(&mut self, number: u64, packet: Packet) -> Option<Packet> {
        let Some(at) = self.deliveries.iter().position(|delivery| delivery.number == number) else { return Some(packet) };
        if self.deliveries[at].parts.is_empty() {
            self.deliveries.remove(at);
            return Some(packet);
        }
        self.deliveries[at].packet = Some(packet);
        None
    }

    fn sort(&mut self, at: usize, items: &[u32], answers: Vec<ItemAnswer>, now: Instant, random: f64, settled: &mut Settled) {
        let mut busy = Vec::new();
        for (&item, answer) in items.iter().zip(answers) {
            match answer {
                ItemAnswer::Done => settled.finished.push(item),
                ItemAnswer::Stale => {
                    settled.finished.push(item);
                    settled.stale += 1;
                }
                ItemAnswer::Failed(reason) => {
                    let attempts = self.deliveries[at].refusals.get(item as usize).map_or(1, |refusals| refusals + 1);
                    settled.failed.push(Failure { item, reason, attempts });
                }
                ItemAnswer::Busy(refusal) => busy.push((item, refusal)),
            }
        }
        if busy.len() < items.len() {
            self.passed(at, now, settled);
        }
        let Some((_, first)) = busy.first() else { return };
        let counts = self.deliveries[at].passed && self.outage.is_none();
        if !counts {
            let refusal = first.clone();
            self.deliveries[at].parts.push_front(busy.into_iter().map(|(item, _)| item).collect());
            self.refused(refusal, now, random, settled);
            return;
        }
        self.count(at, busy, now, random, settled);
    }

    /// Some items were refused while others passed.
    fn count(&mut self, at: usize, busy: Vec<(u32, Refusal)>, now: Instant, random: f64, settled: &mut Settled) {
        let delivery = &mut self.deliveries[at];
        delivery.refusals.resize(delivery.size, 0);
        let mut again = Vec::new();
        let mut asked = None;
        for (item, refusal) in busy {
            let refusals = &mut delivery.refusals[item as usize];
            *refusals += 1;
            if *refusals > self.retry.max_retries {
                let reason = format!("{} (tried {refusals} times while others passed)", refusal.reason);
                settled.failed.push(Failure { item, reason, attempts: *refusals });
            } else {
                asked = asked.max(refusal.retry_after);
                again.push(item);
            }
        }
        if !again.is_empty() {
            settled.retried = again.len() as u64;
            delivery.not_before = Some(now + retry::wait(&self.retry, delivery.rounds, asked, random));
            delivery.rounds += 1;
            delivery.parts.push_front(again);
        }
    }

    fn split(&mut self, at: usize, items: &[u32], refusal: Refusal, settled: &mut Settled) {
        if let [item] = items {
            settled.failed.push(Failure { item: *item, reason: refusal.reason, attempts: 1 });
            return;
        }
        let (front, back) = items.split_at(items.len() / 2);
        let parts = &mut self.deliveries[at].parts;
        parts.push_front(back.to_vec());
        parts.push_front(front.to_vec());
    }

    /// The backend took something.
    fn passed(&mut self, at: usize, now: Instant, settled: &mut Settled) {
        self.deliveries[at].passed = true;
        if let Some(outage) = self.outage.take() {
            settled.change = Some(Change::Takes(now.saturating_duration_since(outage.since)));
        }
    }

    /// The backend took nothing of a request.
    fn refused(&mut self, refusal: Refusal, now: Instant, random: f64, settled: &mut Settled) {
        let outage = self.outage.get_or_insert_with(|| {
            settled.change = Some(Change::Refuses(refusal.reason.clone()));
            Outage { since: now, probes: 0, next_probe: now }
        });
        let elapsed = now.saturating_duration_since(outage.since);
        let longest = self.retry.max_elapsed.get();
        if elapsed >= longest {
            let message = format!(
                "the backend has taken nothing for {}, longer than retry.maxElapsed allows: {}; its documents stay pending, run again when it is well",
                penstock_crds::values::Duration::from_secs(elapsed.as_secs()),
                refusal.reason
            );
            settled.end = Some(BackendError { message, unreachable: true, source: None });
            return;
        }
        if now < outage.next_probe {
            return; // sent before the outage was known
        }
        let wait = retry::wait(&self.retry, outage.probes, refusal.retry_after, random);
        outage.next_probe = (now + wait).min(outage.since + longest);
        outage.probes = outage.probes.saturating_add(1);
    }

    /// Ids whose operation is answered may travel again.
    fn release(&mut self, sent: &Sending, settled: &Settled) {
        let keys = &sent.packet.keys;
        if !keys.is_empty() {
            for item in settled.finished.iter().chain(settled.failed.iter().map(|failure| &failure.item)) {
                self.ids.remove(&keys[*item as usize]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
