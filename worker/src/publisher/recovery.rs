//! What a publisher learns from the log: which numbers of earlier publishers count, and where to go on. *Claim, then read*: it
//! first writes its own EPOCH, then reads the log up to it, so that nothing can slip in between.

use super::{
    ledger::{Applied, Ledger, ValidRange},
    log::{Checkpoint, EventLog, LogError, LogRecord},
    snapshot::{Assembly, Snapshot},
};
use crate::{connectors::ResumeFrom, event::Detail};
use penstock_crds::ingest_run::Counts;
use std::collections::{BTreeMap, VecDeque};

/// Records read at once.
const READ: usize = 1_000;

/// Snapshots that are kept, the newest: the last may be of a publisher that had lost the log already.
const SNAPSHOTS: usize = 3;

/// What earlier publishers of the step have left, and the ledger to go on with.
#[derive(Debug)]
pub struct Recovered {
    /// The own epoch.
    pub epoch: u64,
    /// The step had publishers before this one: what they send late is to be kept out.
    pub replaced: bool,
    /// The numbers that count, dense from 1, in order.
    pub truth: Vec<ValidRange>,
    /// Where the connector goes on; `None`: at the beginning.
    pub resume: Option<ResumeFrom>,
    /// For each partition of the source topic the highest offset that valid documents have.
    pub source_offsets: BTreeMap<u32, u64>,
    /// The connector has given everything: it is not run again.
    pub ended: bool,
    /// The step is complete with these counts: nothing is published, `post` actions follow.
    pub complete: Option<Counts>,
    /// Other steps in this log that are complete.
    pub others: BTreeMap<String, Counts>,
    /// The ledger of the valid numbers.
    pub ledger: Ledger,
}

impl Recovered {
    /// The last number that counts; the next document gets the next one.
    pub fn last_valid(&self) -> u64 {
        self.truth.last().map_or(0, |range| range.last)
    }
}

/// Claims the log for a step. The answer is the epoch.
///
/// # Errors
/// The log cannot be written.
pub fn claim(log: &dyn EventLog, step: &str) -> Result<u64, LogError> {
    log.append(LogRecord::Epoch { step: step.to_owned() })
}

/// Reads the log up to the own epoch: first what was said of the step, then, with the truth known, the events.
/// The caller reads on behind the epoch.
///
/// # Errors
/// The log cannot be read from its beginning.
pub fn recover(
    log: &dyn EventLog,
    step: &str,
    has_cursor: bool,
    epoch: u64,
    on_failed: &mut dyn FnMut(&Detail),
) -> Result<Recovered, LogError> {
    let first = match log.read(0, 1) {
        Err(LogError::Truncated { first, .. }) => first,
        read => read.map(|_| 0)?,
    };
    let (mut truth, mut assembly, mut snapshots) = (Truth::new(step, has_cursor), Assembly::default(), VecDeque::new());
    for_each_record(log, first, epoch, &mut |offset, record| {
        truth.read(offset, record);
        if let LogRecord::Snapshot(part) = record
            && let Some(snapshot) = assembly.add(part)
            && snapshot.read_to >= first
        {
            snapshots.push_front(snapshot);
            snapshots.truncate(SNAPSHOTS);
        }
    })?;
    let (mut recovered, from) = match first {
        0 => from_beginning(truth.recovered(epoch), step, snapshots),
        _ => from_snapshots(log, step, has_cursor, epoch, snapshots)?.ok_or(LogError::Truncated { wanted: 0, first })?,
    };
    for_each_record(log, from, epoch, &mut |_, record| {
        if let LogRecord::Events(events) = record {
            recovered.ledger.apply(events, on_failed);
        }
    })?;
    Ok(recovered)
}

/// All is there: a snapshot only saves entering the events that it stands for.
fn from_beginning(mut recovered: Recovered, step: &str, snapshots: VecDeque<Snapshot>) -> (Recovered, u64) {
    for snapshot in snapshots.into_iter().filter(|snapshot| snapshot.step == step) {
        let read_to = snapshot.read_to;
        if let Ok(ledger) = Ledger::restored(recovered.epoch, recovered.truth.clone(), snapshot.ledger) {
            recovered.ledger = ledger;
            return (recovered, read_to);
        }
    }
    (recovered, 0)
}

