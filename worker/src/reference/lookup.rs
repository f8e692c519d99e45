//! Words that people write → the topic that they mean: `stage rename`, `connector file csv`, `pipeline.spec.workers`, or a
//! path as `penstock validate` prints it.

use super::{
    Family, Topic,
    field::{Field, inner},
    union_keys,
};
use crate::{
    manifest::Kind,
    suggest::{did_you_mean, nearest},
};
use serde_json::Value;

/// What somebody asked for.
#[derive(Debug)]
pub enum Found {
    /// The components of a family.
    Family(Family),
    /// Everything else.
    Topic(Topic<'static>),
}

/// Nothing has that name; the text says what is near.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(String);

/// Finds a topic.
///
/// # Errors
/// There is none of that name.
pub fn find(words: &[String]) -> Result<Found, NotFound> {
    let steps: Vec<String> =
        words.iter().flat_map(|word| word.split(['.', ' '])).map(without_index).filter(|step| !step.is_empty()).collect();
    let Some((first, rest)) = steps.split_first() else {
        return Err(NotFound("name a kind, a component or a field".into()));
    };
    if let Some(family) = Family::ALL.into_iter().find(|family| is_one_or_many(first, family.name())) {
        let topic = Topic { path: family.path().into(), schema: family.schema(), required: true };
        return if rest.is_empty() { Ok(Found::Family(family)) } else { descend(topic, rest).map(Found::Topic) };
    }
    if let Some(kind) =
        Kind::ALL.into_iter().find(|kind| is_one_or_many(first, kind.name()) || first.eq_ignore_ascii_case(kind.short_name()))
    {
        return descend(kind_topic(kind), rest).map(Found::Topic);
    }
    if ["spec", "status", "metadata"].iter().any(|field| first.eq_ignore_ascii_case(field)) {
        return best_in_any_kind(&steps).map(Found::Topic);
    }
    component(first, rest)
}

/// A kind as a topic.
pub fn kind_topic(kind: Kind) -> Topic<'static> {
    Topic { path: kind.name().to_lowercase(), schema: &kind.schema().generated, required: true }
}

/// `stages[2]` as `stages`.
fn without_index(step: &str) -> String {
    step.split('[').next().unwrap_or_default().to_owned()
}

fn is_one_or_many(word: &str, name: &str) -> bool {
    let word = word.to_lowercase();
    let name = name.to_lowercase();
    word == name || word.strip_suffix('s') == Some(&name)
}

/// A path without its kind belongs to the kind that has it.
fn best_in_any_kind(steps: &[String]) -> Result<Topic<'static>, NotFound> {
    let mut problem = None;
    for kind in [Kind::Pipeline, Kind::IngestRun, Kind::IngestSchedule, Kind::KafkaConnection] {
        match descend(kind_topic(kind), steps) {
            Ok(topic) => return Ok(topic),
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| NotFound("there are no kinds".into())))
}

/// A component by its key alone.
fn component(key: &str, rest: &[String]) -> Result<Found, NotFound> {
    let keys = || Family::ALL.into_iter().flat_map(|family| union_keys(family.schema()).into_iter().map(move |key| (family, key)));
    let named: Vec<Family> = keys().filter(|(_, known)| known.eq_ignore_ascii_case(key)).map(|(family, _)| family).collect();
    match named.as_slice() {
        [family] => {
            let steps: Vec<String> = std::iter::once(key.to_owned()).chain(rest.iter().cloned()).collect();
            descend(Topic { path: family.path().into(), schema: family.schema(), required: true }, &steps).map(Found::Topic)
        }
        [] => {
            let kinds = Kind::ALL.into_iter().map(Kind::name);
            let words = keys().map(|(_, key)| key).chain(kinds).chain(Family::ALL.map(Family::name));
            let hint = did_you_mean(key, words);
            let cure = if hint.is_empty() { "; `penstock explain` lists everything" } else { "" };
            Err(NotFound(format!("nothing is called `{key}`{hint}{cure}")))
        }
        families => {
            let choices: Vec<String> = families.iter().map(|family| format!("`{} {key}`", family.name())).collect();
            Err(NotFound(format!("`{key}` may be {}; say which", choices.join(" or "))))
        }
    }
}

