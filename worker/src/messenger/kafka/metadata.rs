//! What travels with a committed offset: the memory of a partition's reader that its successor needs. Kafka takes a text of
//! 4,095 bytes at most; ours is a version byte, postcard and a checksum, in base64.

use base64::{Engine, prelude::BASE64_STANDARD_NO_PAD};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The longest text that a broker with default settings takes.
pub const LONGEST: usize = 4_095;
const VERSION: u8 = 1;
/// Filter entries that are believed; more do not fit.
const MOST_ORIGINS: u64 = 20_000;

/// What the reader of a partition leaves to its successor, as of the committed offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// How often the partition changed hands; at least the time of the last takeover in seconds.
    pub tenure: u64,
    /// The reader gave the partition back in order: nothing was in flight.
    pub clean: bool,
    /// No record at or beyond it has been started.
    pub limit: u64,
    /// Offsets from the committed one on that are done, in order.
    pub done: Vec<u64>,
    /// How often a process died while this record ran alone.
    pub marks: BTreeMap<u64, u32>,
    /// The highest generation seen, by origin.
    pub seen: BTreeMap<u64, Highest>,
}

/// The highest generation of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Highest {
    /// The generation.
    pub number: u64,
    /// When it was first seen, in hours since 1970.
    pub hour: u64,
}

/// Text that is not what a reader has left.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Another tool has set the offset.
    #[error("there is no metadata with the offset, as after a reset by a tool")]
    Missing,
    /// Another program has written it.
    #[error("the metadata of the offset is not base64: {0}")]
    NotBase64(String),
    /// A newer program has written it.
    #[error("the metadata of the offset has version {found}, this program knows version {VERSION}")]
    Version {
        /// The version found.
        found: u8,
    },
    /// It is damaged.
    #[error("the metadata of the offset is damaged: {0}")]
    Damaged(String),
}

/// The form that is written. Offsets are distances from the committed one.
#[derive(Serialize, Deserialize)]
struct Written {
    tenure: u64,
    clean: bool,
    limit: u64,
    done: Vec<u8>,
    marks: Vec<(u64, u32)>,
    origins: Vec<Stretch>,
    /// The highest number, and how far below it each one is.
    highest: u64,
    below: Column,
    /// The latest hour, and how far before it each one is.
    latest: u64,
    before: Column,
}

/// Origins that follow each other.
#[derive(Serialize, Deserialize)]
struct Stretch {
    /// Distance from the end of the stretch before.
    gap: u64,
    length: u64,
}

/// Numbers of so many bits each.
#[derive(Serialize, Deserialize)]
struct Column {
    width: u8,
    bytes: Vec<u8>,
}

impl Metadata {
    /// The text to commit with an offset. What does not fit is left out, in this order: done bits (then more records are
    /// suspects after a crash), the oldest filter entries. Tenure and marks always stay. (The limit is three bytes: to shrink
    /// it gains nothing.)
    pub fn encode(mut self, offset: u64) -> String {
        loop {
            let text = self.text(offset);
            let excess = text.len().saturating_sub(LONGEST);
            if excess == 0 || !self.shrink(excess, text.len()) {
                return text;
            }
        }
    }

    /// Reads what was committed with an offset.
    ///
    /// # Errors
    /// The text was not written by [`Metadata::encode`].
    pub fn decode(offset: u64, text: &str) -> Result<Self, MetadataError> {
        if text.is_empty() {
            return Err(MetadataError::Missing);
        }
        let bytes = BASE64_STANDARD_NO_PAD.decode(text).map_err(|error| MetadataError::NotBase64(error.to_string()))?;
        let (version, body) = bytes.split_first().ok_or(MetadataError::Missing)?;
        if *version != VERSION {
            return Err(MetadataError::Version { found: *version });
        }
        let damaged = |error: postcard::Error| MetadataError::Damaged(error.to_string());
        let (body, sum) = body.split_last_chunk().ok_or_else(|| MetadataError::Damaged("it is too short".to_owned()))?;
        if checksum(body) != *sum {
            return Err(MetadataError::Damaged("its checksum differs".to_owned()));
        }
        let (written, rest) = postcard::take_from_bytes::<Written>(body).map_err(damaged)?;
        if !rest.is_empty() {
            return Err(MetadataError::Damaged(format!("{} bytes too many", rest.len())));
        }
        written.read(offset).ok_or_else(|| MetadataError::Damaged("its numbers do not fit together".to_owned()))
    }

    fn text(&self, offset: u64) -> String {
        let written = Written::new(self, offset);
        let mut bytes = postcard::to_extend(&written, vec![VERSION]).expect("numbers and bytes can be written to memory");
        let sum = checksum(&bytes[1..]);
        bytes.extend(sum);
        BASE64_STANDARD_NO_PAD.encode(bytes)
    }

