//! Bringing failed documents in again, as new operations that no run counts.
//!
//! A document that failed in a stage goes to the source topic as it was received. A descendant that failed in a stage is made
//! anew by its source document, so that one goes there. What failed at the indexer has passed the stages and says so. Nothing
//! is brought in behind a newer operation on the same id: that would undo it.

use super::{
    DeadLetters, DlqError, Filter, Letter,
    send::{Outgoing, Sender},
};
use crate::kafka::{
    Connection,
    letter::{INDEXER, LetterContent, names},
    scan::{Ranges, Scan},
};
use rdkafka::{
    Message,
    message::{BorrowedMessage, Header, OwnedHeaders},
};
use serde::Deserialize;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::ControlFlow,
    time::Duration,
};

/// What is to be brought in again, and how.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    /// The dead letter topic.
    pub letters: &'a str,
    /// The source topic of the pipeline.
    pub source: &'a str,
    /// Which letters.
    pub filter: &'a Filter,
    /// Also where a newer operation on the id has come, or it is not known.
    pub force: bool,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Each answer of the broker is waited for so long at most.
    pub patience: Duration,
}

/// Why a letter is passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skipped {
    /// A newer operation on the id has come since.
    Superseded,
    /// The source topic does not reach back to the document: whether a newer operation has come is not known.
    OutOfReach,
    /// It does not say where in the source topic the document was.
    NoPlace,
    /// It was no document, or could not be read.
    NoDocument,
    /// The document was too large to be kept as a whole.
    Truncated,
}

impl Skipped {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Superseded => "a newer operation on the id has come since",
            Self::OutOfReach => "the source topic no longer reaches back to it",
            Self::NoPlace => "it did not come from this source topic",
            Self::NoDocument => "it is no document that could be read",
            Self::Truncated => "it was too large to be kept as a whole",
        }
    }

    /// Whether `force` helps.
    pub const fn can_be_forced(self) -> bool {
        matches!(self, Self::Superseded | Self::OutOfReach | Self::NoPlace)
    }
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Letters that are meant, without repeats.
    pub letters: u64,
    /// Documents that were sent. Several descendants of one document need it once.
    pub sent: u64,
    /// Letters that were passed over.
    pub skipped: BTreeMap<Skipped, u64>,
}

/// Partition and offset in the source topic.
type Place = (i32, i64);

/// What is sent for a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Send {
    /// Its document.
    Document,
    /// The document in the source topic that it is a descendant of.
    Ancestor,
}

/// A letter whose document may be brought in again.
struct Candidate {
    /// Where the letter is in its own topic.
    letter: (i32, i64),
    source: Option<Place>,
    send: Send,
}

/// Brings the documents of letters in again.
///
/// # Errors
/// A topic cannot be read, or not be written. The letters stay as they are in any case.
pub fn replay(connection: &Connection, replay: &Replay<'_>) -> Result<Replayed, DlqError> {
    let letters = DeadLetters::open(connection, replay.letters, replay.patience)?;
    let mut done = Replayed::default();
    let candidates = candidates(&letters, replay, &mut done)?;
    let source = Scan::open(connection, replay.source, replay.patience)?;
    let history = History::read(&source, &candidates)?;
    let (mut documents, mut ancestors) = (BTreeSet::new(), BTreeSet::new());
    for candidate in &candidates {
        if let Some(reason) = history.objection(candidate).filter(|reason| !(replay.force && can_be_sent(*reason, candidate, &history))) {
            *done.skipped.entry(reason).or_default() += 1;
            continue;
        }
        match (candidate.send, candidate.source) {
            (Send::Ancestor, Some(place)) => ancestors.insert(place),
            _ => documents.insert(candidate.letter),
        };
    }
    done.sent = (documents.len() + ancestors.len()) as u64;
    if !replay.dry_run && done.sent > 0 {
        let sender = Sender::new(connection, replay.source, replay.patience)?;
        send_ancestors(&sender, &source, &ancestors)?;
        send_documents(&sender, &letters, &documents)?;
        done.sent = sender.finish()?;
    }
    Ok(done)
}

/// Even by force only what there is can be sent.
fn can_be_sent(reason: Skipped, candidate: &Candidate, history: &History) -> bool {
    reason.can_be_forced() && (candidate.send == Send::Document || candidate.source.is_some_and(|place| history.ids.contains_key(&place)))
}

/// The letters that are meant, apart from those whose document is not there.
fn candidates(letters: &DeadLetters<'_>, replay: &Replay<'_>, done: &mut Replayed) -> Result<Vec<Candidate>, DlqError> {
    let mut candidates = Vec::new();
    let met = letters.for_each(replay.filter, &mut |letter| {
        match candidate(letter, replay.source) {
            Ok(candidate) => candidates.push(candidate),
            Err(reason) => *done.skipped.entry(reason).or_default() += 1,
        }
        ControlFlow::Continue(())
    })?;
    done.letters = met.letters;
    Ok(candidates)
}

