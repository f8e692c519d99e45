//! The command line: one file a command, each turns its arguments into one call of the library and an [`Exit`].

mod completions;
mod control;
mod dlq;
mod events;
mod exit;
mod explain;
mod health;
pub mod manifests;
mod preview;
mod process;
mod progress;
mod publish;
mod result;
mod role;
mod role_lines;
mod run;
mod schema;
#[cfg(feature = "embedded")]
mod search;
mod server;
mod signals;
pub mod style;
mod topics;
mod validate;

pub use exit::Exit;

use crate::{
    courier::Role,
    telemetry::{self, LogFormat},
};
use clap::{Parser, Subcommand};
use std::io::{self, Write};

const AFTER_HELP: &str = "\
Exit codes: 0 complete, 1 run failed, 2 wrong usage, 64 invalid configuration, 69 backend or broker
not reachable, 70 internal error, 75 interrupted with work remaining, 76 superseded by a newer
publisher.";

/// Brings documents into search engines and proves that none got lost.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, after_help = AFTER_HELP, max_term_width = 110)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// The form of log lines on standard error. What is logged is said by PENSTOCK_LOG (info, debug, penstock::document=debug).
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a script that completes commands and options in your shell.
    Completions(completions::Completions),
    /// Look into the dead letter topic of a pipeline, bring documents in again, remove letters.
    Dlq(dlq::Dlq),
    /// Show the log of a run over Kafka: publishers, checkpoints, how documents ended.
    Events(events::Events),
    /// Show the reference of a kind, a component or a field.
    Explain(explain::Explain),
    /// Tell whether the heartbeat of a process is fresh.
    Health(health::HealthCommand),
    /// Index for pipelines over Kafka: from their dest topics to their backends.
    Indexer(role::RoleCommand),
    /// Execute one step of a run over Kafka; workers and indexers are processes of their own.
    Publish(Box<publish::PublishCommand>),
    /// Execute a run in this process: connectors, stages and indexers.
    Run(Box<run::RunCommand>),
    /// Print the JSON schema of manifests, for editors.
    Schema(schema::Schema),
    /// Find documents in an index that a run has written.
    #[cfg(feature = "embedded")]
    Search(search::Search),
    /// Check manifests without running them: all problems at once, each with place and cure.
    Validate(validate::Validate),
    /// Work for pipelines over Kafka: stages, from their source to their dest topics.
    Worker(role::RoleCommand),
    /// Work and index for pipelines over Kafka in one process, without a dest topic.
    WorkerIndexer(role::RoleCommand),
}

impl Cli {
    /// Does what the arguments ask for. An error that no command foresaw is printed with its causes.
    pub fn execute(self) -> Exit {
        telemetry::start(self.log_format);
        let result = match self.command {
            Command::Completions(command) => command.execute(),
            Command::Dlq(command) => command.execute(),
            Command::Events(command) => command.execute(),
            Command::Explain(command) => command.execute(),
            Command::Health(command) => command.execute(),
            Command::Indexer(command) => command.execute(Role::Indexer),
            Command::Publish(command) => command.execute(),
            Command::Run(command) => command.execute(),
            Command::Schema(command) => command.execute(),
            #[cfg(feature = "embedded")]
            Command::Search(command) => command.execute(),
            Command::Validate(command) => command.execute(),
            Command::Worker(command) => command.execute(Role::Worker),
            Command::WorkerIndexer(command) => command.execute(Role::WorkerIndexer),
        };
        result.unwrap_or_else(|error| {
            if is_closed_pipe(&error) {
                return Exit::Complete;
            }
            // Standard error may be closed as well; then nobody is left to tell.
            let _ = writeln!(io::stderr(), "error: {error:#}");
            Exit::Internal
        })
    }
}

/// The reader of our output, such as `head`, has seen enough: no error of ours.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_declared_consistently() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_by_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("penstock "), "`penstock {} --help` shows no example", command.get_name());
        }
    }

    #[test]
    fn no_line_of_the_examples_is_wider_than_a_terminal() {
        fn all(command: &clap::Command) -> Vec<&clap::Command> {
            command.get_subcommands().flat_map(all).chain([command]).collect()
        }
        for command in all(&Cli::command()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wide: Vec<_> = help.lines().filter(|line| line.chars().count() > 100).collect();
            assert!(wide.is_empty(), "`penstock {} --help` is broken twice at {wide:?}", command.get_name());
        }
    }
}
