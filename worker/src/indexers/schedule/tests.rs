//! What a lane's sender does next, for every kind of answer and in every order.

use super::*;
use crate::{event::Tag, indexers::Item};
use penstock_crds::values;
use proptest::prelude::*;

fn retry() -> Retry {
    Retry {
        max_retries: 2,
        initial_backoff: values::Duration::from_secs(1),
        max_backoff: values::Duration::from_secs(8),
        max_elapsed: values::Duration::from_secs(60),
        ..Retry::default()
    }
}

fn packet(ids: &[u64]) -> Packet {
    let mut packet = Packet::default();
    for id in ids {
        packet.request.items.push(Item { tag: Tag::source(*id), id: id.to_string().into(), end: 0 });
        packet.keys.push(*id);
    }
    packet
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn busy() -> ItemAnswer {
    ItemAnswer::Busy(refusal())
}

fn refusal() -> Refusal {
    Refusal { reason: "429: queue full".into(), retry_after: None }
}

/// A schedule with its own time.
struct Play {
    schedule: Schedule,
    now: Instant,
}

impl Play {
    fn new(max_in_flight: usize) -> Self {
        Self { schedule: Schedule::new(retry(), max_in_flight), now: Instant::now() }
    }

    /// What is sent next, and how long it waited for it.
    fn send(&mut self) -> (Sending, Duration) {
        let began = self.now;
        if let Some(sending) = self.schedule.next(self.now) {
            return (sending, Duration::ZERO);
        }
        self.now = self.schedule.wake().expect("something to wait for");
        (self.schedule.next(self.now).expect("due"), self.now - began)
    }

    fn answer(&mut self, mut sending: Sending, answer: Answer) -> Settled {
        let settled = self.schedule.answered(&mut sending, answer, self.now, 0.0);
        self.schedule.give_back(sending.number, sending.packet);
        settled
    }
}

#[test]
fn only_busy_items_are_sent_again_s17() {
    let mut play = Play::new(1);
    play.schedule.admit(packet(&[10, 11, 12]));
    let (sending, _) = play.send();
    let settled = play.answer(sending, Answer::Items(vec![ItemAnswer::Done, busy(), ItemAnswer::Failed("no".into())]));
    assert_eq!((settled.finished, settled.retried), (vec![0], 1));
    assert_eq!(settled.failed, [Failure { item: 2, reason: "no".into(), attempts: 1 }]);
    let (sending, waited) = play.send();
    assert_eq!((sending.items.clone(), waited), (vec![1], seconds(1)));
    assert_eq!(play.answer(sending, Answer::Done).finished, [1]);
    assert!(play.schedule.is_empty());
}

#[test]
fn an_item_that_stays_busy_while_others_pass_fails_after_the_retries_s17() {
    let mut play = Play::new(1);
    play.schedule.admit(packet(&[10, 11]));
    let (sending, _) = play.send();
    play.answer(sending, Answer::Items(vec![ItemAnswer::Done, busy()]));
    let (sending, first) = play.send();
    assert_eq!(play.answer(sending, Answer::Items(vec![busy()])).retried, 1);
    let (sending, second) = play.send();
    let settled = play.answer(sending, Answer::Items(vec![busy()]));
    assert_eq!((first, second), (seconds(1), seconds(2)));
    let reason = "429: queue full (tried 3 times while others passed)".into();
    assert_eq!(settled.failed, [Failure { item: 1, reason, attempts: 3 }]);
    assert!(play.schedule.is_empty());
}

#[test]
fn nothing_but_busy_items_is_an_outage_and_uses_no_retry_lucille_12_8() {
    let mut play = Play::new(1);
    play.schedule.admit(packet(&[10, 11]));
    let mut waits = Vec::new();
    for round in 0..6 {
        let (sending, waited) = play.send();
        waits.push(waited.as_secs());
        let settled = play.answer(sending, Answer::Items(vec![busy(), busy()]));
        assert!(settled.failed.is_empty() && settled.retried == 0 && settled.end.is_none());
        assert_eq!(settled.change.is_some(), round == 0, "one change of state");
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 8]);
    let (sending, _) = play.send();
    let settled = play.answer(sending, Answer::Done);
    assert_eq!((settled.finished.len(), settled.change), (2, Some(Change::Takes(seconds(31)))));
}