fn descend(topic: Topic<'static>, steps: &[String]) -> Result<Topic<'static>, NotFound> {
    steps.iter().try_fold(topic, |topic, step| step_into(topic, step))
}

/// A field of the topic, or, since nobody remembers every level, the nearest field of that name below it.
fn step_into(topic: Topic<'static>, step: &str) -> Result<Topic<'static>, NotFound> {
    let mut level = vec![topic.clone()];
    while !level.is_empty() {
        if let Some(found) = level.iter().flat_map(children).find(|child| last_step(&child.path).eq_ignore_ascii_case(step)) {
            return Ok(found);
        }
        level = level.iter().flat_map(children).collect();
    }
    let fields: Vec<&str> = Field::all(inner(topic.schema)).into_iter().map(|field| field.name).collect();
    let hint = match (nearest(step, fields.iter().copied()), fields.is_empty()) {
        (Some(near), _) => format!(", did you mean `{near}`?"),
        (None, true) => "; it has no fields".into(),
        (None, false) => format!("; it has {}", fields.join(", ")),
    };
    Err(NotFound(format!("{} has no field `{step}`{hint}", topic.path)))
}

fn children(topic: &Topic<'static>) -> Vec<Topic<'static>> {
    let child =
        |field: Field<'static>| Topic { path: format!("{}.{}", topic.path, field.name), schema: field.schema, required: field.required };
    Field::all(inner(topic.schema)).into_iter().map(child).collect()
}

fn last_step(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, last)| last)
}

/// The schema of what the topic's fields stand in.
pub fn fields_of(topic: &Topic<'static>) -> &'static Value {
    inner(topic.schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(words: &str) -> Result<String, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        match find(&words) {
            Ok(Found::Family(family)) => Ok(format!("all {}s", family.name())),
            Ok(Found::Topic(topic)) => Ok(topic.path),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn topics_are_found_the_way_people_name_them() {
        for (words, want) in [
            ("stages", "all stages"),
            ("stage", "all stages"),
            ("stage rename", "pipeline.spec.stages.rename"),
            ("Stage Rename fields", "pipeline.spec.stages.rename.fields"),
            ("rename", "pipeline.spec.stages.rename"),
            ("connector file csv", "ingestrun.spec.connectors.file.format.csv"),
            ("connector file format csv delimiter", "ingestrun.spec.connectors.file.format.csv.delimiter"),
            ("indexer opensearch", "pipeline.spec.indexer.opensearch"),
            ("indexer csv", "pipeline.spec.indexer.csv"),
            ("csv", "pipeline.spec.indexer.csv"),
            ("pipeline", "pipeline"),
            ("pipelines", "pipeline"),
            ("ppl.spec.workers", "pipeline.spec.workers"),
            ("pipeline.spec.workers", "pipeline.spec.workers"),
            ("spec.stages[2].remap.source", "pipeline.spec.stages.remap.source"),
            ("spec.connectors[0].maxRate", "ingestrun.spec.connectors.maxRate"),
            ("irun status", "ingestrun.status"),
        ] {
            assert_eq!(answer(words), Ok(want.to_owned()), "{words}");
        }
    }

    #[test]
    fn unknown_words_are_answered_with_what_is_near() {
        for (words, want) in [
            ("renam", "nothing is called `renam`, did you mean `rename`?"),
            ("xyzzy", "nothing is called `xyzzy`; `penstock explain` lists everything"),
            ("stage renam", "pipeline.spec.stages has no field `renam`, did you mean `rename`?"),
            ("stage rename fields xyzzy", "pipeline.spec.stages.rename.fields has no field `xyzzy`; it has no fields"),
            ("", "name a kind, a component or a field"),
        ] {
            assert_eq!(answer(words), Err(want.to_owned()), "{words}");
        }
    }
}