/// The head is gone: what it said is in a snapshot, the newest first. Steps follow one another, so where another step has taken it
/// this one was complete before, and that is said there, or began later.
fn from_snapshots(
    log: &dyn EventLog,
    step: &str,
    has_cursor: bool,
    epoch: u64,
    snapshots: VecDeque<Snapshot>,
) -> Result<Option<(Recovered, u64)>, LogError> {
    for snapshot in snapshots {
        let read_to = snapshot.read_to;
        let mut truth = Truth::going_on(step, has_cursor, &snapshot);
        for_each_record(log, read_to, epoch, &mut |offset, record| truth.read(offset, record))?;
        let mut recovered = truth.recovered(epoch);
        if snapshot.step != step {
            return Ok(Some((recovered, read_to)));
        }
        if let Ok(ledger) = Ledger::restored(epoch, recovered.truth.clone(), snapshot.ledger) {
            recovered.ledger = ledger;
            return Ok(Some((recovered, read_to)));
        }
    }
    Ok(None)
}

fn for_each_record(log: &dyn EventLog, from: u64, end: u64, each: &mut dyn FnMut(u64, &LogRecord)) -> Result<(), LogError> {
    let mut next = from;
    while next < end {
        let records = log.read(next, READ.min((end - next) as usize))?;
        let Some((last, _)) = records.last() else { break };
        next = last + 1;
        for (offset, record) in &records {
            each(*offset, record);
        }
    }
    Ok(())
}

/// Finds out which numbers count. Fed with the records in front of the own epoch, in order.
///
/// For each epoch those from its start to its last CHECKPOINT that stands before the next EPOCH; what an epoch says behind a
/// higher one is void. Without a cursor the source is read again from its beginning, so only a CHECKPOINT with `end` makes
/// anything valid.
#[derive(Debug)]
pub struct Truth {
    step: String,
    has_cursor: bool,
    replaced: bool,
    /// The publisher that held the log, and what it said last.
    holder: Option<(u64, Option<Checkpoint>)>,
    /// Where it was one of another step: which.
    other: Option<(u64, String)>,
    others: BTreeMap<String, Counts>,
    valid: Vec<ValidRange>,
    last: Option<Checkpoint>,
    complete: Option<Counts>,
}

impl Truth {
    /// Nothing read yet.
    pub fn new(step: &str, has_cursor: bool) -> Self {
        let (other, others) = Default::default();
        Self {
            step: step.to_owned(),
            has_cursor,
            replaced: false,
            holder: None,
            other,
            others,
            valid: Vec::new(),
            last: None,
            complete: None,
        }
    }

    /// What was known at the place from which a snapshot goes on.
    fn going_on(step: &str, has_cursor: bool, snapshot: &Snapshot) -> Self {
        let mut truth = Self::new(step, has_cursor);
        truth.others = snapshot.completed();
        truth.complete = truth.others.remove(step);
        truth.replaced = snapshot.step == step || truth.complete.is_some();
        if snapshot.step == step {
            truth.valid = snapshot.earlier();
            truth.holder = Some((snapshot.epoch, None));
        } else {
            truth.other = Some((snapshot.epoch, snapshot.step.clone()));
        }
        truth
    }

    /// Reads the record at an offset.
    pub fn read(&mut self, offset: u64, record: &LogRecord) {
        match record {
            LogRecord::Epoch { step } => {
                self.settle();
                self.holder = (*step == self.step).then_some((offset, None));
                self.replaced |= self.holder.is_some();
                self.other = (*step != self.step).then(|| (offset, step.clone()));
            }
            LogRecord::Checkpoint(checkpoint) => {
                if let Some((epoch, last)) = &mut self.holder
                    && *epoch == checkpoint.epoch
                {
                    *last = Some(checkpoint.clone());
                }
            }
            LogRecord::Complete { epoch, counts } => {
                if self.holder.as_ref().is_some_and(|(holder, _)| holder == epoch) {
                    self.complete = Some(*counts);
                } else if let Some((_, step)) = self.other.as_ref().filter(|(other, _)| other == epoch) {
                    self.others.insert(step.clone(), *counts);
                }
            }
            LogRecord::Events(_) | LogRecord::Snapshot(_) => {}
        }
    }

