//! Tables and a random course of the decisions of a schedule.

use super::*;
use crate::ingest_schedule::history::End;
use k8s_openapi::jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// An hourly schedule that was looked at before, and is due at 02:00.
fn schedule(spec: Value) -> IngestSchedule {
    let mut whole = json!({
        "apiVersion": "penstock.io/v1alpha1", "kind": "IngestSchedule",
        "metadata": {"name": "s", "namespace": "shop", "uid": "u", "generation": 1, "creationTimestamp": "2026-11-30T00:30:00Z"},
        "spec": {"schedule": "0 * * * *", "runTemplate": {"spec": {"connectors": []}}},
        "status": {"observedGeneration": 1, "nextScheduleTime": "2026-11-30T02:00:00Z"},
    });
    whole["spec"].as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    serde_json::from_value(whole).expect("a schedule")
}

fn seen(schedule: &IngestSchedule, now: &str, runs: &[KnownRun]) -> Seen {
    let cron = schedule.spec.schedule.as_ref().map(|cron| Cron::new(cron, &schedule.spec.time_zone)).transpose();
    Seen { now: time(now), checked: cron, runs: runs.to_vec() }
}

fn at_work(name: &str) -> KnownRun {
    KnownRun { name: name.to_owned(), end: None, is_cancelled: false }
}

fn ended(name: &str) -> KnownRun {
    KnownRun { end: Some(End { at: time("2026-11-30T01:30:00Z"), succeeded: true }), ..at_work(name) }
}

fn decided(spec: Value, now: &str, runs: &[KnownRun]) -> Plan {
    let schedule = schedule(spec);
    decide(&schedule, &seen(&schedule, now, runs))
}

/// Status and reason of a condition.
fn condition(plan: &Plan, kind: C) -> Option<(String, String)> {
    status::find(&plan.status.conditions, kind).map(|condition| (condition.status.clone(), condition.reason.clone()))
}

fn says(status: &str, reason: Reason) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_string()))
}

fn tick(text: &str) -> String {
    due::name_of_tick("s", time(text))
}

#[test]
fn before_its_time_nothing_happens() {
    let plan = decided(json!({}), "2026-11-30T01:59:59Z", &[ended("s-1")]);
    assert_eq!((plan.start, plan.news, plan.waits), (None, vec![], false));
    assert_eq!(plan.status.next_schedule_time, Some(Time(time("2026-11-30T02:00:00Z"))));
}

#[test]
fn when_it_is_due_a_run_is_noted_and_started_and_the_next_tick_is_known() {
    let plan = decided(json!({}), "2026-11-30T02:00:00Z", &[ended("s-1")]);
    assert_eq!(plan.start, Some(tick("2026-11-30T02:00:00Z")));
    assert_eq!(plan.status.last_run, plan.start);
    assert_eq!(plan.status.last_schedule_time, Some(Time(time("2026-11-30T02:00:00Z"))));
    assert_eq!(plan.status.next_schedule_time, Some(Time(time("2026-11-30T03:00:00Z"))));
    assert_eq!(condition(&plan, C::Reconciling), says("True", Reason::ChangePending));
    assert_eq!(condition(&plan, C::Ready), says("True", Reason::AsSpecified));
    assert!(plan.settled(true).conditions.iter().all(|condition| condition.type_ != "Reconciling"));
    assert_eq!(plan.settled(true).active, Some(1));
}

#[test]
fn forbid_leaves_a_run_out_and_says_so_until_one_is_started() {
    let mut schedule = schedule(json!({}));
    let first = decide(&schedule, &seen(&schedule, "2026-11-30T02:00:00Z", &[at_work("s-1")]));
    let left_out = "the run due at 2026-11-30T02:00:00Z is left out: s-1 is still at work";
    assert_eq!((&first.start, &first.news), (&None, &vec![News::Skipped(left_out.into())]));
    assert_eq!(condition(&first, C::Ready), says("True", Reason::RunStillActive));
    assert_eq!(first.status.last_schedule_time, None, "no run was started");

    schedule.status = Some(first.status.clone());
    let meanwhile = decide(&schedule, &seen(&schedule, "2026-11-30T02:30:00Z", &[ended("s-1")]));
    assert!(meanwhile.news.is_empty() && meanwhile.start.is_none(), "it is said once, and not made up for");
    assert_eq!(condition(&meanwhile, C::Ready), says("True", Reason::RunStillActive));

    let next = decide(&schedule, &seen(&schedule, "2026-11-30T03:00:00Z", &[ended("s-1")]));
    assert_eq!(next.start, Some(tick("2026-11-30T03:00:00Z")));
    assert_eq!(condition(&next, C::Ready), says("True", Reason::AsSpecified));
}

