//! Whether a schedule can work: its times, and its run by the very same checks as `penstock validate`.

use super::cron::Cron;
use crate::pipeline::validate::{check, object};
use penstock_crds::IngestSchedule;

/// A schedule that passed every check: when it is due, if by time at all.
///
/// # Errors
/// Everything that is wrong, a line each.
pub fn validate(schedule: &IngestSchedule) -> Result<Option<Cron>, Vec<String>> {
    let spec = &schedule.spec;
    let cron = spec.schedule.as_ref().map(|cron| Cron::new(cron, &spec.time_zone)).transpose();
    let problems = check(&[object("IngestSchedule", schedule, spec)]);
    match cron {
        Ok(cron) if problems.is_empty() => Ok(cron),
        cron => Err(cron.err().unwrap_or_default().into_iter().chain(problems).collect()),
    }
}
