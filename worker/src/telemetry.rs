//! The log: text on a terminal, JSON in a pod, always on standard error.

use indicatif::MultiProgress;
use parking_lot::Mutex;
use std::io::{self, Write};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The variable with the log filter, in the syntax of `tracing`.
pub const FILTER_VARIABLE: &str = "PENSTOCK_LOG";

/// Bars that log lines must be written above, while there are any.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Starts the log. The filter comes from `PENSTOCK_LOG`, for example `debug` or `penstock::document=debug`.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::builder()
        .with_default_directive(tracing::level_filters::LevelFilter::INFO.into())
        .with_env_var(FILTER_VARIABLE)
        .from_env_lossy();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Stderr);
    // a log that was started before (in tests) stays
    let _ = match format {
        LogFormat::Text => builder.with_ansi(crate::cli::style::has_colours(&io::stderr())).with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// From now on log lines are written above these bars.
pub fn write_above(bars: MultiProgress) {
    *BARS.lock() = Some(bars);
}

/// The bars are done.
pub fn write_plainly() {
    *BARS.lock() = None;
}

#[derive(Clone, Copy)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bars = BARS.lock().clone();
        match bars {
            Some(bars) => bars.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl MakeWriter<'_> for Stderr {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use std::sync::Arc;
    use tracing::Level;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Does something and gives what this thread has logged meanwhile, one line an event, without times.
    pub(crate) fn logged<T>(level: Level, work: impl FnOnce() -> T) -> (T, String) {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).without_time();
        let done = tracing::subscriber::with_default(subscriber.with_writer(move || writer.clone()).finish(), work);
        let log = String::from_utf8(std::mem::take(&mut *kept.0.lock())).expect("a log is text");
        (done, log)
    }
}