fn candidate(letter: &Letter<'_>, source: &str) -> Result<Candidate, Skipped> {
    let headers = &letter.headers;
    let is_descendant = headers.ordinal > 0;
    let send = if is_descendant && headers.stage != INDEXER { Send::Ancestor } else { Send::Document };
    if send == Send::Document && (headers.content == LetterContent::Raw || letter.key.is_none()) {
        return Err(Skipped::NoDocument);
    }
    if send == Send::Document && headers.truncated {
        return Err(Skipped::Truncated);
    }
    let place = headers.source.as_ref().filter(|place| place.topic == source);
    let place = place.and_then(|place| Some((i32::try_from(place.partition).ok()?, i64::try_from(place.offset).ok()?)));
    Ok(Candidate { letter: (letter.partition, letter.offset), source: place, send })
}

/// What has happened in the source topic since the documents of letters came.
#[derive(Default)]
struct History {
    /// The ids of the documents of letters.
    ids: HashMap<Place, Vec<u8>>,
    /// By partition, the last operation on each of these ids.
    last: HashMap<i32, HashMap<Vec<u8>, i64>>,
}

impl History {
    /// Reads each partition from the first document of a letter on.
    fn read(source: &Scan<'_>, candidates: &[Candidate]) -> Result<Self, DlqError> {
        let places: BTreeSet<Place> = candidates.iter().filter_map(|candidate| candidate.source).collect();
        let mut history = Self::default();
        if places.is_empty() {
            return Ok(history);
        }
        let mut ranges = source.present()?;
        ranges.retain(|partition, range| {
            let first = places.range((*partition, 0)..).next().filter(|(of, _)| of == partition);
            range.start = first.map_or(range.end, |(_, offset)| range.start.max(*offset));
            !range.is_empty()
        });
        source.read(&ranges, &mut |message| {
            history.note(message, &places);
            ControlFlow::Continue(())
        })?;
        Ok(history)
    }

    fn note(&mut self, message: &BorrowedMessage<'_>, places: &BTreeSet<Place>) {
        let Some(id) = id_of(message) else { return };
        let (partition, offset) = (message.partition(), message.offset());
        let last = self.last.entry(partition).or_default();
        if places.contains(&(partition, offset)) {
            last.insert(id.to_vec(), offset);
            self.ids.insert((partition, offset), id.into_owned());
        } else if let Some(last) = last.get_mut(&*id) {
            *last = offset;
        }
    }

    /// Why the document of a letter should not be brought in again.
    fn objection(&self, candidate: &Candidate) -> Option<Skipped> {
        let Some(place) = candidate.source else { return Some(Skipped::NoPlace) };
        let Some(id) = self.ids.get(&place) else { return Some(Skipped::OutOfReach) };
        let last = self.last.get(&place.0).and_then(|last| last.get(id));
        last.is_some_and(|last| *last > place.1).then_some(Skipped::Superseded)
    }
}

/// The id of a record: its key, or else its field `id`.
fn id_of<'a>(message: &'a BorrowedMessage<'_>) -> Option<Cow<'a, [u8]>> {
    #[derive(Deserialize)]
    struct WithId {
        id: String,
    }
    if let Some(key) = message.key() {
        return Some(key.into());
    }
    let document: WithId = serde_json::from_slice(message.payload()?).ok()?;
    Some(document.id.into_bytes().into())
}

fn send_documents(sender: &Sender<'_>, letters: &DeadLetters<'_>, wanted: &BTreeSet<(i32, i64)>) -> Result<(), DlqError> {
    let mut sent = Ok(());
    letters.scan.read(&letters.present, &mut |message| {
        if wanted.contains(&(message.partition(), message.offset())) {
            let letter = Letter::of(message);
            let mut headers = OwnedHeaders::new();
            if letter.headers.stage == INDEXER {
                headers = headers.insert(Header { key: names::RESUME, value: Some(INDEXER) });
            }
            sent = sender.send(Outgoing { partition: None, key: letter.key, value: Some(letter.value), headers, timestamp: None });
        }
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    sent
}

fn send_ancestors(sender: &Sender<'_>, source: &Scan<'_>, wanted: &BTreeSet<Place>) -> Result<(), DlqError> {
    let mut ranges = Ranges::new();
    for (partition, offset) in wanted {
        let range = ranges.entry(*partition).or_insert(*offset..*offset + 1);
        range.end = *offset + 1;
    }
    let mut sent = Ok(());
    source.read(&ranges, &mut |message| {
        if wanted.contains(&(message.partition(), message.offset())) {
            let headers = OwnedHeaders::new();
            sent = sender.send(Outgoing { partition: None, key: message.key(), value: message.payload(), headers, timestamp: None });
        }
        if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    sent
}
