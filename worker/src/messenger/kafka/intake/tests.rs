//! The intake step by step.

use super::*;

const UNIX: u64 = 1_800_000_000;

struct Bench {
    intake: Intake,
    now: Instant,
    stored: BTreeMap<u32, (u64, String)>,
}

impl Bench {
    fn new(settings: IntakeSettings) -> Self {
        let now = Instant::now();
        Self { intake: Intake::new(settings, now, UNIX), now, stored: BTreeMap::new() }
    }

    /// The process dies and another one starts.
    fn restart(&mut self) {
        let settings = self.intake.settings;
        self.intake = Intake::new(settings, self.now, UNIX);
    }

    fn take_over(&mut self, partition: u32, end: u64) -> TakeOver {
        let committed = self.stored.get(&partition).map(|(offset, text)| (*offset, text.as_str()));
        self.intake.take_over(partition, committed, 0..end, self.now)
    }

    fn opened(&mut self, partition: u32, end: u64) -> TakeOver {
        let taken = self.take_over(partition, end);
        self.commit();
        taken
    }

    /// Sends what is due and answers it.
    fn commit(&mut self) -> Vec<Commit> {
        let commits = self.intake.commit_due(self.now);
        for commit in &commits {
            self.store(commit);
            self.intake.commit_answered(commit.partition, commit.number, true);
        }
        commits
    }

    fn store(&mut self, commit: &Commit) {
        self.stored.insert(commit.partition, (commit.offset, commit.metadata.clone()));
    }

    #[allow(dead_code)]
    fn release(&mut self, partition: u32) -> Option<Metadata> {
        let commit = self.intake.release(partition, self.now)?;
        self.store(&commit);
        Some(self.stored_metadata(partition))
    }

    fn stored_metadata(&self, partition: u32) -> Metadata {
        let (offset, text) = &self.stored[&partition];
        Metadata::decode(*offset, text).expect("ours")
    }

    fn start(&mut self, partition: u32, offset: u64) -> u64 {
        match self.intake.offer(partition, offset, None) {
            Admission::Start { tenure } => tenure,
            other => panic!("{partition}/{offset}: {other:?}"),
        }
    }

    fn pass(&mut self, partition: u32, offset: u64) {
        let tenure = self.start(partition, offset);
        self.intake.settled(partition, tenure, offset);
    }

    fn after(&mut self, time: Duration) {
        self.now += time;
    }
}

fn settings(window: u64) -> IntakeSettings {
    IntakeSettings { window, ..IntakeSettings::default() }
}

#[test]
fn a_takeover_is_committed_at_the_same_offset_before_anything_starts() {
    let mut bench = Bench::new(settings(10));
    let taken = bench.take_over(3, 100);
    assert_eq!(taken, TakeOver { offset: 0, tenure: UNIX, suspects: 0, unreadable: None });
    assert_eq!(bench.intake.offer(3, 0, None), Admission::Hold);
    let commits = bench.intake.commit_due(bench.now);
    assert_eq!(commits.iter().map(|commit| (commit.partition, commit.offset)).collect::<Vec<_>>(), [(3, 0)]);
    assert_eq!(bench.intake.offer(3, 0, None), Admission::Hold, "it is not answered");
    assert_eq!(bench.intake.commit_due(bench.now), [], "one at a time");
    bench.intake.commit_answered(3, commits[0].number, true);
    assert_eq!(bench.intake.offer(3, 0, None), Admission::Start { tenure: UNIX });
    assert_eq!(bench.intake.offer(9, 0, None), Admission::NotOurs);
}

#[test]
fn tenures_grow_whatever_the_clock_says_and_follow_it_when_metadata_is_lost() {
    let mut bench = Bench::new(settings(10));
    let mut last = 0;
    for _ in 0..3 {
        let tenure = bench.opened(0, 0).tenure;
        assert!(tenure > last && tenure >= UNIX);
        last = tenure;
        bench.restart();
    }
    bench.after(Duration::from_secs(3600));
    bench.stored.insert(0, (0, String::new()));
    let taken = bench.intake.take_over(0, Some((0, "")), 0..0, bench.now);
    assert_eq!((taken.tenure, taken.unreadable), (UNIX + 3600, Some(MetadataError::Missing)));
}

#[test]
fn a_partition_that_runs_idle_commits_at_once_and_a_busy_one_a_few_times_a_second() {
    let mut bench = Bench::new(settings(1_000));
    bench.opened(0, 0);
    let tenure = bench.start(0, 0);
    bench.pass(0, 1);
    assert_eq!(bench.commit(), []);
    bench.intake.settled(0, tenure, 0);
    assert_eq!(bench.commit()[0].offset, 2, "idle");
    assert_eq!(bench.commit(), [], "nothing new");
    bench.pass(0, 2);
    bench.start(0, 3);
    assert_eq!(bench.commit(), [], "busy");
    bench.after(Duration::from_millis(200));
    assert_eq!(bench.commit()[0].offset, 3);
}

#[test]
fn row_13_no_record_at_or_beyond_the_committed_limit_starts_and_commits_move_it_in_large_steps() {
    let mut bench = Bench::new(settings(8));
    bench.opened(0, 0);
    bench.start(0, 0);
    (1..8).for_each(|offset| bench.pass(0, offset));
    assert_eq!(bench.intake.offer(0, 8, None), Admission::Hold);
    assert_eq!(bench.commit(), [], "the first record holds up all");
    bench.intake.settled(0, UNIX, 0);
    assert_eq!(bench.intake.offer(0, 8, None), Admission::Hold, "the limit is not moved yet");
    assert_eq!(bench.commit()[0].offset, 8);
    bench.start(0, 8);
    assert_eq!(bench.stored_metadata(0).limit, 16);
    (9..12).for_each(|offset| bench.pass(0, offset));
    bench.intake.settled(0, UNIX, 8);
    bench.start(0, 12);
    assert_eq!(bench.commit()[0].offset, 12, "half of the window is used up");
}

#[test]
fn a_failed_commit_is_sent_again_in_a_while_and_opens_nothing() {
    let mut bench = Bench::new(settings(10));
    bench.take_over(0, 0);
    let commits = bench.intake.commit_due(bench.now);
    bench.intake.commit_answered(0, commits[0].number, false);
    assert_eq!(bench.intake.offer(0, 0, None), Admission::Hold);
    assert_eq!(bench.commit(), []);
    bench.after(Duration::from_millis(200));
    assert_eq!(bench.commit().len(), 1);
    bench.start(0, 0);
}