#[test]
fn allow_starts_beside_others() {
    let plan = decided(json!({"concurrencyPolicy": "Allow"}), "2026-11-30T02:00:00Z", &[at_work("s-1")]);
    assert!(plan.start.is_some() && plan.cancel.is_empty());
    assert_eq!(plan.settled(true).active, Some(2));
}

#[test]
fn replace_cancels_and_starts_when_the_old_run_has_ended_whatever_the_deadline_says() {
    let mut schedule = schedule(json!({"concurrencyPolicy": "Replace", "startingDeadline": "60s"}));
    let first = decide(&schedule, &seen(&schedule, "2026-11-30T02:00:00Z", &[at_work("s-1")]));
    assert_eq!((&first.start, &first.cancel, first.waits), (&None, &vec!["s-1".to_owned()], true));

    schedule.status = Some(first.status.clone());
    let cancelled = KnownRun { is_cancelled: true, ..at_work("s-1") };
    let waiting = decide(&schedule, &seen(&schedule, "2026-11-30T02:04:00Z", std::slice::from_ref(&cancelled)));
    assert_eq!((&waiting.start, waiting.cancel.len(), waiting.waits), (&None, 0, true));
    assert_eq!(waiting.status, first.status, "nothing is written while it waits");

    let free = decide(&schedule, &seen(&schedule, "2026-11-30T02:05:00Z", &[ended("s-1")]));
    assert_eq!(free.start, Some(tick("2026-11-30T02:00:00Z")));

    let overtaken = decide(&schedule, &seen(&schedule, "2026-11-30T03:00:00Z", &[cancelled]));
    assert_eq!(overtaken.status.last_run, Some(tick("2026-11-30T03:00:00Z")), "only the last one is made up for");
    assert_eq!(overtaken.news.len(), 1);
}

#[test]
fn after_an_outage_the_last_tick_is_made_up_for_within_the_deadline() {
    let late = decided(json!({}), "2026-11-30T07:10:00Z", &[]);
    assert_eq!(late.start, Some(tick("2026-11-30T07:00:00Z")));
    let too_late = decided(json!({"startingDeadline": "5m"}), "2026-11-30T07:10:00Z", &[]);
    assert_eq!(too_late.start, None);
    assert!(matches!(too_late.news.as_slice(), [News::Missed(text)] if text.contains("2026-11-30T07:00:00Z")));
    assert_eq!(condition(&too_late, C::Ready), says("True", Reason::StartMissed));
    assert_eq!(too_late.status.next_schedule_time, Some(Time(time("2026-11-30T08:00:00Z"))));
}

#[test]
fn a_new_schedule_begins_with_its_creation_and_a_changed_one_with_the_change() {
    let mut new = schedule(json!({}));
    new.status = None;
    assert_eq!(decide(&new, &seen(&new, "2026-11-30T00:40:00Z", &[])).start, None);
    assert!(decide(&new, &seen(&new, "2026-11-30T01:00:01Z", &[])).start.is_some());

    // it was due at night; now it is due in the afternoon, which is no reason to start at once
    let mut changed = schedule(json!({"schedule": "0 13 * * *"}));
    changed.status.as_mut().expect("a status").next_schedule_time = Some(Time(time("2026-12-01T02:00:00Z")));
    let plan = decide(&changed, &seen(&changed, "2026-11-30T15:00:00Z", &[]));
    assert_eq!((plan.start, plan.status.next_schedule_time), (None, Some(Time(time("2026-12-01T13:00:00Z")))));
}

#[test]
fn while_it_is_suspended_nothing_is_started_and_ticks_of_that_time_are_left_out() {
    let mut schedule = schedule(json!({"suspend": true, "triggerNonce": "a"}));
    let plan = decide(&schedule, &seen(&schedule, "2026-11-30T02:00:00Z", &[]));
    assert_eq!((&plan.start, plan.status.next_schedule_time.as_ref()), (&None, None));
    assert_eq!(condition(&plan, C::Suspended), says("True", Reason::Suspended));
    assert_eq!(condition(&plan, C::Ready), says("False", Reason::Suspended));

    schedule.status = Some(plan.status);
    schedule.spec.suspend = false;
    let resumed = decide(&schedule, &seen(&schedule, "2026-11-30T05:30:00Z", &[]));
    assert_eq!(resumed.start, Some(due::name_of_nonce("s", "a")), "the nonce waited");
    assert_eq!(resumed.status.next_schedule_time, Some(Time(time("2026-11-30T06:00:00Z"))));
}

