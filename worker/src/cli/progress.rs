//! What a person sees while a run works: bars on a terminal, lines otherwise.

use super::role_lines::RoleLines;
use crate::{
    metrics::{RunFigures, StepFigures},
    runner::duration,
    telemetry,
};
use clap::ValueEnum;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// Bars on a terminal, lines otherwise.
    Auto,
    /// Bars.
    Bars,
    /// Lines in the log.
    Lines,
    /// Nothing.
    None,
}

/// The thread that shows progress.
pub(super) struct Progress {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// How often bars are drawn.
const REDRAW: Duration = Duration::from_millis(100);

impl Progress {
    pub(super) fn start(mode: ProgressMode, log_interval: Duration, figures: Arc<RunFigures>) -> io::Result<Self> {
        let bars = match mode {
            ProgressMode::Auto => io::stderr().is_terminal(),
            ProgressMode::Bars => true,
            ProgressMode::Lines | ProgressMode::None => false,
        };
        Self::show(figures, move || match (mode, bars) {
            (ProgressMode::None, _) => Box::new(Nothing),
            (_, true) => Box::new(Bars::new()),
            (_, false) => Box::new(Lines { next: Instant::now() + log_interval, interval: log_interval, speeds: Vec::new() }),
        })
    }

    /// A line now and then for each role of the process.
    pub(super) fn of_roles(log_interval: Duration, figures: Arc<RunFigures>) -> io::Result<Self> {
        Self::show(figures, move || Box::new(RoleLines::new(log_interval)))
    }

