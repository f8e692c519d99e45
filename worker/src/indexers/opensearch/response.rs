//! What the cluster's answers mean: for each item of a bulk request, and for a request as a whole.

use crate::indexers::{Answer, BackendError, ItemAnswer, Refusal};
use reqwest::StatusCode;
use serde::Deserialize;
use std::time::Duration;

/// What is asked of the answer to a bulk request, to keep it short.
pub(super) const FILTER: &str = "errors,items.*.status,items.*.error";

/// How answers are judged.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    /// Status codes that may pass.
    pub codes: Vec<u16>,
    /// An older version that is refused is a success.
    pub external_versions: bool,
    /// All documents go to one index, so what is wrong with it is wrong for all of them.
    pub one_index: bool,
}

/// The answer to a bulk request.
#[derive(Debug, Deserialize)]
struct Bulk {
    errors: bool,
    items: Vec<Entry>,
}

/// The answer to one operation, below its name.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Entry {
    Create(Outcome),
    Delete(Outcome),
    Index(Outcome),
    Update(Outcome),
}

#[derive(Debug, Deserialize)]
struct Outcome {
    status: u16,
    #[serde(default)]
    error: Option<Fault>,
}

/// An error of the cluster: mostly an object, sometimes a text.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Fault {
    Text(String),
    Cause(Cause),
}

#[derive(Debug, Deserialize)]
struct Cause {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    caused_by: Option<Box<Cause>>,
}

/// An answer that is an error as a whole.
#[derive(Debug, Deserialize)]
struct Refused {
    error: Fault,
}

impl Judge {
    /// What the body of a successful answer says of each item.
    ///
    /// A body that is not an answer of a cluster (a page of a proxy, a part of one) says nothing of any document: an outage.
    pub fn items(&self, node: &str, body: &[u8]) -> Answer {
        let bulk: Bulk = match serde_json::from_slice(body) {
            Ok(bulk) => bulk,
            Err(error) => {
                let reason = format!("{node} answers something that is not the answer to a bulk request ({error}): {}", excerpt(body));
                return Answer::Outage(Refusal { reason, retry_after: None });
            }
        };
        if !bulk.errors && bulk.items.iter().all(|entry| matches!(entry.outcome().status, 200..=299)) {
            return Answer::Items(vec![ItemAnswer::Done; bulk.items.len()]);
        }
        if let Some(reason) = self.fault_of_the_index(&bulk) {
            let message = format!("{node} takes no document: {reason}");
            return Answer::Fatal(BackendError { message, unreachable: false, source: None });
        }
        Answer::Items(bulk.items.iter().map(|entry| self.item(entry)).collect())
    }

    fn item(&self, entry: &Entry) -> ItemAnswer {
        let outcome = entry.outcome();
        match outcome.status {
            200..=299 => ItemAnswer::Done,
            404 if matches!(entry, Entry::Delete(_)) && outcome.error.is_none() => ItemAnswer::Done,
            409 if self.external_versions && matches!(entry, Entry::Delete(_) | Entry::Index(_)) => ItemAnswer::Stale,
            status if self.codes.contains(&status) => ItemAnswer::Busy(Refusal { reason: outcome.reason(), retry_after: None }),
            _ => ItemAnswer::Failed(outcome.reason()),
        }
    }

    /// Why no document can get in, if that is the index's or our rights' fault and not the documents'.
    fn fault_of_the_index(&self, bulk: &Bulk) -> Option<String> {
        let structural = |entry: &Entry| {
            let outcome = entry.outcome();
            let kind = match &outcome.error {
                Some(Fault::Cause(cause)) => cause.kind.as_str(),
                _ => "",
            };
            matches!((outcome.status, kind), (401 | 403, _) | (404, "index_not_found_exception"))
        };
        let all = self.one_index && !bulk.items.is_empty() && bulk.items.iter().all(structural);
        all.then(|| bulk.items[0].outcome().reason())
    }

    /// What a refusal of the request as a whole means. `bytes` is what was sent.
    pub fn refused(&self, node: &str, status: StatusCode, retry_after: Option<Duration>, body: &[u8], bytes: usize) -> Answer {
        let said = match serde_json::from_slice::<Refused>(body) {
            Ok(refused) => refused.error.text(),
            Err(_) => excerpt(body),
        };
        let reason = match said.as_str() {
            "" => format!("{node} answers {status}"),
            said => format!("{node} answers {status}: {said}"),
        };
        match status.as_u16() {
            413 => {
                let reason = format!(
                    "{bytes} bytes in one request are too many: {reason} (the limit is http.max_content_length of the cluster, or that of a proxy)"
                );
                Answer::Split(Refusal { reason, retry_after: None })
            }
            code if self.codes.contains(&code) || matches!(code, 408 | 429 | 500..=599) => Answer::Outage(Refusal { reason, retry_after }),
            400 => Answer::Split(Refusal { reason, retry_after: None }),
            _ => Answer::Fatal(BackendError { message: reason, unreachable: false, source: None }),
        }
    }
}

/// What an error body says, for people.
pub(super) fn error_text(body: &[u8]) -> String {
    serde_json::from_slice::<Refused>(body).map_or_else(|_| excerpt(body), |refused| refused.error.text())
}

impl Entry {
    fn outcome(&self) -> &Outcome {
        match self {
            Self::Create(outcome) | Self::Delete(outcome) | Self::Index(outcome) | Self::Update(outcome) => outcome,
        }
    }
}

impl Outcome {
    fn reason(&self) -> String {
        match &self.error {
            Some(fault) => format!("{}: {}", self.status, fault.text()),
            None => format!("status {}", self.status),
        }
    }
}