#[test]
fn a_nonce_starts_one_run_and_waits_for_one_that_is_at_work() {
    let only_nonce = |runs: &[KnownRun]| decided(json!({"triggerNonce": "a"}), "2026-11-30T01:10:00Z", runs);
    let plan = only_nonce(&[]);
    assert_eq!((plan.start, plan.status.handled_nonce.as_deref()), (Some(due::name_of_nonce("s", "a")), Some("a")));

    let waiting = only_nonce(&[at_work("s-1")]);
    assert_eq!((&waiting.start, &waiting.status.handled_nonce, waiting.waits), (&None, &None, true));
    assert_eq!(condition(&waiting, C::Reconciling), says("True", Reason::RunStillActive));

    let used = only_nonce(&[ended(&due::name_of_nonce("s", "a"))]);
    assert_eq!((&used.start, used.status.handled_nonce.as_deref(), used.news.len()), (&None, Some("a"), 1));
}

#[test]
fn a_tick_and_a_nonce_at_once_start_one_after_the_other() {
    let mut schedule = schedule(json!({"triggerNonce": "a", "concurrencyPolicy": "Allow"}));
    let first = decide(&schedule, &seen(&schedule, "2026-11-30T02:00:00Z", &[]));
    assert_eq!((&first.start, first.waits), (&Some(tick("2026-11-30T02:00:00Z")), true));
    schedule.status = Some(first.settled(true));
    let second = decide(&schedule, &seen(&schedule, "2026-11-30T02:00:01Z", &[at_work(&tick("2026-11-30T02:00:00Z"))]));
    assert_eq!(second.start, Some(due::name_of_nonce("s", "a")));
}

#[test]
fn what_is_wrong_is_said_and_the_tick_waits_for_the_cure() {
    let mut schedule = schedule(json!({}));
    let mut broken = seen(&schedule, "2026-11-30T02:00:00Z", &[]);
    broken.checked = Err(vec!["spec.a: wrong".into(), "spec.b: wrong".into()]);
    let plan = decide(&schedule, &broken);
    assert_eq!(plan.start, None);
    assert_eq!(condition(&plan, C::SpecValid), says("False", Reason::InvalidSpec));
    assert_eq!(condition(&plan, C::Stalled), says("True", Reason::InvalidSpec));
    schedule.status = Some(plan.status);
    assert_eq!(decide(&schedule, &seen(&schedule, "2026-11-30T02:20:00Z", &[])).start, Some(tick("2026-11-30T02:00:00Z")));
}

proptest! {
    /// A cluster with a schedule in it, and an operator that dies at any point: after the note, after the run was made, never. Each
    /// tick has one run at most, Forbid never has two at work, and a decision that changes nothing writes nothing.
    #[test]
    fn no_tick_has_two_runs_wherever_it_is_interrupted(
        steps in prop::collection::vec((0..100_i64, 0..4_u8, 0..3_usize, any::<bool>()), 1..80),
        policy in prop::sample::select(vec!["Forbid", "Allow", "Replace"]),
    ) {
        let mut schedule = schedule(json!({"concurrencyPolicy": policy, "successfulRunsHistoryLimit": 2}));
        let mut now = time("2026-11-30T00:30:00Z");
        let mut runs: Vec<KnownRun> = Vec::new();
        let mut made: Vec<String> = Vec::new();
        for (minutes, dies, ends, nonce) in steps {
            now += SignedDuration::from_mins(minutes);
            if let Some(run) = runs.get_mut(ends).filter(|run| run.end.is_none()) {
                run.end = Some(End { at: now, succeeded: ends != 1 });
            }
            if nonce {
                schedule.spec.trigger_nonce = Some(format!("n{minutes}"));
            }
            let seen = |runs: &[KnownRun], schedule: &IngestSchedule| seen(schedule, &now.to_string(), runs);
            let plan = decide(&schedule, &seen(&runs, &schedule));
            if dies == 0 {
                continue;
            }
            schedule.status = Some(plan.status.clone());
            if dies == 1 {
                continue;
            }
            for run in runs.iter_mut().filter(|run| plan.cancel.contains(&run.name)) {
                run.is_cancelled = true;
            }
            if let Some(name) = &plan.start {
                prop_assert!(!made.contains(name) || name.starts_with("s-n"), "{name} is made twice");
                prop_assert!(!runs.iter().any(|run| run.name == *name));
                made.push(name.clone());
                runs.push(at_work(name));
                if dies == 2 {
                    continue;
                }
                schedule.status = Some(plan.settled(true));
            }
            runs.retain(|run| !plan.outlived.contains(&run.name));
            let active = runs.iter().filter(|run| run.end.is_none()).count();
            prop_assert!(policy == "Allow" || active <= 1, "{active} are at work");
            let again = decide(&schedule, &seen(&runs, &schedule));
            if again.start.is_none() && again.news.is_empty() && !plan.waits && plan.outlived.is_empty() {
                prop_assert_eq!(Some(&again.status), schedule.status.as_ref(), "nothing changed, so nothing is written");
            }
        }
        let ticks: BTreeSet<&String> = made.iter().filter(|name| !name.starts_with("s-n")).collect();
        prop_assert_eq!(ticks.len(), made.iter().filter(|name| !name.starts_with("s-n")).count());
    }
}
