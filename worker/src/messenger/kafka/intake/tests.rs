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
fn a_failed_commit_is_sent_again_in_a_while_and_opens_nothing_s24() {
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

#[test]
fn row_11_a_partition_that_is_given_back_drained_leaves_no_suspects() {
    let mut bench = Bench::new(settings(10));
    bench.opened(0, 100);
    let tenure = bench.start(0, 0);
    bench.intake.begin_revoke(0);
    assert_eq!(bench.intake.offer(0, 1, None), Admission::Hold);
    assert!(!bench.intake.is_drained(0));
    bench.intake.settled(0, tenure, 0);
    assert!(bench.intake.is_drained(0));
    let left = bench.release(0).expect("something to say");
    assert_eq!((left.clean, left.limit, bench.stored[&0].0), (true, 1, 1));
    assert!(!bench.intake.owns(0, tenure));
    assert_eq!(bench.intake.commit_due(bench.now), [], "nothing is committed for what is not ours");
    bench.restart();
    assert_eq!(bench.opened(0, 100).suspects, 0);
    bench.start(0, 1);
}

#[test]
fn a_drain_that_runs_out_of_time_leaves_suspects() {
    let mut bench = Bench::new(settings(10));
    bench.opened(0, 100);
    for offset in 0..5 {
        bench.start(0, offset);
    }
    bench.intake.settled(0, UNIX, 3);
    bench.intake.begin_revoke(0);
    let left = bench.release(0).expect("something to say");
    assert_eq!((left.clean, left.limit, left.done), (false, 10, vec![3]));
    bench.restart();
    assert_eq!(bench.opened(0, 100).suspects, 9);
    bench.restart();
    assert_eq!(bench.opened(0, 2).suspects, 2, "what was not in the log was not running");
}

#[test]
fn a_partition_that_was_never_taken_over_is_given_back_as_it_was() {
    let mut bench = Bench::new(settings(10));
    bench.take_over(0, 0);
    bench.intake.begin_revoke(0);
    assert_eq!(bench.release(0), None);
}

#[test]
fn suspects_run_alone_each_after_a_commit_that_marks_it_and_clears_the_one_before() {
    let mut bench = Bench::new(settings(3));
    for partition in [0, 1] {
        bench.opened(partition, 100);
        bench.start(partition, 0);
    }
    bench.restart();
    assert_eq!((bench.opened(0, 2).suspects, bench.opened(1, 1).suspects), (2, 1));
    bench.opened(2, 100);
    for (partition, offset) in [(0, 0), (0, 1), (1, 0)] {
        assert_eq!(bench.intake.offer(partition, offset, None), Admission::Hold, "not marked yet");
        assert_eq!(bench.intake.offer(2, 0, None), Admission::Hold, "suspects first");
        bench.commit();
        let marks = |of: u32| bench.stored_metadata(of).marks;
        assert_eq!([marks(0), marks(1)].iter().map(BTreeMap::len).sum::<usize>(), 1, "at {partition}/{offset}");
        assert_eq!(marks(partition)[&offset], 1);
        let tenure = bench.start(partition, offset);
        assert_eq!(bench.intake.offer(2, 0, None), Admission::Hold, "alone");
        bench.intake.settled(partition, tenure, offset);
    }
    bench.start(2, 0);
    bench.commit();
    assert!((0..2).all(|partition| bench.stored_metadata(partition).marks.is_empty()));
}

#[test]
fn suspects_that_do_not_come_hold_up_nobody_for_long() {
    let mut bench = Bench::new(settings(3));
    bench.opened(0, 100);
    bench.start(0, 0);
    bench.restart();
    assert_eq!(bench.opened(0, 100).suspects, 3);
    bench.opened(1, 100);
    assert_eq!(bench.intake.offer(1, 0, None), Admission::Hold);
    bench.after(Duration::from_secs(1));
    bench.commit();
    let tenure = bench.start(1, 0);
    assert_eq!(bench.intake.offer(0, 0, None), Admission::Hold);
    assert_eq!(bench.commit(), [], "something else runs");
    assert_eq!(bench.intake.offer(1, 1, None), Admission::Hold, "so that the suspect gets its turn");
    bench.intake.settled(1, tenure, 0);
    bench.commit();
    bench.start(0, 0);
}

#[test]
fn what_was_done_before_is_done_again_in_order_and_is_no_suspect() {
    let mut bench = Bench::new(settings(4));
    bench.opened(0, 100);
    let tenure = bench.start(0, 0);
    bench.pass(0, 1);
    bench.after(Duration::from_secs(1));
    bench.commit();
    assert!(bench.intake.owns(0, tenure));
    for _ in 0..2 {
        bench.restart();
        assert_eq!(bench.opened(0, 100).suspects, 3, "also if the one after dies at once");
    }
    assert_eq!(bench.intake.offer(0, 0, None), Admission::Hold);
    bench.commit();
    bench.pass(0, 0);
    bench.start(0, 1);
    assert_eq!(bench.intake.offer(0, 2, None), Admission::Hold);
    bench.restart();
    assert_eq!(bench.take_over(0, 100).offset, 0, "the mark of 2 waited for 1");
}

#[test]
fn row_19_a_rewind_drops_what_is_in_flight_and_counts_no_attempt() {
    let mut bench = Bench::new(settings(4));
    let before = bench.opened(0, 100).tenure;
    bench.pass(0, 0);
    bench.start(0, 1);
    bench.pass(0, 2);
    let taken = bench.intake.rewind(0, bench.now).expect("ours");
    assert_eq!((taken.offset, taken.tenure), (1, before + 1));
    assert!(!bench.intake.owns(0, before));
    bench.intake.settled(0, before, 1);
    assert_eq!(bench.intake.offer(0, 1, None), Admission::Hold, "a takeover");
    assert_eq!(bench.commit()[0].offset, 1);
    assert_eq!(bench.start(0, 1), before + 1);
    bench.restart();
    bench.opened(0, 100);
    for _ in 0..5 {
        assert_eq!(bench.intake.offer(0, 1, None), Admission::Hold);
        bench.commit();
        assert_eq!(bench.stored_metadata(0).marks, BTreeMap::from([(1, 1)]));
        bench.start(0, 1);
        bench.intake.rewind(0, bench.now);
        bench.commit();
        assert_eq!(bench.stored_metadata(0).marks, BTreeMap::new());
    }
}

#[test]
fn what_is_set_aside_is_condemned_when_another_passes_or_the_process_lives_on() {
    for another_passes in [true, false] {
        let mut bench = Bench::new(settings(2));
        bench.opened(0, 1);
        let tenure = bench.start(0, 0);
        bench.intake.blame(0, tenure, 0);
        bench.commit();
        assert_eq!(bench.stored_metadata(0).marks, BTreeMap::from([(0, 1)]));
        for attempt in 2..=3 {
            bench.restart();
            bench.opened(0, 1);
            assert_eq!(bench.intake.offer(0, 0, None), Admission::Hold);
            bench.commit();
            bench.start(0, 0);
            bench.intake.blame(0, bench.stored_metadata(0).tenure, 0);
            assert_eq!(bench.stored_metadata(0).marks, BTreeMap::from([(0, attempt)]));
        }
        bench.restart();
        let tenure = bench.opened(0, 1).tenure;
        assert_eq!(bench.intake.offer(0, 0, None), Admission::SetAside);
        bench.commit();
        assert_eq!(bench.intake.condemned(bench.now), []);
        if another_passes {
            bench.pass(0, 1);
        } else {
            bench.after(Duration::from_secs(30));
        }
        let condemned = Condemned { partition: 0, offset: 0, attempts: 3 };
        assert_eq!(bench.intake.condemned(bench.now), [condemned]);
        assert_eq!(bench.intake.condemned(bench.now), []);
        bench.after(Duration::from_secs(1));
        bench.commit();
        assert_eq!(bench.stored_metadata(0).marks, BTreeMap::from([(0, 3)]), "until its letter is written");
        bench.intake.settled(0, tenure, 0);
        bench.commit();
        assert_eq!((bench.stored[&0].0, bench.stored_metadata(0).marks), (1 + u64::from(another_passes), BTreeMap::new()));
    }
}

#[test]
fn a_record_that_was_stuck_and_passes_after_all_is_not_blamed() {
    let mut bench = Bench::new(settings(4));
    bench.opened(0, 100);
    let tenure = bench.start(0, 0);
    bench.intake.blame(0, tenure, 0);
    bench.commit();
    assert_eq!(bench.stored_metadata(0).marks, BTreeMap::from([(0, 1)]));
    bench.intake.settled(0, tenure, 0);
    bench.commit();
    assert_eq!(bench.stored_metadata(0).marks, BTreeMap::new());
    bench.intake.begin_revoke(0);
    assert!(bench.release(0).expect("something to say").clean);
}

#[test]
fn row_22_what_a_topic_has_lost_or_never_had_holds_up_nothing() {
    let mut bench = Bench::new(settings(4));
    bench.opened(0, 100);
    assert_eq!(bench.intake.offer(0, 50, None), Admission::Hold, "beyond the limit");
    assert_eq!(bench.commit()[0].offset, 50);
    bench.start(0, 50);
    assert_eq!(bench.intake.offer(0, 50, None), Admission::Stale, "offered already");
}

#[test]
fn row_20_records_from_outside_are_not_filtered() {
    let mut bench = Bench::new(settings(9));
    bench.opened(0, 100);
    let of = |number| Some(Generation { origin: 7, number, remember: true });
    assert!(matches!(bench.intake.offer(0, 0, of(5)), Admission::Start { .. }));
    assert_eq!(bench.intake.offer(0, 1, of(4)), Admission::Stale);
    assert!(matches!(bench.intake.offer(0, 2, None), Admission::Start { .. }));
    bench.intake.settled(0, UNIX, 0);
    bench.after(Duration::from_secs(1));
    bench.commit();
    let seen = BTreeMap::from([(7, super::super::metadata::Highest { number: 5, hour: UNIX / 3_600 })]);
    assert_eq!((bench.stored[&0].0, bench.stored_metadata(0).seen), (2, seen));
}