impl Fault {
    fn text(&self) -> String {
        let mut cause = match self {
            Self::Text(text) => return text.clone(),
            Self::Cause(cause) => cause,
        };
        let mut text = cause.text();
        while let Some(beneath) = &cause.caused_by {
            text = format!("{text}; caused by {}", beneath.text());
            cause = beneath;
        }
        text
    }
}

impl Cause {
    fn text(&self) -> String {
        match &self.reason {
            Some(reason) if !reason.is_empty() => format!("{}: {reason}", self.kind),
            _ => self.kind.clone(),
        }
    }
}

/// The beginning of a body, on one line.
fn excerpt(body: &[u8]) -> String {
    const LENGTH: usize = 200;
    let text = String::from_utf8_lossy(&body[..body.len().min(LENGTH)]);
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if body.len() > LENGTH {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        Judge { codes: vec![429, 502, 503, 504], external_versions: false, one_index: true }
    }

    fn answers(judge: &Judge, items: &str) -> Vec<ItemAnswer> {
        match judge.items("node", format!(r#"{{"errors":true,"items":[{items}]}}"#).as_bytes()) {
            Answer::Items(answers) => answers,
            other => panic!("{items}: {other:?}"),
        }
    }

    const CONFLICT: &str = r#"{"index":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"newer"}}}"#;

    #[test]
    fn each_document_gets_its_own_answer_s18() {
        let items = r#"{"index":{"status":201}},
            {"index":{"status":400,"error":{"type":"mapper_parsing_exception","reason":"failed to parse field [n]","caused_by":{"type":"number_format_exception","reason":"For input string: \"x\""}}}},
            {"update":{"status":404,"error":{"type":"document_missing_exception","reason":"[1]: document missing"}}},
            {"create":{"status":409,"error":{"type":"version_conflict_engine_exception","reason":"exists"}}},
            {"delete":{"status":404}},
            {"index":{"status":429,"error":{"type":"rejected_execution_exception","reason":"queue full"}}}"#;
        let expected = [
            ItemAnswer::Done,
            ItemAnswer::Failed(
                "400: mapper_parsing_exception: failed to parse field [n]; caused by number_format_exception: For input string: \"x\""
                    .into(),
            ),
            ItemAnswer::Failed("404: document_missing_exception: [1]: document missing".into()),
            ItemAnswer::Failed("409: version_conflict_engine_exception: exists".into()),
            ItemAnswer::Done,
            ItemAnswer::Busy(Refusal { reason: "429: rejected_execution_exception: queue full".into(), retry_after: None }),
        ];
        assert_eq!(answers(&judge(), items), expected);
    }

    #[test]
    fn an_older_version_is_a_success_only_under_external_versioning() {
        assert!(matches!(answers(&judge(), CONFLICT)[..], [ItemAnswer::Failed(_)]));
        assert_eq!(answers(&Judge { external_versions: true, ..judge() }, CONFLICT), [ItemAnswer::Stale]);
    }

    #[test]
    fn a_deletion_in_an_index_that_is_not_there_is_no_success_s38() {
        let missing = r#"{"delete":{"status":404,"error":{"type":"index_not_found_exception","reason":"no such index [x]"}}}"#;
        assert!(matches!(answers(&Judge { one_index: false, ..judge() }, missing)[..], [ItemAnswer::Failed(_)]));
    }

    #[test]
    fn what_is_wrong_with_the_index_ends_the_run_instead_of_failing_its_documents_s38() {
        let forbidden = r#"{"index":{"status":403,"error":{"type":"cluster_block_exception","reason":"index [x] blocked"}}}"#;
        let body = format!(r#"{{"errors":true,"items":[{forbidden},{forbidden}]}}"#);
        assert!(matches!(judge().items("node", body.as_bytes()), Answer::Fatal(_)));
        assert_eq!(answers(&Judge { one_index: false, ..judge() }, forbidden).len(), 1);
        assert_eq!(answers(&judge(), &format!(r#"{forbidden},{{"index":{{"status":201}}}}"#)).len(), 2);
    }

    #[test]
    fn a_page_of_a_proxy_is_never_taken_for_success() {
        for body in ["<html>all is well</html>", "", "{}", r#"{"errors":false}"#, r#"{"errors":false,"items":[{"index":{"status":201}}"#] {
            assert!(matches!(judge().items("node", body.as_bytes()), Answer::Outage(_)), "{body}");
        }
    }

    #[test]
    fn errors_that_the_flag_denies_are_seen() {
        let body = r#"{"errors":false,"items":[{"index":{"status":400}}]}"#;
        assert!(matches!(judge().items("node", body.as_bytes()), Answer::Items(answers) if answers[0] != ItemAnswer::Done));
    }

    #[test]
    fn a_refusal_of_the_whole_request_is_an_outage_too_large_or_the_end_s16() {
        for (status, expected) in [
            (429, "outage"),
            (500, "outage"),
            (502, "outage"),
            (503, "outage"),
            (504, "outage"),
            (413, "split"),
            (400, "split"),
            (401, "fatal"),
            (403, "fatal"),
            (301, "fatal"),
            (404, "fatal"),
        ] {
            let answer = judge().refused("node", StatusCode::from_u16(status).expect("status"), None, b"", 10);
            let got = match &answer {
                Answer::Outage(_) => "outage",
                Answer::Split(_) => "split",
                Answer::Fatal(_) => "fatal",
                Answer::Done | Answer::Items(_) => "items",
            };
            assert_eq!(got, expected, "{status}");
        }
    }
}
