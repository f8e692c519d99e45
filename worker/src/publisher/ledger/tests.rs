//! The ledger against the plain reference, and its rules one by one.

use super::{reference::Reference, *};
use proptest::prelude::*;

/// One event as it stands in the log.
#[derive(Clone, Copy, Debug)]
struct Event {
    epoch: u64,
    attempt: u64,
    outcome: Outcome,
    tag: Tag,
}

fn event(attempt: u64, outcome: Outcome, seq: u64, ordinal: u32, children: u32) -> Event {
    Event { epoch: 1, attempt, outcome, tag: Tag { seq, ordinal, children } }
}

/// Packs consecutive events of a kind into batches of so many at most.
fn batches(events: &[Event], most: usize) -> Vec<EventBatch> {
    let mut out: Vec<EventBatch> = Vec::new();
    for event in events {
        let fits = |batch: &EventBatch| {
            (batch.epoch, batch.attempt, batch.outcome) == (event.epoch, event.attempt, event.outcome) && batch.len() < most
        };
        if !out.last().is_some_and(fits) {
            out.push(EventBatch::new(event.epoch, event.attempt, event.outcome));
        }
        let Some(batch) = out.last_mut() else { continue };
        let seq = event.tag.seq;
        if event.outcome == Outcome::Finished {
            batch.push(event.tag);
        } else {
            batch.push_with(event.tag, Detail { seq, id: format!("{seq}/{}", event.tag.ordinal), ..Detail::default() });
        }
    }
    out
}

fn apply(ledger: &mut Ledger, events: &[Event]) -> Applied {
    let mut applied = Applied::default();
    for batch in batches(events, usize::MAX) {
        applied.add(ledger.apply(&batch, &mut |_| {}));
        assert_invariant(&ledger.counts());
    }
    applied
}

fn assert_invariant(counts: &Counts) {
    assert_eq!(counts.published + counts.created, counts.finished + counts.failed + counts.dropped + counts.pending, "{counts:?}");
}

fn published(seq: u64) -> Ledger {
    let mut ledger = Ledger::new(1);
    ledger.published_to(seq);
    ledger
}

const FINISHED: Outcome = Outcome::Finished;
const FAILED: Outcome = Outcome::Failed;
const DROPPED: Outcome = Outcome::Dropped;

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![4 => Just(FINISHED), 1 => Just(FAILED), 1 => Just(DROPPED)]
}