    /// What was found, for the publisher of that epoch.
    pub fn recovered(mut self, epoch: u64) -> Recovered {
        self.settle();
        let ended = self.has_ended();
        let (resume, source_offsets) = self.last.map_or_else(Default::default, |last| (last.resume, last.source_offsets));
        let ledger = Ledger::resumed(epoch, self.valid.clone());
        Recovered {
            epoch,
            replaced: self.replaced,
            truth: self.valid,
            resume,
            source_offsets,
            ended,
            complete: self.complete,
            others: self.others,
            ledger,
        }
    }

    fn has_ended(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.end)
    }

    /// The holder has lost the log: what it said last stands.
    fn settle(&mut self) {
        let Some((epoch, checkpoint)) = self.holder.take() else { return };
        let starts_over = !self.has_cursor && !self.has_ended();
        if starts_over && !checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.end) {
            self.valid.clear();
            self.last = None;
            return;
        }
        let Some(checkpoint) = checkpoint else { return };
        let first = self.valid.last().map_or(1, |range| range.last + 1);
        if checkpoint.seq >= first {
            self.valid.push(ValidRange { epoch, first, last: checkpoint.seq });
        }
        self.last = Some(checkpoint);
    }
}

/// What a record behind the own epoch means for its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Events, entered into the ledger.
    Events(Applied),
    /// Another publisher has claimed the log: stop at once.
    Superseded {
        /// Its epoch.
        by: u64,
    },
    /// The own COMPLETE, with no other publisher's EPOCH before it: it stands.
    Complete,
    /// Nothing new.
    Nothing,
}