#[test]
fn an_outage_ends_the_lane_after_the_longest_time_with_documents_pending_lucille_12_8() {
    let mut play = Play::new(2);
    let began = play.now;
    play.schedule.admit(packet(&[10]));
    let end = loop {
        let (sending, _) = play.send();
        let settled = play.answer(sending, Answer::Outage(refusal()));
        assert!(settled.failed.is_empty());
        if let Some(end) = settled.end {
            break end;
        }
    };
    assert_eq!(play.now - began, seconds(60));
    assert!(end.unreachable && end.message.contains("longer than retry.maxElapsed"), "{end}");
}

#[test]
fn one_request_at_a_time_is_tried_during_an_outage() {
    let mut play = Play::new(3);
    for id in 0..3 {
        play.schedule.admit(packet(&[id]));
    }
    let sent: Vec<Sending> = (0..3).map(|_| play.send().0).collect();
    for sending in sent {
        play.answer(sending, Answer::Outage(refusal()));
    }
    assert!(play.schedule.next(play.now).is_none(), "it waits first");
    let (probe, waited) = play.send();
    assert_eq!(waited, seconds(1), "three refusals at once are one");
    assert!(play.schedule.next(play.now + seconds(100)).is_none() && play.schedule.wake().is_none(), "one at a time");
    play.answer(probe, Answer::Done);
    assert!(play.schedule.next(play.now).is_some() && play.schedule.next(play.now).is_some(), "then all at once");
}

#[test]
fn what_is_left_of_a_request_uses_no_retry_during_an_outage() {
    let mut play = Play::new(2);
    play.schedule.admit(packet(&[1, 2]));
    let (sending, _) = play.send();
    play.answer(sending, Answer::Items(vec![ItemAnswer::Done, busy()]));
    play.schedule.admit(packet(&[3]));
    let (sending, _) = play.send();
    play.answer(sending, Answer::Outage(refusal()));
    for _ in 0..5 {
        let (sending, _) = play.send();
        let settled = play.answer(sending, Answer::Items(vec![busy()]));
        assert!(settled.failed.is_empty() && settled.retried == 0);
    }
}

#[test]
fn retry_after_is_waited_for() {
    let mut play = Play::new(1);
    play.schedule.admit(packet(&[1]));
    let (sending, _) = play.send();
    play.answer(sending, Answer::Outage(Refusal { reason: String::new(), retry_after: Some(seconds(5)) }));
    assert_eq!(play.send().1, seconds(5));
}

#[test]
fn a_request_that_is_too_large_is_halved_until_one_stands_alone_and_fails() {
    let mut play = Play::new(1);
    play.schedule.admit(packet(&[0, 1, 2, 3, 4]));
    let (mut finished, mut failed) = (Vec::new(), Vec::new());
    while !play.schedule.is_empty() {
        let (sending, waited) = play.send();
        assert_eq!(waited, Duration::ZERO);
        let answer = if sending.items.contains(&3) { Answer::Split(refusal()) } else { Answer::Done };
        let settled = play.answer(sending, answer);
        finished.extend(settled.finished);
        failed.extend(settled.failed.into_iter().map(|failure| failure.item));
    }
    assert_eq!((finished, failed), (vec![0, 1, 2, 4], vec![3]));
}

#[test]
fn a_wrong_number_of_answers_is_never_success() {
    for answers in [vec![], vec![ItemAnswer::Done], vec![ItemAnswer::Done; 3]] {
        let mut play = Play::new(1);
        play.schedule.admit(packet(&[1, 2]));
        let (sending, _) = play.send();
        let settled = play.answer(sending, Answer::Items(answers));
        assert!(settled.finished.is_empty() && settled.end.is_some_and(|end| !end.unreachable));
    }
}

#[test]
fn an_id_is_in_one_request_at_a_time_and_free_as_soon_as_it_is_answered() {
    let mut play = Play::new(4);
    play.schedule.admit(packet(&[1, 2]));
    assert!(!play.schedule.admits(&packet(&[2, 3])) && play.schedule.admits(&packet(&[3])));
    let (sending, _) = play.send();
    play.answer(sending, Answer::Items(vec![busy(), ItemAnswer::Done]));
    assert!(play.schedule.admits(&packet(&[2])), "answered");
    assert!(!play.schedule.admits(&packet(&[1])), "to be sent again");
}

