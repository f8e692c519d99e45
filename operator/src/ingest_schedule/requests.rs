//! The exact requests of each scenario: one more, or another order, fails the test.

use super::{cron::Cron, due};
use crate::{
    fixtures::{Asked, FakeApi, context, failure, objects},
    reconciler::Reconciler,
};
use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use penstock_crds::{IngestRun, IngestSchedule};
use serde_json::{Value, json};

const RUNS: &str = "/apis/penstock.io/v1alpha1/namespaces/shop/ingestruns";
const STATUS: &str = "PATCH /apis/penstock.io/v1alpha1/namespaces/shop/ingestschedules/nightly/status";

fn schedule(spec: Value, status: Value) -> IngestSchedule {
    let mut whole = json!({
        "apiVersion": "penstock.io/v1alpha1",
        "kind": "IngestSchedule",
        "metadata": {"name": "nightly", "namespace": "shop", "uid": "schedule-uid", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "runTemplate": {
                "metadata": {"labels": {"team": "shop"}, "annotations": {"why": "nightly"}},
                "spec": {"connectors": [{"name": "numbers", "pipeline": "products", "sequence": {"count": 10}}]},
            }
        },
        "status": status,
    });
    whole["spec"].as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    serde_json::from_value(whole).expect("a schedule")
}

fn run(name: &str, phase: &str) -> IngestRun {
    serde_json::from_value(json!({
        "apiVersion": "penstock.io/v1alpha1",
        "kind": "IngestRun",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("{name}-uid"), "labels": {"penstock.io/schedule": "nightly"},
            "ownerReferences": [{"apiVersion": "penstock.io/v1alpha1", "kind": "IngestSchedule", "name": "nightly", "uid": "schedule-uid"}],
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"connectors": [{"name": "numbers", "pipeline": "products", "sequence": {"count": 10}}]},
        "status": {"phase": phase},
    }))
    .expect("a run")
}

/// Reconciles once and gives what the API server was asked.
async fn asked(schedule: &IngestSchedule, runs: Vec<IngestRun>, api: &FakeApi) -> Vec<Asked> {
    api.keep(schedule);
    runs.iter().for_each(|run| api.keep(run));
    schedule.reconcile(&context(api, |stores| stores.runs = objects(runs))).await.expect("it goes well");
    api.asked()
}

fn lines(asked: &[Asked]) -> Vec<&str> {
    asked.iter().map(|asked| asked.line.as_str()).collect()
}

fn obedient() -> FakeApi {
    FakeApi::new(|_| None)
}

/// The same schedule with the status that was written last.
fn with_written_status(schedule: &IngestSchedule, asked: &[Asked]) -> IngestSchedule {
    let written = asked.iter().rev().find(|asked| asked.line == STATUS).expect("a status was written");
    IngestSchedule { status: serde_json::from_value(written.body["status"].clone()).expect("a status"), ..schedule.clone() }
}

#[tokio::test]
async fn a_new_nonce_is_noted_then_its_run_is_made_then_that_is_noted_and_then_nothing_more_is_written() {
    let api = obedient();
    let schedule = schedule(json!({"triggerNonce": "a"}), json!({}));
    let asked = asked(&schedule, vec![], &api).await;
    let post = format!("POST {RUNS}");
    assert_eq!(lines(&asked), [STATUS, &post, STATUS]);

    let name = due::name_of_nonce("nightly", "a");
    assert_eq!((&asked[0].body["status"]["lastRun"], &asked[0].body["status"]["handledNonce"]), (&json!(name), &json!("a")));
    let made = &asked[1].body;
    assert_eq!(made["metadata"]["name"], json!(name));
    assert_eq!(made["metadata"]["labels"], json!({"team": "shop", "penstock.io/schedule": "nightly"}));
    assert_eq!(made["metadata"]["annotations"], json!({"why": "nightly"}));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "schedule-uid");
    assert_eq!(made["spec"]["connectors"][0]["name"], "numbers");
    assert_eq!(asked[2].body["status"]["active"], 1);
    assert_eq!(api.events().await, ["RunStarted"]);

    let again = obedient();
    let quiet = self::asked(&with_written_status(&schedule, &asked), vec![run(&name, "Running")], &again).await;
    assert!(quiet.is_empty(), "{quiet:#?}");
}

#[tokio::test]
async fn a_tick_makes_the_run_that_is_called_after_it() {
    let api = obedient();
    // once a year: the tick is the same one all through this test
    let yearly = json!({"schedule": "0 0 1 1 *"});
    let schedule = schedule(yearly, json!({"observedGeneration": 2, "nextScheduleTime": "2026-01-01T00:00:00Z", "lastRun": "nightly-1"}));
    let asked = asked(&schedule, vec![], &api).await;
    let (last, post) = (format!("GET {RUNS}/nightly-1"), format!("POST {RUNS}"));
    assert_eq!(lines(&asked), [&last, STATUS, &post, STATUS]);
    let now = Timestamp::now();
    let tick = Cron::new("0 0 1 1 *", "UTC").expect("valid").latest(Timestamp::UNIX_EPOCH, now).expect("a tick");
    assert_eq!(asked[2].body["metadata"]["name"], json!(due::name_of_tick("nightly", tick)));
    assert_eq!(asked[2].body["metadata"]["annotations"]["penstock.io/scheduled-for"], json!(tick.to_string()));
    assert_eq!(asked[3].body["status"]["lastScheduleTime"], json!(tick.to_string()));
    let next: Timestamp = serde_json::from_value(asked[3].body["status"]["nextScheduleTime"].clone()).expect("a time");
    assert!(next > now);
}