/// All events of one passage of one document, children first; perhaps cut short.
fn any_passage(numbers: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Vec<Event>> {
    let children = prop_oneof![6 => Just(0_u32), 6 => 1..5_u32, 1 => 29..35_u32, 1 => Just(70_u32)];
    (numbers, children, 0..3_u64, 1..4_u64, 0..20_u32, prop::collection::vec(any_outcome(), 71)).prop_map(
        |(seq, children, attempt, epoch, cut, outcomes)| {
            let tags = (1..=children).map(|ordinal| Tag { seq, ordinal, children: 0 });
            let tags = tags.chain([Tag { seq, ordinal: 0, children }]);
            let missing = if cut < 3 { cut as usize } else { usize::MAX };
            tags.zip(outcomes)
                .enumerate()
                .filter(|(at, _)| *at != missing)
                .map(|(_, (tag, outcome))| Event { epoch, attempt, outcome, tag })
                .collect()
        },
    )
}

/// Passages, some of their events again, from epochs and of numbers that are valid or not; somewhat or wholly out of order.
fn any_log() -> impl Strategy<Value = Vec<Event>> {
    let numbers = prop_oneof![Just(1..=12_u64), Just(4_090..=4_102_u64), Just(1..=9_000_u64)];
    let passages = numbers.prop_flat_map(|numbers| prop::collection::vec(any_passage(numbers), 1..40));
    (passages, any::<bool>(), any::<prop::sample::Index>(), 0..20_usize).prop_flat_map(|(passages, shuffled, again, repeats)| {
        // one passage has one number of descendants
        let mut passed = std::collections::HashMap::new();
        let one_family = |passage: &Vec<Event>| {
            let Some(last) = passage.last() else { return false };
            let children = passage.iter().map(|event| event.tag.children).max();
            *passed.entry((last.tag.seq, last.attempt)).or_insert(children) == children
        };
        let mut events: Vec<Event> = passages.into_iter().filter(one_family).flatten().collect();
        let from = again.index(events.len() + 1);
        events.extend_from_within(from..(from + repeats).min(events.len()));
        if shuffled { Just(events).prop_shuffle().boxed() } else { Just(events).boxed() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn agrees_with_the_plain_reference_at_every_step(log in any_log(), most in 1..300_usize, ahead in 0..400_u64, halves in any::<bool>()) {
        let earlier = vec![ValidRange { epoch: 1, first: 1, last: 5 }, ValidRange { epoch: 2, first: 6, last: 8 }];
        let mut ledger = Ledger::resumed(3, earlier.clone());
        let mut reference = Reference::new([earlier, vec![ValidRange { epoch: 3, first: 9, last: 8 }]].concat());
        let mut total = Applied::default();
        let mut failed = Vec::new();
        for (step, batch) in batches(&log, most).iter().enumerate() {
            if !halves || step % 2 == 0 {
                let to = (step as u64 + 1) * ahead;
                ledger.published_to(to);
                let running = reference.valid.last_mut().expect("three ranges");
                running.last = running.last.max(to);
            }
            total.add(ledger.apply(batch, &mut |detail| failed.push(detail.clone())));
            reference.apply(batch);
            assert_invariant(&ledger.counts());
            prop_assert_eq!(ledger.counts(), reference.counts());
            prop_assert_eq!(total.closed, reference.closed.len() as u64);
            prop_assert_eq!(total.superseded + total.contradicted, reference.changed_nothing);
            prop_assert_eq!(total.void, reference.void);
        }
        prop_assert_eq!(failed.iter().map(|detail| detail.seq).collect::<Vec<_>>(), reference.failed.clone());
        let has_its_own_text = |detail: &Detail| detail.id.starts_with(&format!("{}/", detail.seq));
        prop_assert!(failed.iter().all(has_its_own_text));
        let pending = reference.pending();
        prop_assert_eq!(ledger.lowest_pending(), pending.first().copied());
        prop_assert_eq!(ledger.pending(1_000), &pending[..pending.len().min(1_000)]);
        prop_assert_eq!(ledger.is_settled(), pending.is_empty());
    }

    #[test]
    fn a_ledger_restored_from_a_snapshot_goes_on_as_the_one_that_wrote_it(
        log in any_log(), most in 1..300_usize, cut in any::<prop::sample::Index>(), published in 12..9_000_u64,
    ) {
        let earlier = vec![ValidRange { epoch: 1, first: 1, last: 5 }, ValidRange { epoch: 2, first: 6, last: 8 }];
        let mut ledger = Ledger::resumed(3, earlier.clone());
        ledger.published_to(published);
        let batches = batches(&log, most);
        let (before, behind) = batches.split_at(cut.index(batches.len() + 1));
        for batch in before {
            ledger.apply(batch, &mut |_| {});
        }
        let bytes = postcard::to_stdvec(&ledger.snapshot()).expect("written");
        let snapshot: LedgerSnapshot = postcard::from_bytes(&bytes).expect("read");
        prop_assert_eq!(snapshot.published(), published);
        let valid = [earlier, vec![ValidRange { epoch: 3, first: 9, last: published + 2 }]].concat();
        let mut restored = Ledger::restored(4, valid, snapshot.clone()).expect("valid");
        prop_assert_eq!(restored.counts().pending, ledger.counts().pending + 2);
        ledger.published_to(published + 2);
        for batch in behind {
            let (mut of_ledger, mut of_restored) = (Vec::new(), Vec::new());
            let applied = ledger.apply(batch, &mut |detail| of_ledger.push(detail.clone()));
            prop_assert_eq!(restored.apply(batch, &mut |detail| of_restored.push(detail.clone())), applied);
            prop_assert_eq!(of_restored, of_ledger);
            prop_assert_eq!(restored.counts(), ledger.counts());
        }
        prop_assert_eq!(restored.pending(20_000), ledger.pending(20_000));
        prop_assert_eq!(restored.snapshot().published(), ledger.snapshot().published());
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_read_and_never_more_than_that(log in any_log(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut ledger = published(9_000);
        apply(&mut ledger, &log);
        let mut bytes = postcard::to_stdvec(&ledger.snapshot()).expect("written");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(snapshot) = postcard::from_bytes::<LedgerSnapshot>(&bytes) {
            let restored = Ledger::restored(2, vec![ValidRange { epoch: 1, first: 1, last: 9_000 }], snapshot);
            drop(restored.map(|ledger| ledger.pending(20_000)));
        }
    }

    #[test]
    fn whatever_the_order_a_settled_ledger_holds_no_families(passages in prop::collection::vec(any_passage(1..=10), 1..60)) {
        let mut ledger = published(10);
        apply(&mut ledger, &passages.concat());
        let plain: Vec<_> = (1..=10).map(|seq| event(9, FINISHED, seq, 0, 0)).collect();
        apply(&mut ledger, &plain);
        prop_assert!(ledger.is_settled());
        prop_assert!(ledger.families.is_empty());
    }
}

/// Counts after these events of a step that has published so many documents.
fn counted(documents: u64, events: &[Event]) -> Counts {
    let mut ledger = published(documents);
    apply(&mut ledger, events);
    ledger.counts()
}

fn counts(published: u64, created: u64, [finished, failed, dropped]: [u64; 3]) -> Counts {
    let pending = published + created - finished - failed - dropped;
    Counts { published, created, finished, failed, dropped, pending }
}

#[test]
fn an_event_counts_only_once_its_number_was_given_out_p1() {
    let mut ledger = Ledger::new(1);
    assert_eq!(apply(&mut ledger, &[event(1, FINISHED, 1, 0, 0)]).void, 1);
    ledger.published_to(1);
    ledger.published_to(0);
    assert_eq!(
        apply(&mut ledger, &[event(1, FINISHED, 1, 0, 0), event(1, FINISHED, 0, 0, 0)]),
        Applied { closed: 1, void: 1, ..Applied::default() }
    );
    assert!(ledger.is_settled());
}

#[test]
fn another_outcome_of_a_closed_document_is_told_and_changes_nothing() {
    let mut ledger = published(2);
    apply(&mut ledger, &[event(1, FAILED, 1, 0, 0)]);
    let before = ledger.counts();
    let applied = apply(&mut ledger, &[event(2, FINISHED, 1, 0, 0), event(2, FAILED, 1, 0, 0), event(2, DROPPED, 1, 1, 0)]);
    assert_eq!(applied, Applied { superseded: 2, contradicted: 1, ..Applied::default() });
    assert_eq!(ledger.counts(), before);
}

#[test]
fn failed_members_are_told_when_their_family_is_counted() {
    let mut ledger = published(1);
    let mut told = Vec::new();
    let mut tell = |detail: &Detail| told.push(detail.id.clone());
    for batch in batches(&[event(1, FAILED, 1, 1, 0), event(2, FAILED, 1, 2, 0), event(2, FAILED, 1, 0, 2)], 10) {
        ledger.apply(&batch, &mut tell);
    }
    for batch in batches(&[event(1, FINISHED, 1, 0, 1)], 10) {
        ledger.apply(&batch, &mut tell);
    }
    assert_eq!(told, ["1/1"]);
    assert_eq!(ledger.counts(), Counts { published: 1, created: 1, finished: 1, failed: 1, ..Counts::default() });
}

#[test]
fn two_documents_of_one_id_need_two_terminal_events_p2() {
    let first = event(1, FINISHED, 1, 0, 0);
    assert_eq!(counted(2, &[first, first]), counts(2, 0, [1, 0, 0]));
    assert_eq!(counted(2, &[first, event(1, FINISHED, 2, 0, 0)]), counts(2, 0, [2, 0, 0]));
}

#[test]
fn documents_are_pending_not_ids_p3() {
    assert_eq!(counted(5, &[]).pending, 5);
}

#[test]
fn every_outcome_closes_one_document_and_has_its_own_tally_p4() {
    let events = [event(1, FINISHED, 1, 0, 0), event(1, FAILED, 2, 0, 0), event(1, DROPPED, 3, 0, 0)];
    assert_eq!(counted(4, &events), counts(4, 0, [1, 1, 1]));
}

#[test]
fn an_early_event_of_a_child_is_kept_until_its_family_is_complete_p5() {
    let early = [event(1, DROPPED, 1, 2, 0), event(1, FINISHED, 1, 1, 0)];
    assert_eq!(counted(1, &early), counts(1, 0, [0, 0, 0]));
    assert_eq!(counted(1, &[early[0], early[1], event(1, FINISHED, 1, 0, 2)]), counts(1, 2, [2, 0, 1]));
}

#[test]
fn row_24_children_are_counted_as_created_without_an_event_of_their_own_p6() {
    let parent_first = [event(1, FINISHED, 1, 0, 2), event(1, FINISHED, 1, 1, 0)];
    assert_eq!(counted(1, &parent_first), counts(1, 0, [0, 0, 0]));
    assert_eq!(counted(1, &[parent_first[0], parent_first[1], event(1, FAILED, 1, 2, 0)]), counts(1, 2, [2, 1, 0]));
}

#[test]
fn a_repeated_event_makes_no_second_child_p7() {
    let parent = event(1, FINISHED, 1, 0, 1);
    assert_eq!(counted(1, &[event(1, FINISHED, 1, 1, 0), parent, parent]), counts(1, 1, [2, 0, 0]));
}

#[test]
fn a_repeated_event_leaves_nothing_pending_p8() {
    let parent = event(1, FINISHED, 1, 0, 1);
    assert_eq!(counted(1, &[parent, parent, event(1, FINISHED, 1, 1, 0), event(2, FINISHED, 1, 0, 1)]).pending, 0);
}

#[test]
fn a_repeated_event_swallows_no_later_document_p9() {
    let first = event(1, FINISHED, 1, 0, 0);
    let mut ledger = published(1);
    apply(&mut ledger, &[first, first, first]);
    ledger.published_to(2);
    assert_eq!(ledger.pending(10), [2]);
}

#[test]
fn repeated_events_do_not_inflate_the_tallies_p10() {
    assert_eq!(counted(3, &[event(1, FINISHED, 1, 0, 0); 3]), counts(3, 0, [1, 0, 0]));
}

#[test]
fn a_child_with_the_id_of_its_parent_is_a_document_of_its_own_p11() {
    let events = [event(1, FINISHED, 1, 1, 0), event(1, DROPPED, 1, 0, 1)];
    assert_eq!(counted(1, &events[..1]).pending, 1);
    assert_eq!(counted(1, &events), counts(1, 1, [1, 0, 1]));
}

#[test]
fn a_dropped_child_is_created_and_dropped_p22() {
    assert_eq!(counted(1, &[event(1, DROPPED, 1, 1, 0), event(1, FINISHED, 1, 0, 1)]), counts(1, 1, [1, 0, 1]));
}

#[test]
fn repeated_and_lost_events_neither_end_a_step_early_nor_hold_it_up_x5() {
    let passage = [event(1, FINISHED, 1, 1, 0), event(1, FINISHED, 1, 2, 0), event(1, FINISHED, 1, 0, 2)];
    let lost = [passage[0], passage[0], passage[2], passage[2]];
    assert_eq!(counted(1, &lost).pending, 1, "the event of child 2 is lost");
    let again = passage.map(|event| Event { attempt: 2, ..event });
    assert_eq!(counted(1, &[lost.as_slice(), &again].concat()), counts(1, 2, [3, 0, 0]), "the next attempt replaces it");
}

#[test]
fn row_05_a_child_of_one_attempt_does_not_complete_another() {
    // attempt 1 sent child 1 of 2 and died; attempt 2 drops the parent and has 1 child, which is not indexed yet
    let mixed = [event(1, FINISHED, 1, 1, 0), event(2, DROPPED, 1, 0, 1)];
    assert_eq!(counted(1, &mixed).pending, 1);
    assert_eq!(counted(1, &[mixed[0], mixed[1], event(2, FINISHED, 1, 1, 0)]), counts(1, 1, [1, 0, 1]));
}

#[test]
fn row_05_a_child_that_no_later_attempt_makes_is_not_waited_for() {
    // attempt 1 spoke of 3 children, attempt 2 makes 2
    let first = [event(1, FINISHED, 1, 0, 3), event(1, FINISHED, 1, 1, 0), event(1, FINISHED, 1, 2, 0)];
    let second = [event(2, FINISHED, 1, 1, 0), event(2, FINISHED, 1, 2, 0), event(2, FINISHED, 1, 0, 2)];
    assert_eq!(counted(1, &[first, second].concat()), counts(1, 2, [3, 0, 0]));
}

#[test]
fn row_05_a_document_is_closed_by_the_attempt_that_is_complete_first() {
    let early = [event(1, FINISHED, 1, 0, 1), event(2, FAILED, 1, 0, 0), event(1, FINISHED, 1, 1, 0)];
    assert_eq!(counted(1, &early), counts(1, 0, [0, 1, 0]));
}

#[test]
fn row_23_pending_documents_are_known_by_their_numbers() {
    let mut ledger = published(10_000);
    let but_two: Vec<_> = (1..=10_000).filter(|seq| ![4_097, 9_999].contains(seq)).map(|seq| event(1, FINISHED, seq, 0, 0)).collect();
    apply(&mut ledger, &but_two);
    assert_eq!(ledger.pending(10), [4_097, 9_999]);
    assert_eq!(ledger.pending(1), [4_097]);
    assert_eq!(ledger.lowest_pending(), Some(4_097));
}

#[test]
fn a_snapshot_that_reaches_beyond_the_last_valid_number_is_refused() {
    let snapshot = published(10).snapshot();
    let refused = |valid: ValidRange| Ledger::restored(9, vec![valid], snapshot.clone()).err();
    let other = Some(SnapshotError::OtherNumbers { published: 10 });
    assert_eq!(refused(ValidRange { epoch: 1, first: 1, last: 10 }), None);
    assert_eq!(refused(ValidRange { epoch: 1, first: 1, last: 9 }), other);
    assert_eq!(refused(ValidRange { epoch: 2, first: 1, last: 10 }), other);
}

#[test]
fn a_snapshot_of_what_is_done_is_small() {
    let mut ledger = published(1_000_000);
    apply(&mut ledger, &(1..=999_990).map(|seq| event(1, FINISHED, seq, 0, 0)).collect::<Vec<_>>());
    let bytes = postcard::to_stdvec(&ledger.snapshot()).expect("written");
    assert!(bytes.len() < 600, "{} bytes", bytes.len());
}