/// Enters a record behind the own epoch.
pub fn read_on(ledger: &mut Ledger, own: u64, offset: u64, record: &LogRecord, on_failed: &mut dyn FnMut(&Detail)) -> Seen {
    match record {
        LogRecord::Events(events) => Seen::Events(ledger.apply(events, on_failed)),
        LogRecord::Epoch { .. } if offset > own => Seen::Superseded { by: offset },
        LogRecord::Complete { epoch, .. } if *epoch == own => Seen::Complete,
        LogRecord::Epoch { .. } | LogRecord::Complete { .. } | LogRecord::Checkpoint(_) | LogRecord::Snapshot(_) => Seen::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        connectors::Cursor,
        event::{EventBatch, Outcome, Tag},
        publisher::log::MemoryLog,
    };

    struct Log(MemoryLog);

    impl Log {
        fn new() -> Self {
            Self(MemoryLog::default())
        }
        fn epoch(&self) -> u64 {
            claim(&self.0, "step").expect("memory")
        }
        fn add(&self, record: LogRecord) -> &Self {
            self.0.append(record).expect("memory");
            self
        }
        fn checkpoint(&self, epoch: u64, seq: u64, end: bool) -> &Self {
            let cursor = Cursor { record: seq, ..Cursor::default() };
            let resume = Some(ResumeFrom { cursor, split: "file".into() });
            self.add(LogRecord::Checkpoint(Checkpoint { epoch, seq, resume, source_offsets: BTreeMap::new(), end }))
        }
        fn finish(&self, epoch: u64, seqs: &[u64]) -> &Self {
            let mut events = EventBatch::new(epoch, 1, Outcome::Finished);
            seqs.iter().for_each(|seq| events.push(Tag::source(*seq)));
            self.add(LogRecord::Events(events))
        }
        fn complete(&self, epoch: u64) -> &Self {
            self.add(LogRecord::Complete { epoch, counts: Counts { published: 7, finished: 7, ..Counts::default() } })
        }
        fn recover(&self, has_cursor: bool) -> Recovered {
            let epoch = self.epoch();
            recover(&self.0, "step", has_cursor, epoch, &mut |_| {}).expect("memory")
        }
    }

    fn at(recovered: &Recovered) -> Option<u64> {
        recovered.resume.as_ref().map(|resume| resume.cursor.record)
    }

    fn range(epoch: u64, first: u64, last: u64) -> ValidRange {
        ValidRange { epoch, first, last }
    }

    #[test]
    fn an_empty_log_starts_at_the_beginning() {
        let recovered = Log::new().recover(true);
        assert_eq!((recovered.epoch, recovered.last_valid(), recovered.ended, recovered.complete), (0, 0, false, None));
        assert_eq!((recovered.truth.len(), at(&recovered)), (0, None));
    }

    #[test]
    fn row_02_the_successor_goes_on_at_the_cursor_of_the_last_checkpoint() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, false).checkpoint(first, 3, false).finish(first, &[1, 4]);
        let second = log.epoch();
        log.checkpoint(second, 5, false).finish(first, &[2]).finish(second, &[3, 4, 5]);
        let recovered = log.recover(true);
        assert_eq!(recovered.truth, [range(first, 1, 3), range(second, 4, 5)]);
        assert_eq!((recovered.last_valid(), at(&recovered)), (5, Some(5)));
        // number 4 of the first publisher was never covered: its event is void, the second's counts; 3 was the first's to give
        assert_eq!(recovered.ledger.pending(10), [3]);
    }

    #[test]
    fn row_03_without_a_cursor_only_a_checkpoint_with_end_makes_numbers_valid() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, false).finish(first, &[1, 2]);
        let recovered = log.recover(false);
        assert_eq!((recovered.truth.len(), recovered.last_valid(), at(&recovered)), (0, 0, None));
        assert!(recovered.ledger.is_settled());
        log.checkpoint(recovered.epoch, 4, true);
        log.epoch();
        let recovered = log.recover(false);
        assert_eq!(recovered.truth.iter().map(|range| (range.first, range.last)).collect::<Vec<_>>(), [(1, 4)]);
        assert!(recovered.ended, "what has ended stays so, also through a publisher that said nothing");
    }

    #[test]
    fn row_09_what_is_said_behind_a_higher_epoch_is_void() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 1, false);
        let second = log.epoch();
        log.checkpoint(first, 2, false).complete(first).checkpoint(second, 2, false);
        let recovered = log.recover(true);
        assert_eq!(recovered.truth, [range(first, 1, 1), range(second, 2, 2)]);
        assert_eq!(recovered.complete, None);
    }

    #[test]
    fn row_09_every_publisher_has_an_epoch_of_its_own() {
        let log = Log::new();
        let epochs: Vec<_> = (0..5).map(|_| log.epoch()).collect();
        assert!(epochs.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn row_15_a_complete_step_stays_complete_for_all_successors() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 7, true).finish(first, &[1, 2, 3, 4, 5, 6, 7]).complete(first);
        for _ in 0..3 {
            let recovered = log.recover(true);
            assert_eq!(recovered.complete.map(|counts| counts.finished), Some(7));
            assert!(recovered.ended && recovered.ledger.is_settled());
        }
    }

    #[test]
    fn row_15_a_superseded_publisher_does_not_read_its_complete() {
        let log = Log::new();
        let first = log.epoch();
        let second = log.epoch();
        log.complete(first).complete(second);
        let seen = |own: u64| -> Vec<Seen> {
            let mut ledger = Ledger::new(own);
            let records = log.0.read(own + 1, 10).expect("memory");
            records.iter().map(|(offset, record)| read_on(&mut ledger, own, *offset, record, &mut |_| {})).collect()
        };
        assert_eq!(seen(first)[0], Seen::Superseded { by: second });
        assert_eq!(seen(second), [Seen::Nothing, Seen::Complete]);
    }

    #[test]
    fn row_27_counts_step_back_to_the_last_checkpoint_and_their_sum_stays_true() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, false).finish(first, &[1, 3, 2, 4]);
        let counts = log.recover(true).ledger.counts();
        assert_eq!(counts, Counts { published: 2, finished: 2, ..Counts::default() });
    }

    #[test]
    fn steps_that_share_a_log_are_separate_truths_and_fence_each_other() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, true).finish(first, &[1, 2]).complete(first);
        let other = claim(&log.0, "other").expect("memory");
        log.checkpoint(other, 9, false).checkpoint(first, 5, false);
        let recovered = log.recover(true);
        assert_eq!(recovered.truth, [range(first, 1, 2)]);
        let epoch = claim(&log.0, "other").expect("memory");
        let of_other = recover(&log.0, "other", true, epoch, &mut |_| {}).expect("memory");
        assert_eq!(of_other.truth, [range(other, 1, 9)]);
        assert_eq!((of_other.complete, of_other.ended), (None, false));
    }

    /// A snapshot as the publisher of that epoch would take it when the log is read to its present end.
    fn snapshot(log: &Log, epoch: u64, published: u64, earlier: Vec<ValidRange>) -> Snapshot {
        let mut ledger = Ledger::resumed(epoch, earlier);
        ledger.published_to(published);
        let end = log.0.end().expect("memory");
        let from = log.0.read(0, 1).map_or_else(|_| 2, |_| 0);
        for_each_record(&log.0, from, end, &mut |_, record| {
            if let LogRecord::Events(events) = record {
                ledger.apply(events, &mut |_| {});
            }
        })
        .expect("memory");
        Snapshot::take(epoch, "step", end, &ledger, &BTreeMap::new())
    }

    fn write(log: &Log, snapshot: &Snapshot) {
        snapshot.records().into_iter().for_each(|record| drop(log.0.append(record)));
    }

    #[test]
    fn a_step_is_recovered_from_a_snapshot_when_the_head_is_gone() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 3, false).finish(first, &[1, 3]);
        let second = log.epoch();
        log.finish(second, &[4, 5]);
        let taken = snapshot(&log, second, 6, vec![range(first, 1, 3)]);
        log.checkpoint(second, 6, false);
        write(&log, &taken);
        log.finish(second, &[6]).checkpoint(second, 8, false).finish(first, &[2]);
        let whole = log.recover(true);
        log.0.forget_before(taken.read_to);
        let recovered = log.recover(true);
        assert_eq!(recovered.truth, whole.truth);
        assert_eq!(recovered.truth, [range(first, 1, 3), range(second, 4, 8)]);
        assert_eq!((recovered.ledger.counts(), recovered.ledger.pending(9)), (whole.ledger.counts(), vec![7, 8]));
        assert_eq!((at(&recovered), recovered.last_valid()), (Some(8), 8));
        log.0.forget_before(taken.read_to + 1);
        let gone = recover(&log.0, "step", true, recovered.epoch, &mut |_| {}).map(|recovered| recovered.epoch);
        assert_eq!(gone, Err(LogError::Truncated { wanted: 0, first: taken.read_to + 1 }), "what is behind the snapshot is needed");
    }

    #[test]
    fn a_snapshot_that_no_checkpoint_covers_is_passed_over() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, false).finish(first, &[1, 2, 3]);
        write(&log, &snapshot(&log, first, 3, Vec::new()));
        let recovered = log.recover(true);
        assert_eq!(recovered.ledger.counts(), Counts { published: 2, finished: 2, ..Counts::default() });
    }

    #[test]
    fn row_15_a_step_whose_records_are_gone_stays_complete() {
        let log = Log::new();
        let first = log.epoch();
        log.checkpoint(first, 2, true).finish(first, &[1, 2]).complete(first);
        let other = claim(&log.0, "other").expect("memory");
        let of_other = recover(&log.0, "other", true, other, &mut |_| {}).expect("memory");
        assert_eq!(of_other.others.keys().collect::<Vec<_>>(), ["step"]);
        let mut ledger = of_other.ledger;
        ledger.published_to(9);
        let taken = Snapshot::take(other, "other", log.0.end().expect("memory"), &ledger, &of_other.others);
        log.checkpoint(other, 9, false);
        write(&log, &taken);
        log.0.forget_before(taken.read_to);
        assert_eq!(log.recover(true).complete.map(|counts| counts.finished), Some(7));
        let epoch = claim(&log.0, "other").expect("memory");
        let again = recover(&log.0, "other", true, epoch, &mut |_| {}).expect("memory");
        assert_eq!((again.truth, again.complete, again.others.len()), (vec![range(other, 1, 9)], None, 1));
        let third = recover(&log.0, "third", true, epoch, &mut |_| {}).expect("memory");
        assert_eq!((third.last_valid(), third.complete), (0, None), "the step after them begins");
    }

    #[test]
    fn the_accounting_survives_its_publisher_p23_x6() {
        let log = Log::new();
        let first = log.epoch();
        log.finish(first, &[1]).checkpoint(first, 3, true).finish(first, &[2, 2]);
        let mut recovered = log.recover(true);
        assert_eq!(recovered.ledger.counts(), Counts { published: 3, finished: 2, pending: 1, ..Counts::default() });
        let mut late = EventBatch::new(first, 2, Outcome::Dropped);
        late.push(Tag::source(3));
        recovered.ledger.apply(&late, &mut |_| {});
        assert!(recovered.ledger.is_settled());
    }
}