#[tokio::test]
async fn a_process_that_died_before_it_made_the_run_makes_it_and_one_that_died_after_it_does_not_make_another() {
    let schedule = schedule(json!({"triggerNonce": "a"}), json!({}));
    let first = asked(&schedule, vec![], &obedient()).await;
    let noted = with_written_status(&schedule, &first[..1]);
    let name = due::name_of_nonce("nightly", "a");

    let api = obedient();
    let asked_again = asked(&noted, vec![], &api).await;
    let (get, post) = (format!("GET {RUNS}/{name}"), format!("POST {RUNS}"));
    assert_eq!(lines(&asked_again), [&get, &post, STATUS], "it is noted already");
    assert_eq!(asked_again[1].body["metadata"]["name"], json!(name));

    // it was made, and the watch has not told of it yet
    let stored = serde_json::to_value(run(&name, "Pending")).expect("JSON");
    let api = FakeApi::new(move |line| line.starts_with("GET ").then(|| (StatusCode::OK, stored.clone())));
    let asked_again = asked(&noted, vec![], &api).await;
    assert_eq!(lines(&asked_again), [&get, STATUS]);
    assert_eq!(asked_again[1].body["status"]["active"], 1);
}

#[tokio::test]
async fn a_run_of_somebody_else_under_the_name_is_left_alone_and_said() {
    let api = FakeApi::new(|line| match line {
        line if line.starts_with("POST ") && line.ends_with("/ingestruns") => Some(failure(StatusCode::CONFLICT, "AlreadyExists")),
        _ => None,
    });
    let schedule = schedule(json!({"triggerNonce": "a"}), json!({}));
    let asked = asked(&schedule, vec![], &api).await;
    let (post, get) = (format!("POST {RUNS}"), format!("GET {RUNS}/{}", due::name_of_nonce("nightly", "a")));
    assert_eq!(lines(&asked), [STATUS, &post, &get, STATUS]);
    assert_eq!(api.events().await, ["RunSkipped"]);
    let status = with_written_status(&schedule, &asked).status.expect("written");
    assert!(status.conditions.iter().all(|condition| condition.type_ != "Reconciling"), "it does not try for ever");
    assert_eq!(status.active, Some(0), "it is not counted");
}

#[tokio::test]
async fn a_run_that_is_replaced_is_cancelled_once_and_the_new_one_waits_for_its_end() {
    let schedule =
        schedule(json!({"triggerNonce": "b", "concurrencyPolicy": "Replace"}), json!({"observedGeneration": 1, "handledNonce": "a"}));
    let old = run("nightly-1", "Running");
    let first = asked(&schedule, vec![old.clone()], &obedient()).await;
    let cancel = format!("PATCH {RUNS}/nightly-1");
    assert_eq!(lines(&first), [STATUS, &cancel]);
    assert_eq!(first[1].body, json!({"spec": {"cancel": true}}));

    let noted = with_written_status(&schedule, &first);
    let mut cancelled = old;
    cancelled.spec.cancel = true;
    assert!(asked(&noted, vec![cancelled.clone()], &obedient()).await.iter().all(|asked| asked.line.starts_with("GET ")));

    cancelled.status.as_mut().expect("a status").phase = Some(penstock_crds::conditions::RunPhase::Cancelled);
    let ended = asked(&noted, vec![cancelled], &obedient()).await;
    let (get, post) = (format!("GET {RUNS}/{}", due::name_of_nonce("nightly", "b")), format!("POST {RUNS}"));
    assert_eq!(lines(&ended), [&get, STATUS, &post, STATUS]);
}

#[tokio::test]
async fn runs_that_are_too_many_are_deleted_as_they_were_seen() {
    let api = obedient();
    let limits = json!({"triggerNonce": "a", "successfulRunsHistoryLimit": 1, "failedRunsHistoryLimit": 0});
    let schedule = schedule(limits, json!({"observedGeneration": 1, "handledNonce": "a"}));
    let mut newest = run("nightly-3", "Succeeded");
    newest.status.as_mut().expect("a status").completion_time =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::now()));
    let asked = asked(&schedule, vec![run("nightly-1", "Succeeded"), run("nightly-2", "Failed"), newest], &api).await;
    let deletions: Vec<String> = ["nightly-1", "nightly-2"].map(|name| format!("DELETE {RUNS}/{name}")).into();
    assert_eq!(lines(&asked), [&[STATUS.to_owned()][..], &deletions].concat());
    assert_eq!(asked[1].body["preconditions"]["uid"], "nightly-1-uid");
}

#[tokio::test]
async fn an_invalid_schedule_starts_nothing_and_says_everything() {
    let api = obedient();
    let schedule = schedule(json!({"schedule": "0 0 30 2 *", "timeZone": "Mars/Olympus", "triggerNonce": "a"}), json!({}));
    let asked = asked(&schedule, vec![], &api).await;
    assert_eq!(lines(&asked), [STATUS]);
    let ready = &asked[0].body["status"]["conditions"][0];
    assert_eq!((&ready["type"], &ready["status"], &ready["reason"]), (&json!("Ready"), &json!("False"), &json!("InvalidSpec")));
    let message = ready["message"].as_str().expect("a message");
    assert!(message.contains("spec.schedule: ") && message.contains("spec.timeZone: "), "{message}");
}