/// What the backend does with one request.
#[derive(Clone, Debug)]
enum Mood {
    Items(Vec<u8>),
    Done,
    Outage,
    Split,
}

fn moods() -> impl Strategy<Value = Vec<Mood>> {
    let mood = prop_oneof![
        6 => prop::collection::vec(0_u8..8, 6).prop_map(Mood::Items),
        2 => Just(Mood::Done),
        1 => Just(Mood::Outage),
        1 => Just(Mood::Split),
    ];
    prop::collection::vec(mood, 0..60)
}

fn answer_in(mood: &Mood, items: usize) -> Answer {
    match mood {
        Mood::Done => Answer::Done,
        Mood::Outage => Answer::Outage(refusal()),
        Mood::Split => Answer::Split(refusal()),
        Mood::Items(kinds) => Answer::Items(
            (0..items)
                .map(|i| match kinds[i % kinds.len()] {
                    0..=2 => ItemAnswer::Done,
                    3 => ItemAnswer::Stale,
                    4 => ItemAnswer::Failed("no".into()),
                    _ => busy(),
                })
                .collect(),
        ),
    }
}

proptest! {
    /// Whatever the backend does and in whichever order requests are answered: every item is settled once, an id is
    /// never on its way twice, operations of one id are settled in their order, and an outage means one request at a time.
    #[test]
    fn every_item_is_settled_once_and_ids_keep_their_order(
        packets in prop::collection::vec(prop::collection::hash_set(0_u64..8, 1..6), 1..12),
        moods in moods(),
        order in prop::collection::vec(any::<prop::sample::Index>(), 200),
        max_in_flight in 1_usize..4,
    ) {
        let mut play = Play::new(max_in_flight);
        // days of outage are not what is tried here
        play.schedule.retry.max_elapsed = values::Duration::from_secs(1 << 40);
        let mut waiting: VecDeque<Packet> = VecDeque::new();
        let mut number = 0;
        for ids in &packets {
            let mut packet = packet(&ids.iter().copied().collect::<Vec<_>>());
            for item in &mut packet.request.items {
                number += 1;
                item.tag.seq = number;
            }
            waiting.push_back(packet);
        }
        let (mut moods, mut order) = (moods.iter(), order.iter().cycle());
        let mut in_flight: Vec<Sending> = Vec::new();
        let mut settled_of: std::collections::HashMap<u64, Vec<u64>> = Default::default();
        loop {
            while let Some(packet) = waiting.pop_front_if(|packet| play.schedule.admits(packet)) {
                play.schedule.admit(packet);
            }
            let waits = play.schedule.is_waiting();
            while let Some(sending) = play.schedule.next(play.now) {
                in_flight.push(sending);
                prop_assert!(!waits || in_flight.len() == 1, "one at a time during an outage");
            }
            let mut ids: Vec<u64> =
                in_flight.iter().flat_map(|sending| sending.items.iter().map(|item| sending.packet.keys[*item as usize])).collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), count, "an id is on its way twice");
            if in_flight.is_empty() {
                let Some(at) = play.schedule.wake() else { break };
                play.now = at;
                continue;
            }
            let index = order.next().map_or(0, |index| index.index(in_flight.len()));
            let mut sending = in_flight.swap_remove(index);
            let answer = moods.next().map_or(Answer::Done, |mood| answer_in(mood, sending.items.len()));
            let settled = play.schedule.answered(&mut sending, answer, play.now, 0.5);
            prop_assert!(settled.end.is_none());
            for failure in &settled.failed {
                prop_assert!(failure.attempts <= 3);
            }
            for item in settled.finished.iter().chain(settled.failed.iter().map(|failure| &failure.item)) {
                let item = &sending.packet.request.items[*item as usize];
                settled_of.entry(item.id.parse().expect("id")).or_default().push(item.tag.seq);
            }
            play.schedule.give_back(sending.number, sending.packet);
        }
        prop_assert!(waiting.is_empty() && play.schedule.is_empty() && play.schedule.ids.is_empty());
        prop_assert_eq!(settled_of.values().map(Vec::len).sum::<usize>() as u64, number, "every item once");
        for seqs in settled_of.values() {
            prop_assert!(seqs.is_sorted_by(|a, b| a < b), "order of one id");
        }
    }
}
