//! The record header `penstock`: to which run and step a record belongs, its number there, and, behind a worker, the passage
//! that it is of. One header for all of it, since each further one costs as much as decoding all of this. A record without it
//! comes from outside.

use serde::{Deserialize, Serialize};

/// The name of the record header.
pub const NAME: &str = "penstock";

/// What the first byte says; another layout gets another number.
const VERSION: u8 = 1;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordHeader<'a> {
    /// Who published the document; `None` for one that came from outside and was handed on by a worker.
    #[serde(borrow)]
    pub origin: Option<Origin<'a>>,
    /// Only in records that a worker hands on.
    pub passage: Option<Passage>,
}

/// The publisher of a document, and the document's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin<'a> {
    /// The id of the run.
    pub run: &'a str,
    /// The name of the connector.
    pub step: &'a str,
    /// The publisher.
    pub epoch: u64,
    /// The step had publishers before this one: what they send late is to be kept out.
    pub replaced: bool,
    /// The number of the source document within the step.
    pub seq: u64,
}

/// Which passage of a source document through the stages a result is of, and which of its results it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// The tenure of the worker that made it.
    pub attempt: u64,
    /// The partition of the source topic that the document came from.
    pub partition: u32,
    /// Its offset there.
    pub offset: u64,
    /// 0 for the source document itself, from 1 for its descendants.
    pub ordinal: u32,
    /// With ordinal 0: the number of all descendants.
    pub children: u32,
}

/// The header cannot be understood; the record counts as unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is of another layout.
    #[error("header `{NAME}` has version {0}, but this build knows {VERSION} only: update it, or remove the header from the record")]
    Version(u8),
    /// It is none, or damaged.
    #[error("header `{NAME}` is damaged: records from outside must not have it")]
    Damaged,
}

impl<'a> RecordHeader<'a> {
    /// Appends the header's bytes.
    pub fn encode(&self, into: &mut Vec<u8>) {
        into.push(VERSION);
        postcard::to_io(self, into).expect("a vector takes every byte, and nothing here fails to be written");
    }

    /// Reads the header's bytes, without copying the texts.
    ///
    /// # Errors
    /// They are not what [`RecordHeader::encode`] writes.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, HeaderError> {
        let (version, body) = bytes.split_first().ok_or(HeaderError::Damaged)?;
        if *version != VERSION {
            return Err(HeaderError::Version(*version));
        }
        match postcard::take_from_bytes(body) {
            Ok((header, [])) => Ok(header),
            _ => Err(HeaderError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(header: &RecordHeader<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes
    }

    const TYPICAL: Origin<'static> = Origin { run: "nightly-4f2a91c0", step: "products", epoch: 5, replaced: false, seq: 1_000_000 };
    const PASSAGE: Passage = Passage { attempt: 1_790_000_000, partition: 3, offset: 250_000, ordinal: 1, children: 0 };

    proptest! {
        #[test]
        fn what_is_written_is_read(
            origin in prop::option::of((".{0,40}", ".{0,20}", any::<(u64, bool, u64)>())),
            passage in prop::option::of(any::<(u64, u32, u64, u32, u32)>()),
            before in prop::collection::vec(any::<u8>(), 0..5),
        ) {
            let header = RecordHeader {
                origin: origin.as_ref().map(|(run, step, (epoch, replaced, seq))| {
                    Origin { run, step, epoch: *epoch, replaced: *replaced, seq: *seq }
                }),
                passage: passage.map(|(attempt, partition, offset, ordinal, children)| {
                    Passage { attempt, partition, offset, ordinal, children }
                }),
            };
            let mut bytes = before.clone();
            header.encode(&mut bytes);
            prop_assert_eq!(&bytes[..before.len()], &before[..], "appended");
            prop_assert_eq!(RecordHeader::decode(&bytes[before.len()..]), Ok(header));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = RecordHeader::decode(&bytes);
        }
    }

    #[test]
    fn a_typical_header_is_small() {
        let source = RecordHeader { origin: Some(TYPICAL), passage: None };
        assert_eq!(encoded(&source).len(), 34);
        assert_eq!(encoded(&RecordHeader { passage: Some(PASSAGE), ..source }).len(), 45);
    }

    #[test]
    fn bytes_of_version_1_are_read_for_ever() {
        let bytes = b"\x01\x01\x10nightly-4f2a91c0\x08products\x05\x00\xc0\x84\x3d\x01\x80\xf7\xc4\xd5\x06\x03\x90\xa1\x0f\x01\x00";
        let header = RecordHeader { origin: Some(TYPICAL), passage: Some(PASSAGE) };
        assert_eq!(RecordHeader::decode(bytes), Ok(header));
        assert_eq!(encoded(&header), bytes);
    }

    #[test]
    fn what_is_no_header_says_so() {
        let good = encoded(&RecordHeader { origin: Some(TYPICAL), passage: None });
        assert_eq!(RecordHeader::decode(b""), Err(HeaderError::Damaged));
        assert_eq!(RecordHeader::decode(&good[..good.len() - 1]), Err(HeaderError::Damaged), "cut");
        assert_eq!(RecordHeader::decode(&[&good[..], b"\0"].concat()), Err(HeaderError::Damaged), "more than it should be");
        assert_eq!(RecordHeader::decode(b"{\"run\":1}"), Err(HeaderError::Version(b'{')));
    }
}