    /// Leaves something out, as a text of that length is too long by the excess. False: there is nothing left.
    fn shrink(&mut self, excess: usize, length: usize) -> bool {
        if !self.done.is_empty() {
            self.done.clear();
            return true;
        }
        if self.seen.is_empty() {
            return false;
        }
        let mut ages: Vec<(u64, u64, u64)> = self.seen.iter().map(|(origin, seen)| (seen.hour, seen.number, *origin)).collect();
        ages.sort_unstable();
        for (_, _, origin) in &ages[..(ages.len() * excess).div_ceil(length)] {
            self.seen.remove(origin);
        }
        true
    }
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let mut crc = flate2::Crc::new();
    crc.update(body);
    crc.sum().to_le_bytes()
}

impl Written {
    fn new(metadata: &Metadata, offset: u64) -> Self {
        let seen = || metadata.seen.values();
        let highest = seen().map(|seen| seen.number).max().unwrap_or(0);
        let latest = seen().map(|seen| seen.hour).max().unwrap_or(0);
        Self {
            tenure: metadata.tenure,
            clean: metadata.clean,
            limit: metadata.limit.saturating_sub(offset),
            done: bits(metadata.done.iter().filter_map(|done| done.checked_sub(offset))),
            marks: metadata.marks.iter().filter_map(|(at, attempts)| Some((at.checked_sub(offset)?, *attempts))).collect(),
            origins: stretches(metadata.seen.keys().copied()),
            highest,
            below: Column::new(&seen().map(|seen| highest - seen.number).collect::<Vec<_>>()),
            latest,
            before: Column::new(&seen().map(|seen| latest - seen.hour).collect::<Vec<_>>()),
        }
    }

    fn read(self, offset: u64) -> Option<Metadata> {
        let origins = origins(&self.origins)?;
        let below = self.below.read(origins.len())?;
        let before = self.before.read(origins.len())?;
        let mut seen = BTreeMap::new();
        for (at, origin) in origins.into_iter().enumerate() {
            let highest = Highest { number: self.highest.checked_sub(below[at])?, hour: self.latest.checked_sub(before[at])? };
            seen.insert(origin, highest);
        }
        let set = (0..self.done.len() * 8).filter(|at| self.done[at / 8] >> (at % 8) & 1 == 1);
        Some(Metadata {
            tenure: self.tenure,
            clean: self.clean,
            limit: offset.checked_add(self.limit)?,
            done: set.map(|at| offset.checked_add(at as u64)).collect::<Option<_>>()?,
            marks: self.marks.into_iter().map(|(at, attempts)| Some((offset.checked_add(at)?, attempts))).collect::<Option<_>>()?,
            seen,
        })
    }
}

fn bits(set: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for at in set {
        let byte = (at / 8) as usize;
        if byte >= bytes.len() {
            bytes.resize(byte + 1, 0);
        }
        bytes[byte] |= 1 << (at % 8);
    }
    bytes
}

fn stretches(origins: impl Iterator<Item = u64>) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut expected = 0;
    for origin in origins {
        match stretches.last_mut() {
            Some(last) if origin == expected => last.length += 1,
            _ => stretches.push(Stretch { gap: origin - expected, length: 1 }),
        }
        expected = origin.wrapping_add(1);
    }
    stretches
}

fn origins(stretches: &[Stretch]) -> Option<Vec<u64>> {
    let mut origins = Vec::new();
    let mut next = 0_u64;
    for Stretch { gap, length } in stretches {
        if *length == 0 || *length > MOST_ORIGINS - origins.len() as u64 {
            return None;
        }
        let first = next.checked_add(*gap)?;
        let last = first.checked_add(length - 1)?;
        origins.extend(first..=last);
        next = last.wrapping_add(1);
    }
    Some(origins)
}

impl Column {
    fn new(numbers: &[u64]) -> Self {
        let width = u64::BITS - numbers.iter().max().map_or(u64::BITS, |most| most.leading_zeros());
        let width = width as usize;
        let mut bytes = vec![0; (numbers.len() * width).div_ceil(8)];
        for (at, number) in numbers.iter().enumerate() {
            let place = at * width;
            let shifted = u128::from(*number) << (place % 8);
            for (byte, part) in bytes[place / 8..].iter_mut().zip(shifted.to_le_bytes()) {
                *byte |= part;
            }
        }
        Self { width: width as u8, bytes }
    }