    fn show(figures: Arc<RunFigures>, make: impl FnOnce() -> Box<dyn View> + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let mut view = make();
            loop {
                let ended = !matches!(stopped.recv_timeout(REDRAW), Err(RecvTimeoutError::Timeout));
                view.show(&figures, ended);
                if ended {
                    return;
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Shows the end and stops.
    pub(super) fn finish(self) {
        // a thread that is gone needs no message
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

pub(super) trait View {
    fn show(&mut self, figures: &RunFigures, ended: bool);
}

struct Nothing;

impl View for Nothing {
    fn show(&mut self, _: &RunFigures, _: bool) {}
}

/// Documents a second, over about the last seconds.
pub(super) struct Speed {
    at: Instant,
    done: u64,
    rate: f64,
}

impl Speed {
    /// Nothing was done at that time.
    pub(super) fn since(at: Instant) -> Self {
        Self { at, done: 0, rate: 0.0 }
    }

    /// The rate, smoothed over the given time.
    pub(super) fn update(&mut self, done: u64, over: Duration) -> f64 {
        let seconds = self.at.elapsed().as_secs_f64();
        if seconds > 0.0 {
            let now = done.saturating_sub(self.done) as f64 / seconds;
            let weight = 1.0 - (-seconds / over.as_secs_f64()).exp();
            self.rate = if self.rate == 0.0 { now } else { self.rate + (now - self.rate) * weight };
            (self.at, self.done) = (Instant::now(), done);
        }
        self.rate
    }
}

/// A bar for each connector.
struct Bars {
    all: MultiProgress,
    bars: Vec<(ProgressBar, Speed, Instant)>,
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::new();
        telemetry::write_above(all.clone());
        Self { all, bars: Vec::new() }
    }

    fn draw(&mut self, index: usize, step: &StepFigures, ended: bool) {
        if self.bars.len() == index {
            let bar = self.all.add(ProgressBar::new(0));
            bar.set_prefix(step.connector.clone());
            self.bars.push((bar, Speed::since(Instant::now()), Instant::now()));
        }
        let (bar, speed, begun) = &mut self.bars[index];
        let counts = step.state.counts();
        let (done, total) = step.state.source();
        let template = match total {
            Some(_) => "{prefix:<16} [{bar:24}] {percent:>3} % {msg}",
            None => "{prefix:<16} {spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if let Some(total) = total {
            bar.set_length(total.max(1));
            bar.set_position(if ended { total.max(1) } else { done.min(total) });
        }
        let closed = counts.published - counts.pending;
        let rate = speed.update(closed, Duration::from_secs(3));
        let merging = step.state.received().map(|received| format!(" ({received} before merging)")).unwrap_or_default();
        let mut text = format!(
            "{} published{merging}, {} pending, {} indexed, {} failed",
            counts.published, counts.pending, counts.finished, counts.failed
        );
        if !ended {
            text.push_str(&format!(", {rate:.0}/s"));
            if let Some(left) = time_left(begun.elapsed(), done, total) {
                text.push_str(&format!(", {} left", duration(left)));
            }
        }
        bar.set_message(text);
        if ended && !bar.is_finished() {
            bar.abandon();
        }
    }
}

/// Seconds that are left if it goes on as it went.
fn time_left(elapsed: Duration, done: u64, total: Option<u64>) -> Option<f64> {
    let total = total.filter(|total| done > 0 && done < *total)?;
    Some(elapsed.as_secs_f64() * (total - done) as f64 / done as f64)
}

impl View for Bars {
    fn show(&mut self, figures: &RunFigures, ended: bool) {
        let done = figures.ended().len();
        for (index, step) in figures.begun().iter().enumerate() {
            let step_ended = index < done || ended;
            if self.bars.get(index).is_none_or(|(bar, ..)| !bar.is_finished()) {
                self.draw(index, step, step_ended);
            }
        }
        if ended {
            telemetry::write_plainly();
        }
    }
}

/// Lines in the log: publisher, worker, indexer.
struct Lines {
    next: Instant,
    interval: Duration,
    speeds: Vec<Speed>,
}

impl View for Lines {
    fn show(&mut self, figures: &RunFigures, _: bool) {
        if Instant::now() < self.next {
            return;
        }
        let before = std::mem::replace(&mut self.next, Instant::now() + self.interval).checked_sub(self.interval);
        let begun = figures.begun();
        let Some((index, step)) = begun.iter().enumerate().next_back().filter(|_| figures.ended().len() < begun.len()) else { return };
        while self.speeds.len() <= index {
            self.speeds.push(Speed::since(before.unwrap_or_else(Instant::now)));
        }
        let counts = step.state.counts();
        let rate = self.speeds[index].update(counts.published - counts.pending, Duration::from_secs(60)).round();
        let connector = step.connector.as_str();
        tracing::info!(
            connector,
            published = counts.published,
            before_merging = step.state.received(),
            pending = counts.pending,
            rate,
            "publisher"
        );
        let (processed, mean_latency_us) = stages(step);
        tracing::info!(connector, processed, mean_latency_us, failed = counts.failed, dropped = counts.dropped, "workers");
        let finished = step.indexer.finished.load(Relaxed);
        let (batches, mean_batch_us) = batches(step);
        tracing::info!(connector, finished, batches, mean_batch_us, "indexer");
    }
}

/// Documents that have passed the stages, and how long one takes.
pub(super) fn stages(step: &StepFigures) -> (u64, f64) {
    let totals = step.stages.totals();
    let processed = totals.iter().map(|(_, stats)| stats.processed).max().unwrap_or(0);
    (processed, mean_us(totals.iter().map(|(_, stats)| stats.durations.sum_seconds).sum(), processed))
}

/// Requests that the backend has answered, and how long one takes.
pub(super) fn batches(step: &StepFigures) -> (u64, f64) {
    let batches = step.indexer.batches.load(Relaxed);
    (batches, mean_us(step.indexer.batch_nanos.load(Relaxed) as f64 / 1e9, batches))
}

fn mean_us(seconds: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { (seconds / count as f64 * 1e6).round() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{indexers::IndexerStats, metrics::StageFigures, publisher::StepState, telemetry::testing::logged};
    use indicatif::ProgressDrawTarget;
    use penstock_crds::ingest_run::Counts;
    use tracing::Level;

    fn figures() -> RunFigures {
        let figures = RunFigures::new("r", 1);
        let (indexer, stages) = (Arc::new(IndexerStats::default()), Arc::new(StageFigures::new(&[])));
        let (connector, pipeline) = ("c".into(), "p".into());
        figures.begin(Arc::new(StepFigures { connector, pipeline, state: StepState::new(), indexer, stages }));
        figures
    }

    #[test]
    fn bars_come_at_once_and_lines_with_the_first_interval_m6() {
        let figures = figures();
        let mut bars = Bars { all: MultiProgress::with_draw_target(ProgressDrawTarget::hidden()), bars: Vec::new() };
        bars.show(&figures, false);
        assert_eq!(bars.bars[0].0.message(), "0 published, 0 pending, 0 indexed, 0 failed, 0/s");
        let interval = Duration::from_secs(3600);
        let mut lines = Lines { next: Instant::now() + interval, interval, speeds: Vec::new() };
        let shown = |lines: &mut Lines| logged(Level::INFO, || lines.show(&figures, false)).1.lines().count();
        assert_eq!(shown(&mut lines), 0);
        lines.next = Instant::now();
        assert_eq!((shown(&mut lines), shown(&mut lines)), (3, 0), "one of publisher, workers and indexer each");
    }

    #[test]
    fn the_first_line_tells_the_rate_since_the_line_before() {
        let figures = figures();
        let begun = figures.begun();
        begun[0].state.set_counts(Counts { published: 7_000, finished: 6_000, pending: 1_000, ..Counts::default() });
        let mut lines = Lines { next: Instant::now(), interval: Duration::from_secs(60), speeds: Vec::new() };
        let ((), log) = logged(Level::INFO, || lines.show(&figures, false));
        assert!(log.contains("rate=100"), "6,000 in the 60 s before: {log}");
    }

    #[test]
    fn the_time_left_follows_what_is_done() {
        assert_eq!(time_left(Duration::from_secs(10), 25, Some(100)), Some(30.0));
        assert_eq!(time_left(Duration::from_secs(10), 0, Some(100)), None);
        assert_eq!(time_left(Duration::from_secs(10), 5, None), None);
    }
}
