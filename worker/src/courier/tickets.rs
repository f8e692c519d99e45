//! What is in work: which record of which partition each document in the lanes came from. Pure.
//!
//! A record that starts gets a *ticket*, a dense number of this process. Lanes know it as the document's number; what comes back
//! from them is looked up here. What belongs to a partition that was given away is no longer found, so its late work is dropped.

use crate::event::Tag;
use std::{collections::VecDeque, rc::Rc, sync::Arc};

/// What records that follow one another in a partition have in common.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// The partition that was read.
    pub partition: u32,
    /// The tenure in which this process reads it.
    pub tenure: u64,
    /// Whose documents they are; nobody's if they come from outside of any run.
    pub run: Option<RunStep>,
    /// The passage through the pipeline, for the events: the tenure of the worker.
    pub attempt: u64,
    /// The source document stands in the topic that is read, not in front of it: nobody has handed it on.
    pub is_source: bool,
    /// The partition that the source document stands in.
    pub source_partition: u32,
}

/// The step of a run, and its publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunStep {
    /// The id, shared with the documents.
    pub run: Arc<str>,
    pub step: String,
    pub epoch: u64,
    pub replaced: bool,
}

/// A record in work.
#[derive(Debug)]
pub(super) struct Record {
    pub passage: Rc<Passage>,
    /// Its offset in the partition that was read, and that of the source document in its topic.
    pub offset: u64,
    pub source_offset: u64,
    /// The document's own reference.
    pub tag: Tag,
    bytes: u32,
    /// How many of its family are settled, and how many there are (0: not known yet).
    settled: u32,
    family: u32,
    is_open: bool,
}

impl Record {
    /// The reference of a document that came of this record: itself, or a descendant that the lanes made.
    pub fn reference(&self, local: Tag) -> Tag {
        // a record of the dest topic is one document, whatever its place in its family
        Tag { seq: self.tag.seq, ordinal: self.tag.ordinal + local.ordinal, children: self.tag.children + local.children }
    }
}

/// The records in work. Memory: one entry for each from the oldest on.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// The ticket of the first entry.
    first: u64,
    records: VecDeque<Record>,
    open: usize,
    bytes: u64,
}

impl Tickets {
    /// A record starts: its ticket.
    pub fn issue(&mut self, passage: Rc<Passage>, offset: u64, source_offset: u64, tag: Tag, bytes: usize) -> u64 {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.records.push_back(Record { passage, offset, source_offset, tag, bytes, settled: 0, family: 0, is_open: true });
        self.open += 1;
        self.bytes += u64::from(bytes);
        self.first + self.records.len() as u64 - 1
    }

    /// The record of a ticket, if it is still in work.
    pub fn get(&self, ticket: u64) -> Option<&Record> {
        let index = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        self.records.get(index).filter(|record| record.is_open)
    }

    /// One document of the record's family is settled: all that it led to is acknowledged. The answer is the record, if that was
    /// the last one.
    pub fn settle(&mut self, local: Tag) -> Option<(Rc<Passage>, u64)> {
        let index = usize::try_from(local.seq.checked_sub(self.first)?).ok()?;
        let record = self.records.get_mut(index).filter(|record| record.is_open)?;
        record.settled += 1;
        if local.ordinal == 0 {
            record.family = local.children + 1;
        }
        if record.settled != record.family {
            return None;
        }
        let done = (Rc::clone(&record.passage), record.offset);
        Self::close(record, &mut self.open, &mut self.bytes);
        self.trim();
        Some(done)
    }

    /// Work for a partition that was given away is dropped.
    pub fn forget(&mut self, partition: u32) {
        for record in self.records.iter_mut().filter(|record| record.is_open && record.passage.partition == partition) {
            Self::close(record, &mut self.open, &mut self.bytes);
        }
        self.trim();
    }

    /// How many records are in work.
    pub fn len(&self) -> usize {
        self.open
    }

    /// Whether nothing is in work.
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Bytes of the records in work, as they were received.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn close(record: &mut Record, open: &mut usize, bytes: &mut u64) {
        record.is_open = false;
        *open -= 1;
        *bytes -= u64::from(record.bytes);
    }

    fn trim(&mut self) {
        while self.records.front().is_some_and(|record| !record.is_open) {
            self.records.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn passage(partition: u32) -> Rc<Passage> {
        Rc::new(Passage { partition, tenure: 5, run: None, attempt: 5, is_source: true, source_partition: partition })
    }

    fn member(seq: u64, ordinal: u32, children: u32) -> Tag {
        Tag { seq, ordinal, children }
    }

    #[test]
    fn a_record_is_done_when_its_whole_family_is_settled_in_any_order() {
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
            let mut tickets = Tickets::default();
            let ticket = tickets.issue(passage(3), 40, 40, Tag::source(9), 100);
            let done: Vec<_> =
                order.iter().map(|ordinal| tickets.settle(member(ticket, *ordinal, if *ordinal == 0 { 2 } else { 0 }))).collect();
            assert_eq!(done[..2], [None, None]);
            assert_eq!(done[2], Some((passage(3), 40)));
            assert!(tickets.is_empty() && tickets.bytes() == 0 && tickets.get(ticket).is_none());
        }
    }

    #[test]
    fn late_work_of_a_partition_that_was_given_away_is_not_found() {
        let mut tickets = Tickets::default();
        let (lost, kept) = (tickets.issue(passage(1), 7, 7, Tag::source(1), 10), tickets.issue(passage(2), 7, 7, Tag::source(2), 20));
        tickets.forget(1);
        assert!(tickets.get(lost).is_none());
        assert_eq!(tickets.settle(Tag::source(lost)), None);
        assert_eq!((tickets.len(), tickets.bytes()), (1, 20));
        assert_eq!(tickets.settle(Tag::source(kept)), Some((passage(2), 7)));
        assert_eq!(tickets.settle(Tag::source(kept)), None, "once only");
    }

    #[test]
    fn a_dest_record_keeps_its_place_in_the_family() {
        let mut tickets = Tickets::default();
        let ticket = tickets.issue(passage(1), 7, 7, member(12, 3, 0), 10);
        assert_eq!(tickets.get(ticket).expect("in work").reference(Tag::source(ticket)), member(12, 3, 0));
    }

    proptest! {
        #[test]
        fn every_record_is_done_once(sizes in prop::collection::vec(0..4_u32, 1..30), random in any::<u64>()) {
            let mut tickets = Tickets::default();
            let mut members = Vec::new();
            for (offset, children) in sizes.iter().enumerate() {
                let ticket = tickets.issue(passage(0), offset as u64, offset as u64, Tag::source(offset as u64), 1);
                members.push(member(ticket, 0, *children));
                members.extend((1..=*children).map(|ordinal| member(ticket, ordinal, 0)));
            }
            let mut done = Vec::new();
            let mut random = random;
            while !members.is_empty() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let next = members.swap_remove((random >> 33) as usize % members.len());
                done.extend(tickets.settle(next).map(|(_, offset)| offset));
            }
            done.sort_unstable();
            prop_assert_eq!(done, (0..sizes.len() as u64).collect::<Vec<_>>());
            prop_assert!(tickets.is_empty() && tickets.records.is_empty());
        }
    }
}
