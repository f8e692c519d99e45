//! Whether a run can work: the very same checks as `penstock validate`, together with the pipelines that are there.

use crate::{
    context::{self, Context},
    pipeline::validate::{check, object},
};
use kube::ResourceExt;
use penstock_crds::IngestRun;

/// What is wrong with the run, a line each. A pipeline that is not there yet is no fault of the run.
pub fn problems(run: &IngestRun, context: &Context) -> Vec<String> {
    let namespace = run.namespace().unwrap_or_default();
    let mut objects = vec![object("IngestRun", run, &run.spec)];
    let mut seen = Vec::new();
    for connector in &run.spec.connectors {
        if seen.contains(&&connector.pipeline) {
            continue;
        }
        seen.push(&connector.pipeline);
        let Some(pipeline) = context::get(&context.stores.pipelines, &namespace, &connector.pipeline) else { return Vec::new() };
        let reference = pipeline.spec.kafka_ref.as_ref().map(|reference| reference.name.clone());
        objects.push(object("Pipeline", &pipeline, &pipeline.spec));
        if let Some(connection) = reference.and_then(|name| context::get(&context.stores.connections, &namespace, &name)) {
            objects.push(object("KafkaConnection", &connection, &connection.spec));
        }
    }
    // what is wrong with a pipeline stands in its own status
    let of_run = format!("IngestRun/{}:", run.name_any());
    check(&objects).into_iter().filter(|problem| problem.contains(&of_run)).collect()
}
