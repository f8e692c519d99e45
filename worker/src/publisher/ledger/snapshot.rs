//! The ledger as bytes: written into the log now and then, it stands for all events before it, which can then be deleted.

use super::{
    Ledger, ValidRange,
    closed::{Closed, WrittenPage},
    families::{Families, Tally, WrittenFamily},
};
use crate::event::Detail;
use serde::{Deserialize, Serialize};

/// The state of a ledger.
///
/// Its counts cannot be taken back for single numbers. So it is taken when a CHECKPOINT covers all numbers that were given out
/// ([`LedgerSnapshot::published`]), and it holds for those who find that CHECKPOINT valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerSnapshot {
    /// Epoch, first and last number of each range, in order.
    ranges: Vec<(u64, u64, u64)>,
    /// Created, finished, failed, dropped.
    tally: [u64; 4],
    /// Number of the first page that is written; all before it are full.
    first_page: u64,
    pages: Vec<WrittenPage>,
    attempts: Vec<u64>,
    families: Vec<WrittenFamily>,
    details: Vec<WrittenDetail>,
}

/// The text of a failed member of a family: number, index of the attempt, ordinal; id, stage, reason.
type WrittenDetail = ((u64, u32, u32), (String, String, String));

/// A snapshot that cannot be gone on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// It speaks of numbers that are not valid.
    #[error("the snapshot of the ledger reaches to number {published}, but the valid numbers are others")]
    OtherNumbers {
        /// The last number that was given out when it was taken.
        published: u64,
    },
    /// Its parts do not fit together.
    #[error("the snapshot of the ledger is damaged: {0}")]
    Damaged(&'static str),
}

impl LedgerSnapshot {
    /// The numbers that it speaks of, by publisher, in order.
    pub fn ranges(&self) -> impl Iterator<Item = ValidRange> + '_ {
        self.ranges.iter().map(|(epoch, first, last)| ValidRange { epoch: *epoch, first: *first, last: *last })
    }

    /// The last number that was given out when it was taken.
    pub fn published(&self) -> u64 {
        self.ranges.last().map_or(0, |(_, _, last)| *last)
    }
}

impl Ledger {
    /// The state as it is now.
    pub fn snapshot(&self) -> LedgerSnapshot {
        let ranges = self.earlier.iter().chain([&self.running]).filter(|range| range.first <= range.last);
        let (first_page, pages) = self.closed.written();
        let (attempts, families, details) = self.families.written();
        let Tally { created, finished, failed, dropped } = self.tally;
        LedgerSnapshot {
            ranges: ranges.map(|range| (range.epoch, range.first, range.last)).collect(),
            tally: [created, finished, failed, dropped],
            first_page,
            pages,
            attempts,
            families,
            details: details.into_iter().map(|(at, detail)| (at, (detail.id, detail.stage, detail.reason))).collect(),
        }
    }

    /// Goes on from a snapshot, as [`Ledger::resumed`] from the beginning: `earlier` are the ranges that count.
    ///
    /// # Errors
    /// The snapshot speaks of other numbers, or is damaged.
    pub fn restored(epoch: u64, earlier: Vec<ValidRange>, snapshot: LedgerSnapshot) -> Result<Self, SnapshotError> {
        let mut ledger = Self::resumed(epoch, earlier);
        let published = snapshot.published();
        let is_valid = |range: &(u64, u64, u64)| {
            let (epoch, first, last) = *range;
            ledger.earlier.iter().any(|valid| valid.epoch == epoch && valid.first == first && last <= valid.last)
        };
        if !snapshot.ranges.iter().all(is_valid) {
            return Err(SnapshotError::OtherNumbers { published });
        }
        let [created, finished, failed, dropped] = snapshot.tally;
        ledger.tally = Tally { created, finished, failed, dropped };
        ledger.closed = Closed::read(snapshot.first_page, snapshot.pages).ok_or(SnapshotError::Damaged("its pages"))?;
        if ledger.closed.len() > published || u128::from(published) + u128::from(created) < sum([finished, failed, dropped]) {
            return Err(SnapshotError::Damaged("its counts"));
        }
        let details = snapshot
            .details
            .into_iter()
            .map(|((seq, attempt, ordinal), (id, stage, reason))| ((seq, attempt, ordinal), Detail { seq, id, stage, reason }));
        ledger.families = Families::read(published, snapshot.attempts, snapshot.families, details.collect())
            .ok_or(SnapshotError::Damaged("its families"))?;
        Ok(ledger)
    }
}

fn sum(counts: [u64; 3]) -> u128 {
    counts.into_iter().map(u128::from).sum()
}
