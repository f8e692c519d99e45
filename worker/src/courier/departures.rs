//! What comes back from the lanes: where it belongs, and what is sent for it.

use super::{
    Courier,
    lanes::{Kept, Report, Results},
    outbox::Events,
    tickets::{Passage, Record},
};
use crate::{
    event::{Detail, EventBatch, Outcome, Tag},
    kafka::{
        header::{self, Origin, RecordHeader},
        letter::{LetterHeaders, SourcePlace},
    },
};
use std::rc::Rc;

/// Reports taken at once.
const REPORTS: usize = 64;

impl Courier {
    /// Takes what lanes report; whether there was something. Never waits.
    pub(super) fn take_reports(&mut self) -> bool {
        let mut taken = 0;
        while taken < REPORTS
            && let Ok(report) = self.lanes.reports.try_recv()
        {
            taken += 1;
            self.take_report(report);
        }
        // results are left to the lanes, which then wait, while Kafka takes nothing
        while !self.outbox.is_full()
            && let Ok(results) = self.lanes.results.try_recv()
        {
            taken += 1;
            self.take_results(&results);
        }
        taken > 0
    }

    pub(super) fn take_report(&mut self, report: Report) {
        match report {
            Report::Letter(letter) => self.take_letter(&letter),
            Report::Events(events) => self.take_events(events),
        }
    }

    /// A document failed here: its letter, then its event.
    pub(super) fn fail(&mut self, failed: Kept) {
        self.take_letter(&failed);
        self.take_events(failed.into_events(0, 0));
    }

    fn take_letter(&mut self, letter: &Kept) {
        let Some(record) = self.tickets.get(letter.tag.seq) else { return };
        let reference = record.reference(letter.tag);
        let run = record.passage.run.as_ref();
        let headers = LetterHeaders {
            run: run.map_or("", |run| &*run.run).into(),
            step: run.map_or("", |run| &run.step).into(),
            pipeline: self.settings.pipeline.as_str().into(),
            source: Some(SourcePlace {
                topic: if record.passage.is_source { &self.topic } else { &self.settings.names.source }.as_str().into(),
                partition: record.passage.source_partition,
                offset: record.source_offset,
            }),
            epoch: run.map(|run| run.epoch),
            seq: run.map(|_| reference.seq),
            ordinal: reference.ordinal,
            ..letter.headers()
        };
        self.outbox.letter(headers, &letter.id, &letter.value);
    }

    /// Events speak of tickets: they are sorted by whose documents they are, and get the true references.
    fn take_events(&mut self, mut events: EventBatch) {
        let outcome = events.outcome;
        let mut details = std::mem::take(&mut events.details).into_iter();
        let mut groups: Vec<(Rc<Passage>, EventBatch, Vec<Tag>)> = Vec::new();
        for tag in events.tags() {
            let detail = details.next();
            let Some(record) = self.tickets.get(tag.seq) else { continue };
            let reference = record.reference(tag);
            let group = group_of(&mut groups, record, outcome);
            let (_, batch, settles) = &mut groups[group];
            match detail {
                Some(detail) => batch.push_with(reference, Detail { seq: reference.seq, ..detail }),
                None => batch.push(reference),
            }
            settles.push(tag);
        }
        for (passage, batch, settles) in groups {
            let record = passage.run.as_ref().and_then(|run| self.log_of(&run.run)).map(|log| (log, batch));
            self.outbox.events(outcome, Events { record, settles });
        }
    }

    pub(super) fn take_results(&mut self, results: &Results) {
        let Some(dest) = self.dest.clone() else { return };
        for (index, item) in results.items.iter().enumerate() {
            let Some(record) = self.tickets.get(item.tag.seq) else { continue };
            let Tag { seq, ordinal, children } = record.reference(item.tag);
            let passage = &record.passage;
            let origin =
                passage.run.as_ref().map(|run| Origin { run: &run.run, step: &run.step, epoch: run.epoch, replaced: run.replaced, seq });
            let place = header::Passage {
                attempt: passage.attempt,
                partition: passage.source_partition,
                offset: record.source_offset,
                ordinal,
                children,
            };
            self.header.clear();
            RecordHeader { origin, passage: Some(place) }.encode(&mut self.header);
            self.outbox.result(&dest, &self.header, &item.id, results.text(index), item.tag);
        }
    }
}

/// The group of the documents of a record; a new one, if it is the first.
fn group_of(groups: &mut Vec<(Rc<Passage>, EventBatch, Vec<Tag>)>, record: &Record, outcome: Outcome) -> usize {
    if let Some(found) = groups.iter().position(|(passage, ..)| Rc::ptr_eq(passage, &record.passage)) {
        return found;
    }
    let epoch = record.passage.run.as_ref().map_or(0, |run| run.epoch);
    groups.push((Rc::clone(&record.passage), EventBatch::new(epoch, record.passage.attempt, outcome), Vec::new()));
    groups.len() - 1
}
