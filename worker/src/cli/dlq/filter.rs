//! Which letters: the arguments that all commands have.

use crate::{
    cli::topics::{NoTarget, Target, TopicArgs},
    kafka::dlq::Filter,
};
use clap::Args;
use jiff::Timestamp;

/// Which letters are meant. Each part that is given has to be met.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Of this run: its id, or its name for all runs of that name.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// That failed in this stage, or `indexer`; an empty name: records that could not be read.
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
    /// With this text in the reason, in upper or lower case.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Of the document with this id.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// That failed at that time or later: 2026-05-01T10:00:00Z, 2026-05-01 (UTC), or so long ago: 2h.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// That failed before that time.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// The one that stands there, as `list` shows it: PARTITION/OFFSET.
    #[arg(long, value_name = "PLACE", value_parser = place)]
    at: Option<(i32, i64)>,
}

/// Which letters of which pipeline, for commands that change something: that all are meant has to be said.
#[derive(Debug, Args)]
pub struct MeantArgs {
    #[command(flatten)]
    topics: TopicArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// All letters: needed where nothing says which.
    #[arg(long)]
    all: bool,
}

impl MeantArgs {
    /// The letters and the pipeline that are meant. `administration`: with the credentials of who may delete records.
    pub(super) fn target(&self, administration: bool) -> Result<(Filter, Target), NoTarget> {
        let filter = self.filter.filter();
        if filter.is_all() && !self.all {
            return Err(NoTarget::Usage("say which letters, for example by --stage or --run, or --all"));
        }
        Ok((filter, self.topics.target(administration)?))
    }
}

impl FilterArgs {
    pub(super) fn filter(&self) -> Filter {
        Filter {
            run: self.run.clone(),
            stage: self.stage.clone(),
            reason: self.reason.clone(),
            id: self.id.clone(),
            since: self.since,
            until: self.until,
            at: self.at,
        }
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse().or_else(|_| format!("{text}T00:00:00Z").parse()) {
        return Ok(time);
    }
    let ago = crate::cli::process::parse_duration(text);
    let ago = ago.map_err(|_| "not a time: write 2026-05-01T10:00:00Z, 2026-05-01, or how long ago: 90m, 2h, 3d".to_owned())?;
    Timestamp::now().checked_sub(ago.get()).map_err(|error| error.to_string())
}

fn place(text: &str) -> Result<(i32, i64), String> {
    let parse = |(partition, offset): (&str, &str)| Some((partition.parse().ok()?, offset.parse().ok()?));
    text.split_once('/').and_then(parse).ok_or_else(|| "not a place: write PARTITION/OFFSET, for example 0/17".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_points_days_or_ago() {
        assert_eq!(time("2026-05-01"), time("2026-05-01T00:00:00Z"));
        assert_eq!(time("2026-05-01T10:00:00+02:00"), time("2026-05-01T08:00:00Z"));
        let ago = Timestamp::now().as_second() - time("2h").expect("ago").as_second();
        assert!((7_200..7_260).contains(&ago), "{ago}");
        assert!(time("yesterday").is_err_and(|error| error.contains("2h")));
    }

    #[test]
    fn places_are_partition_and_offset() {
        assert_eq!(place("0/17"), Ok((0, 17)));
        for text in ["17", "a/b", "0/"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
