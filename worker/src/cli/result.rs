//! `--result-file`: what became of a step, for whoever started the process. It is written for every end.

use super::Exit;
use crate::{manifest::Report, metrics::RunFigures, wording::counted};
use anyhow::Context;
use penstock_crds::{
    conditions::{ConnectorState, Reason},
    report::{LARGEST_RESULT, StepReport},
};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// How a command that executes a step ended.
pub(super) struct Ended {
    /// The exit code.
    pub exit: Exit,
    /// What is to be told of the step. Nothing if there was none.
    pub report: Option<StepReport>,
}

impl Ended {
    /// The step did not begin: that is why.
    fn before_it_began(connector: Option<&str>, exit: Exit, message: impl Into<String>) -> Self {
        let reason = if exit == Exit::Invalid { Reason::InvalidSpec } else { Reason::ProcessingFailed };
        let report = connector.map(|connector| StepReport {
            state: ConnectorState::Failed,
            reason: Some(reason),
            message: Some(message.into()),
            ..StepReport::new(connector)
        });
        Self { exit, report }
    }

    /// The arguments do not allow the step to begin: says so.
    pub fn refused(connector: Option<&str>, exit: Exit, message: &str) -> anyhow::Result<Self> {
        writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
        Ok(Self::before_it_began(connector, exit, message))
    }

    /// The step did not begin, since the manifests are invalid.
    pub fn invalid(connector: Option<&str>, problems: &Report) -> Self {
        let lines: Vec<String> = problems.problems.iter().map(ToString::to_string).collect();
        Self::before_it_began(connector, Exit::Invalid, lines.join("\n"))
    }
}

/// Writes what became of the step, also if that was an error which nobody foresaw.
pub(super) fn write(file: Option<&Path>, connector: Option<&str>, ended: anyhow::Result<Ended>) -> anyhow::Result<Exit> {
    let (exit, report) = match ended {
        Ok(Ended { exit, report }) => (Ok(exit), report),
        Err(error) => {
            let report = Ended::before_it_began(connector, Exit::Internal, format!("{error:#}")).report;
            (Err(error), report)
        }
    };
    if let (Some(file), Some(report)) = (file, report) {
        write_to(file, &report)?;
    }
    exit
}

fn write_to(file: &Path, report: &StepReport) -> anyhow::Result<()> {
    let text = report.to_json_within(LARGEST_RESULT).context("failed to write the result")?;
    // Kubernetes gives a file that is there already and cannot be replaced, only written
    fs::write(file, text).with_context(|| format!("failed to write the result to {}", file.display()))
}

/// The result of a process that has to end before its step has.
#[derive(Clone, Default)]
pub(super) struct LastWords(Option<Arc<Known>>);

struct Known {
    file: PathBuf,
    connector: String,
    figures: Arc<RunFigures>,
}

impl LastWords {
    /// Nothing, without a file.
    pub fn new(file: Option<&Path>, connector: &str, figures: &Arc<RunFigures>) -> Self {
        let known = |file: &Path| Known { file: file.into(), connector: connector.into(), figures: Arc::clone(figures) };
        Self(file.map(known).map(Arc::new))
    }

    /// Writes where the step stands. If it has ended, its result is written already, or will be.
    pub fn say(&self) {
        let Some(known) = &self.0 else { return };
        let begun = known.figures.report().connectors.pop();
        let report = begun.unwrap_or_else(|| StepReport { state: ConnectorState::Starting, ..StepReport::new(&known.connector) });
        if report.state.is_final() {
            return;
        }
        let message = format!("ended at once, with {} pending", counted(report.counts.pending, "document"));
        let report = StepReport { suspended: false, docs_per_second: None, message: Some(message), ..report };
        if let Err(error) = write_to(&known.file, &report) {
            tracing::error!(error = format!("{error:#}"), "the result is lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Problem;

    fn written(ended: anyhow::Result<Ended>) -> (StepReport, usize, Option<Exit>) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("result");
        fs::write(&file, "x".repeat(10_000)).expect("there already");
        let exit = write(Some(&file), Some("books"), ended).ok();
        let text = fs::read_to_string(&file).expect("written");
        (serde_json::from_str(&text).expect("a report"), text.len(), exit)
    }

    #[test]
    fn invalid_manifests_and_unforeseen_errors_have_a_result_too() {
        let problems = (0..500).map(|n| Problem::of_file(format!("{n}.yaml"), "is \"wrong\"")).collect();
        let (report, size, exit) = written(Ok(Ended::invalid(Some("books"), &Report { problems })));
        assert_eq!((report.name.as_str(), report.state, report.reason), ("books", ConnectorState::Failed, Some(Reason::InvalidSpec)));
        assert!(report.message.is_some_and(|message| message.starts_with("0.yaml: is \"wrong\"\n1.yaml: ") && message.ends_with('…')));
        assert_eq!((exit, size <= LARGEST_RESULT), (Some(Exit::Invalid), true));

        let (report, _, exit) = written(Err(anyhow::anyhow!("no port").context("failed to listen")));
        assert_eq!((report.reason, report.message.as_deref()), (Some(Reason::ProcessingFailed), Some("failed to listen: no port")));
        assert_eq!(exit, None);
    }
}
