//! Whether the CustomResourceDefinitions of the cluster fit this build. Where they are older, the API server takes new fields away
//! without a word, from specs and from what we write into statuses; so it is said, with the command that helps.

use crate::server::Health;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use penstock_crds::{VERSION, schema};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// Between two looks at CRDs that do not fit.
const PAUSE: Duration = Duration::from_secs(30);
/// So many missing fields of a kind are named.
const NAMED_FIELDS: usize = 5;
/// What `/readyz` calls it.
const WHAT: &str = "CustomResourceDefinitions";

/// Looks until they fit; as long as they do not, the process is not ready.
pub async fn check(client: Client, health: Health) {
    health.unready(WHAT, "not looked at yet");
    let mut said = None;
    loop {
        let verdict = match look(&client).await {
            Ok(misfits) => misfits,
            Err(error) if is_refused(&error) => {
                tracing::info!("no right to read CustomResourceDefinitions: whether they fit this version is not checked");
                Vec::new()
            }
            Err(error) => {
                health.unready(WHAT, format!("cannot be read: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        if verdict.is_empty() {
            health.ready(WHAT);
            return;
        }
        let text = advice(&verdict);
        if said.as_ref() != Some(&text) {
            tracing::error!("the CustomResourceDefinitions do not fit this version: {text}");
        }
        health.unready(WHAT, text.clone());
        said = Some(text);
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_refused(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403))
}

/// A kind whose CRD does not fit.
#[derive(Debug, PartialEq, Eq)]
struct Misfit {
    /// The plural name of the kind: its file is called after it.
    plural: String,
    /// What is wrong, with the name of the CRD.
    what: String,
}

/// The CRDs of the cluster that do not fit. One at a time: they are large.
async fn look(client: &Client) -> kube::Result<Vec<Misfit>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut misfits = Vec::new();
    for ours in schema::all() {
        let installed = api.get_opt(&ours.name_any()).await?;
        misfits.extend(compare(installed.as_ref(), &ours));
    }
    Ok(misfits)
}

/// What is wrong, and the command that helps.
fn advice(misfits: &[Misfit]) -> String {
    let faults: Vec<&str> = misfits.iter().map(|misfit| misfit.what.as_str()).collect();
    let files: Vec<String> = misfits.iter().map(|misfit| format!("-f crds/generated/{}.yaml", misfit.plural)).collect();
    let version = env!("CARGO_PKG_VERSION");
    format!("{}; with the files of version {version}: kubectl apply --server-side --force-conflicts {}", faults.join("; "), files.join(" "))
}

/// Compares what is installed with what this build has.
fn compare(installed: Option<&CustomResourceDefinition>, ours: &CustomResourceDefinition) -> Option<Misfit> {
    let misfit = |what: &str| Some(Misfit { plural: ours.spec.names.plural.clone(), what: format!("{} {what}", ours.name_any()) });
    let Some(installed) = installed else { return misfit("is not installed") };
    let versions = &installed.spec.versions;
    let Some(served) = versions.iter().find(|version| version.name == VERSION && version.served) else {
        return misfit(&format!("does not serve {VERSION}"));
    };
    if served.subresources.as_ref().is_none_or(|subresources| subresources.status.is_none()) {
        return misfit("lacks the subresource status");
    }
    let schema_of = |crd: &CustomResourceDefinition| {
        let version = crd.spec.versions.iter().find(|version| version.name == VERSION);
        version.and_then(|version| serde_json::to_value(version.schema.as_ref()?.open_api_v3_schema.as_ref()?).ok()).unwrap_or_default()
    };
    let mut missing = Vec::new();
    find_missing(&schema_of(installed), &schema_of(ours), "", &mut missing);
    if missing.is_empty() {
        return None;
    }
    let more = missing.len().saturating_sub(NAMED_FIELDS);
    missing.truncate(NAMED_FIELDS);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    misfit(&format!("lacks {}{rest}", missing.join(", ")))
}

/// The fields and the values of fields that ours has and the installed schema does not know. What lies below a missing field is not
/// named.
fn find_missing(installed: &Value, ours: &Value, path: &str, missing: &mut Vec<String>) {
    if installed["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match installed["properties"].get(name) {
            Some(installed) => find_missing(installed, field, &path, missing),
            None => missing.push(path),
        }
    }
    for (below, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if ours[below].is_object() {
            find_missing(&installed[below], &ours[below], &format!("{path}{mark}"), missing);
        }
    }
    let values = |schema: &Value| -> BTreeSet<String> { schema["enum"].as_array().into_iter().flatten().map(Value::to_string).collect() };
    let known = values(installed);
    // no list of values: any will do
    if !known.is_empty() {
        missing.extend(values(ours).difference(&known).map(|value| format!("{path}={value}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_crds::Pipeline;
    use serde_json::json;

    fn ours() -> CustomResourceDefinition {
        schema::crd::<Pipeline>()
    }

    /// Our own CRD, changed.
    fn changed(change: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut crd = serde_json::to_value(ours()).expect("JSON");
        change(&mut crd["spec"]["versions"][0]);
        serde_json::from_value(crd).expect("a CRD")
    }

    fn fault(installed: &CustomResourceDefinition) -> Option<String> {
        compare(Some(installed), &ours()).map(|misfit| misfit.what)
    }

    fn properties<'a>(version: &'a mut Value, path: &str) -> &'a mut serde_json::Map<String, Value> {
        let pointer = format!("/schema/openAPIV3Schema{path}/properties");
        version.pointer_mut(&pointer).and_then(Value::as_object_mut).expect("there are such fields")
    }

    #[test]
    fn every_crd_of_this_build_fits_itself() {
        for crd in schema::all() {
            assert_eq!(compare(Some(&crd), &crd), None);
        }
    }

    #[test]
    fn a_newer_crd_fits_too() {
        let newer = changed(|version| {
            properties(version, "/properties/spec").insert("tomorrow".into(), json!({"type": "string"}));
        });
        assert_eq!(fault(&newer), None);
    }

    #[test]
    fn what_an_older_crd_lacks_is_named_with_its_path() {
        let older = changed(|version| {
            properties(version, "/properties/spec").remove("suspend");
            properties(version, "/properties/spec/properties/stages/items/properties/rename").remove("fields");
            properties(version, "/properties/status").remove("topics");
        });
        assert_eq!(fault(&older).as_deref(), Some("pipelines.penstock.io lacks spec.stages[].rename.fields, spec.suspend, status.topics"));
    }

    #[test]
    fn a_value_that_an_older_crd_does_not_know_is_named() {
        let older = changed(|version| {
            let mode = properties(version, "/properties/spec").get_mut("mode").expect("there is a mode");
            mode["enum"] = json!(["Local", "Distributed"]);
        });
        assert_eq!(fault(&older).as_deref(), Some("pipelines.penstock.io lacks spec.mode=\"WorkerIndexer\""));
    }

    #[test]
    fn many_missing_fields_are_counted() {
        let older = changed(|version| properties(version, "/properties/status").clear());
        let fault = fault(&older).expect("it does not fit");
        assert!(fault.contains(" more") && fault.matches("status.").count() == NAMED_FIELDS, "{fault}");
    }

    #[test]
    fn a_crd_that_cannot_be_used_at_all_is_said() {
        assert_eq!(
            fault(&changed(|version| version["served"] = json!(false))).as_deref(),
            Some("pipelines.penstock.io does not serve v1alpha1")
        );
        assert_eq!(
            fault(&changed(|version| version["name"] = json!("v1"))).as_deref(),
            Some("pipelines.penstock.io does not serve v1alpha1")
        );
        assert_eq!(
            fault(&changed(|version| version["subresources"] = json!({}))).as_deref(),
            Some("pipelines.penstock.io lacks the subresource status")
        );
        assert_eq!(compare(None, &ours()).map(|misfit| misfit.what).as_deref(), Some("pipelines.penstock.io is not installed"));
    }

    #[test]
    fn where_everything_is_kept_nothing_is_missing() {
        let open = changed(|version| {
            let spec = properties(version, "").get_mut("spec").expect("there is a spec");
            *spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        });
        assert_eq!(fault(&open), None);
    }

    #[test]
    fn the_advice_is_one_command_for_all_kinds() {
        let misfits = [compare(None, &ours()), compare(None, &schema::crd::<penstock_crds::IngestRun>())]
            .map(|misfit| misfit.expect("none is there"));
        let advice = advice(&misfits);
        assert!(
            advice.ends_with(
                "kubectl apply --server-side --force-conflicts -f crds/generated/pipelines.yaml -f crds/generated/ingestruns.yaml"
            ),
            "{advice}"
        );
    }
}
