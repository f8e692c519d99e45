//! How far a step is safe: the highest number up to which everything is acknowledged, and the place in the source behind it.

use super::log::Checkpoint;
use crate::connectors::{Cursor, ResumeFrom};
use std::collections::{BTreeMap, VecDeque};

/// Follows what was handed on and what of it is acknowledged. Memory: one entry for each batch that is on its way.
///
/// The cursor travels with the documents: a checkpoint holds the cursor *as of its number*, wherever the connector is by then.
#[derive(Debug)]
pub struct CheckpointTracker {
    epoch: u64,
    /// Parts of the source from the one on in which the last covered document is.
    splits: VecDeque<serde_json::Value>,
    first_split: u32,
    /// Batches on their way: number of the last document, cursor behind it.
    batches: VecDeque<(u64, Cursor)>,
    /// Documents that the publisher itself failed, and whether their event is in the log.
    own_failures: BTreeMap<u64, bool>,
    /// The last number that was given out.
    given_out: u64,
    acknowledged: u64,
    covered: u64,
    /// The last document of the last batch that is covered as a whole, and the place behind it.
    resumable: u64,
    resume: Option<ResumeFrom>,
    /// What the last checkpoint said.
    written: u64,
    written_end: bool,
}

impl CheckpointTracker {
    /// Begins behind the last valid number of earlier publishers, with their place in the source.
    pub fn new(epoch: u64, last_valid: u64, resume: Option<ResumeFrom>) -> Self {
        Self {
            epoch,
            splits: VecDeque::new(),
            first_split: 0,
            batches: VecDeque::new(),
            own_failures: BTreeMap::new(),
            given_out: last_valid,
            acknowledged: last_valid,
            covered: last_valid,
            resumable: last_valid,
            resume,
            written: last_valid,
            written_end: false,
        }
    }

    /// Begins a part of the source; the answer is its number. A connector is in one part at a time.
    pub fn split(&mut self, what: serde_json::Value) -> u32 {
        self.splits.push_back(what);
        self.first_split + self.splits.len() as u32 - 1
    }

    /// Documents up to this number were handed on; the cursor is the one behind the last of them, if the connector has one.
    pub fn handed_on(&mut self, last: u64, after: Option<Cursor>) {
        self.given_out = last;
        if let Some(after) = after {
            self.batches.push_back((last, after));
        }
    }

    /// The publisher itself fails the document of this number: it counts as acknowledged once its event is in the log.
    pub fn own_failure(&mut self, seq: u64) {
        self.own_failures.insert(seq, false);
    }

    /// The event of a document that the publisher itself failed is in the log.
    pub fn own_failure_logged(&mut self, seq: u64) {
        if let Some(logged) = self.own_failures.get_mut(&seq) {
            *logged = true;
        }
        self.cover();
    }

    /// All documents up to this number are acknowledged, apart from those that the publisher itself failed.
    pub fn acknowledged_to(&mut self, seq: u64) {
        self.acknowledged = self.acknowledged.max(seq);
        self.cover();
    }

    /// The highest number up to which everything is acknowledged.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Whether everything that was handed on is covered by the last checkpoint, as far as one can be.
    pub fn is_covered(&self) -> bool {
        self.covered == self.given_out
    }

    /// The checkpoint to write now, if one would say more than the last. `returned`: the connector has given all that its source
    /// has, and everything was handed on. Offsets: see [`Checkpoint::source_offsets`].
    pub fn due(&mut self, returned: bool, source_offsets: &BTreeMap<u32, u64>) -> Option<Checkpoint> {
        let end = returned && self.covered == self.given_out;
        let seq = if end { self.covered } else { self.resumable };
        if seq <= self.written && end == self.written_end {
            return None;
        }
        self.written = seq;
        self.written_end = end;
        Some(Checkpoint { epoch: self.epoch, seq, resume: self.resume.clone(), source_offsets: source_offsets.clone(), end })
    }

    fn cover(&mut self) {
        let mut covered = self.acknowledged.max(self.covered);
        while let Some((seq, logged)) = self.own_failures.first_key_value().map(|(seq, logged)| (*seq, *logged)) {
            if seq > covered + 1 {
                break;
            }
            if !logged {
                covered = seq - 1;
                break;
            }
            covered = covered.max(seq);
            self.own_failures.pop_first();
        }
        self.covered = covered;
        while let Some((last, after)) = self.batches.front().copied().filter(|(last, _)| *last <= covered) {
            self.batches.pop_front();
            self.resumable = last;
            self.resume = self.place(after);
        }
    }