    fn read(&self, count: usize) -> Option<Vec<u64>> {
        let width = usize::from(self.width);
        if width > 64 || self.bytes.len() != (count * width).div_ceil(8) {
            return None;
        }
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        let number = |place: usize| {
            let mut window = [0; 16];
            window.iter_mut().zip(&self.bytes[place / 8..]).take(9).for_each(|(to, from)| *to = *from);
            (u128::from_le_bytes(window) >> (place % 8)) as u64 & mask
        };
        Some((0..count).map(|at| number(at * width)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_metadata() -> impl Strategy<Value = (u64, Metadata)> {
        let origin = prop_oneof![0..50_u64, any::<u64>()];
        let highest = (any::<u64>(), 480_000..480_024_u64).prop_map(|(number, hour)| Highest { number, hour });
        let seen = prop::collection::btree_map(origin, highest, 0..40);
        let done = prop::collection::btree_set(0..2_000_u64, 0..300);
        let marks = prop::collection::btree_map(0..2_000_u64, 1..5_u32, 0..4);
        (0..u64::MAX / 2, any::<u64>(), any::<bool>(), 0..2_000_u64, done, marks, seen).prop_map(
            |(offset, tenure, clean, ahead, done, marks, seen)| {
                let done = done.into_iter().map(|at| offset + at).collect();
                let marks = marks.into_iter().map(|(at, attempts)| (offset + at, attempts)).collect();
                (offset, Metadata { tenure, clean, limit: offset + ahead, done, marks, seen })
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn what_is_written_is_read_again((offset, metadata) in any_metadata()) {
            let text = metadata.clone().encode(offset);
            prop_assert!(text.len() <= LONGEST);
            prop_assert_eq!(Metadata::decode(offset, &text), Ok(metadata));
        }

        #[test]
        fn any_text_is_read_or_refused_and_never_more_than_that(text in ".{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Metadata::decode(7, &text);
            let summed = [&[VERSION], &bytes[..], &checksum(&bytes)].concat();
            let _ = Metadata::decode(u64::MAX, &BASE64_STANDARD_NO_PAD.encode(summed));
        }

        #[test]
        fn a_damaged_text_is_refused((offset, metadata) in any_metadata(), at in any::<prop::sample::Index>()) {
            let mut text = metadata.encode(offset).into_bytes();
            let at = at.index(text.len());
            text[at] = if text[at] == b'A' { b'B' } else { b'A' };
            let text = String::from_utf8(text).expect("base64");
            prop_assert!(Metadata::decode(offset, &text).is_err());
        }

        #[test]
        fn nine_hundred_partitions_that_changed_hands_within_two_days_fit_with_all_else(random in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(random);
            let now = 1_800_000_000_u64;
            let mut tenure = || Highest { number: now - random.u64(..172_800), hour: now / 3600 - random.u64(..24) };
            let seen: BTreeMap<u64, Highest> = (0..900).map(|partition| (partition, tenure())).collect();
            let marks = BTreeMap::from([(5_000_000, 3), (5_000_900, 3), (5_001_999, 1)]);
            let done: Vec<u64> = (5_000_001..5_002_000).step_by(2).collect();
            let metadata = Metadata { tenure: now, clean: false, limit: 5_002_000, done, marks, seen };
            let text = metadata.clone().encode(5_000_000);
            prop_assert!(text.len() <= LONGEST);
            prop_assert_eq!(Metadata::decode(5_000_000, &text), Ok(metadata));
        }

        #[test]
        fn what_does_not_fit_is_left_out_in_order_and_tenure_and_marks_never(count in 900..3_000_u64, random in any::<u64>()) {
            let mut random = fastrand::Rng::with_seed(random);
            let seen: BTreeMap<u64, Highest> =
                (0..count).map(|_| (random.u64(..), Highest { number: random.u64(..1 << 40), hour: 480_000 + random.u64(..24) })).collect();
            let marks = BTreeMap::from([(100, 3), (1_000, 3), (2_000, 2)]);
            let metadata = Metadata { tenure: 1_800_000_000, clean: false, limit: 2_100, done: (101..2_000).collect(), marks, seen };
            let text = metadata.clone().encode(100);
            prop_assert!(text.len() <= LONGEST);
            let read = Metadata::decode(100, &text).expect("readable");
            prop_assert!(read.done.is_empty());
            prop_assert_eq!((read.tenure, read.limit, &read.marks), (metadata.tenure, metadata.limit, &metadata.marks));
            prop_assert!(read.seen.len() >= 150, "only {} origins are kept", read.seen.len());
            let kept = read.seen.values().map(|seen| seen.hour).min();
            let left_out = metadata.seen.iter().filter(|(origin, _)| !read.seen.contains_key(origin));
            prop_assert!(left_out.map(|(_, seen)| seen.hour).max() <= kept, "the oldest go first");
        }
    }

    #[test]
    fn foreign_texts_are_named_as_what_they_are() {
        let newer = BASE64_STANDARD_NO_PAD.encode([9, 0, 0]);
        let longer = BASE64_STANDARD_NO_PAD.encode([VERSION; 40]);
        let cases = [
            ("", "there is no metadata with the offset, as after a reset by a tool"),
            ("worker-1", "the metadata of the offset is not base64"),
            (newer.as_str(), "the metadata of the offset has version 9, this program knows version 1"),
            (longer.as_str(), "the metadata of the offset is damaged"),
        ];
        for (text, expected) in cases {
            let error = Metadata::decode(0, text).expect_err(text).to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
