//! Removing letters. Kafka removes records from the front only, so those to keep are copied to the end first.

use super::{
    DeadLetters, DlqError, Filter, Letter,
    send::{Outgoing, Sender},
};
use crate::kafka::{Connection, admin::Admin, scan::Ranges};
use rdkafka::{Message, message::BorrowedMessage};
use std::{collections::BTreeSet, ops::ControlFlow, time::Duration};

/// What was removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Letters that are gone, repeats among them.
    pub removed: u64,
    /// Letters that were kept.
    pub kept: u64,
}

/// Removes the letters that are meant; with `dry_run` only counts them. Letters that come meanwhile stay.
///
/// # Errors
/// A topic cannot be read, or not be written. No letter is lost by that.
pub fn purge(connection: &Connection, topic: &str, filter: &Filter, dry_run: bool, patience: Duration) -> Result<Purged, DlqError> {
    let letters = DeadLetters::open(connection, topic, patience)?;
    let (mut purged, mut touched) = (Purged::default(), BTreeSet::new());
    letters.scan.read(&letters.present, &mut |message| {
        if filter.takes(&Letter::of(message)) {
            purged.removed += 1;
            touched.insert(message.partition());
        } else {
            purged.kept += 1;
        }
        ControlFlow::Continue(())
    })?;
    if dry_run || touched.is_empty() {
        return Ok(purged);
    }
    let old: Ranges = letters
        .present
        .iter()
        .filter(|(partition, _)| touched.contains(partition))
        .map(|(partition, range)| (*partition, range.clone()))
        .collect();
    copy_the_rest(connection, &letters, &old, filter, patience)?;
    remove(connection, topic, &old, patience)?;
    Ok(purged)
}

/// Copies the letters that are not meant to the end, as they are, and waits until they are there.
fn copy_the_rest(
    connection: &Connection,
    letters: &DeadLetters<'_>,
    old: &Ranges,
    filter: &Filter,
    patience: Duration,
) -> Result<(), DlqError> {
    if filter.is_all() {
        return Ok(());
    }
    let sender = Sender::new(connection, letters.scan.topic(), patience)?;
    let mut sent = Ok(());
    letters.scan.read(old, &mut |message| {
        if !filter.takes(&Letter::of(message)) {
            sent = sender.send(same(message));
        }
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    sent?;
    sender.finish().map(drop)
}

fn same<'a>(message: &'a BorrowedMessage<'_>) -> Outgoing<'a> {
    Outgoing {
        partition: Some(message.partition()),
        key: message.key(),
        value: message.payload(),
        headers: message.headers().map(rdkafka::message::BorrowedHeaders::detach).unwrap_or_default(),
        timestamp: message.timestamp().to_millis(),
    }
}

/// Removes everything in front of the old ends.
fn remove(connection: &Connection, topic: &str, old: &Ranges, patience: Duration) -> Result<(), DlqError> {
    let ends: Vec<(i32, i64)> = old.iter().map(|(partition, range)| (*partition, range.end)).collect();
    let removed = Admin::new(connection, patience)?.delete_records(topic, &ends);
    removed.map(drop).map_err(|source| DlqError::NotRemoved { topic: topic.to_owned(), source })
}