    /// The place of a cursor; parts of the source before it are no longer needed.
    fn place(&mut self, cursor: Cursor) -> Option<ResumeFrom> {
        while self.first_split < cursor.split && self.splits.pop_front().is_some() {
            self.first_split += 1;
        }
        let split = self.splits.front().cloned().unwrap_or_default();
        Some(ResumeFrom { cursor, split })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(split: u32, record: u64) -> Option<Cursor> {
        Some(Cursor { split, record, ..Cursor::default() })
    }

    fn tracker() -> CheckpointTracker {
        CheckpointTracker::new(7, 0, None)
    }

    fn due(tracker: &mut CheckpointTracker, returned: bool) -> Option<(u64, u64, bool)> {
        let checkpoint = tracker.due(returned, &BTreeMap::new())?;
        Some((checkpoint.seq, checkpoint.resume.map_or(0, |resume| resume.cursor.record), checkpoint.end))
    }

    #[test]
    fn row_02_a_checkpoint_holds_the_cursor_of_its_number_not_the_connectors_x9() {
        let mut tracker = tracker();
        tracker.split("a".into());
        tracker.handed_on(10, cursor(0, 110));
        tracker.handed_on(20, cursor(0, 120));
        assert_eq!(due(&mut tracker, false), None);
        tracker.acknowledged_to(15);
        assert_eq!(due(&mut tracker, false), Some((10, 110, false)), "up to the last whole batch");
        assert_eq!(due(&mut tracker, false), None, "nothing new");
        tracker.acknowledged_to(20);
        assert_eq!(due(&mut tracker, true), Some((20, 120, true)));
        assert_eq!(due(&mut tracker, true), None);
    }

    #[test]
    fn row_04_a_document_that_the_publisher_failed_is_covered_once_its_event_is_in_the_log() {
        let mut tracker = tracker();
        tracker.handed_on(1, cursor(0, 1));
        tracker.own_failure(2);
        tracker.handed_on(2, cursor(0, 2));
        tracker.own_failure(3);
        tracker.handed_on(3, cursor(0, 3));
        tracker.handed_on(4, cursor(0, 4));
        tracker.acknowledged_to(4);
        assert_eq!(tracker.covered(), 1);
        tracker.own_failure_logged(3);
        assert_eq!(due(&mut tracker, true), Some((1, 1, false)));
        tracker.own_failure_logged(2);
        assert_eq!(due(&mut tracker, true), Some((4, 4, true)));
    }

    #[test]
    fn own_failures_behind_everything_acknowledged_are_covered() {
        let mut tracker = tracker();
        tracker.handed_on(1, cursor(0, 1));
        tracker.own_failure(2);
        tracker.handed_on(2, cursor(0, 2));
        tracker.own_failure_logged(2);
        assert_eq!(tracker.covered(), 0);
        tracker.acknowledged_to(1);
        assert_eq!(tracker.covered(), 2);
    }

    #[test]
    fn the_end_of_an_empty_source_is_a_checkpoint() {
        let mut tracker = tracker();
        assert_eq!(due(&mut tracker, true), Some((0, 0, true)));
        assert_eq!(due(&mut tracker, true), None);
    }

    #[test]
    fn row_03_without_a_cursor_the_only_checkpoint_is_the_end() {
        let mut tracker = tracker();
        tracker.handed_on(10, None);
        tracker.acknowledged_to(10);
        assert_eq!(due(&mut tracker, false), None);
        assert_eq!(due(&mut tracker, true), Some((10, 0, true)));
    }

    #[test]
    fn the_place_names_the_part_of_the_source_and_forgets_the_parts_before() {
        let mut tracker = tracker();
        for (split, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(tracker.split(name.into()), split as u32);
            tracker.handed_on(split as u64 + 1, cursor(split as u32, 1));
        }
        tracker.acknowledged_to(2);
        let checkpoint = tracker.due(false, &BTreeMap::from([(3, 44)])).expect("two batches are acknowledged");
        assert_eq!(checkpoint.resume.map(|resume| resume.split), Some("b".into()));
        assert_eq!(checkpoint.source_offsets, BTreeMap::from([(3, 44)]));
        assert_eq!(tracker.splits.len(), 2);
        assert_eq!(tracker.split("d".into()), 3);
    }

    #[test]
    fn a_resumed_step_keeps_its_place_until_it_gets_further() {
        let from = ResumeFrom { cursor: Cursor { record: 9, ..Cursor::default() }, split: "a".into() };
        let mut tracker = CheckpointTracker::new(7, 9, Some(from));
        assert_eq!(due(&mut tracker, false), None);
        assert_eq!(due(&mut tracker, true), Some((9, 9, true)));
    }
}
