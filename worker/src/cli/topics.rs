//! What commands have in common that look at the topics of one pipeline.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
};
use crate::{
    kafka::{Connection, KafkaError, PipelineNames},
    manifest::{Manifests, Object, Report},
    secrets::Secrets,
};
use anyhow::Context;
use clap::Args;
use penstock_crds::PipelineSpec;
use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

/// How long one answer of the brokers is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Which pipeline.
#[derive(Debug, Args)]
pub struct TopicArgs {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// The pipeline, where the manifests hold several that flow over Kafka.
    #[arg(long, value_name = "NAME")]
    pipeline: Option<String>,
    /// Folder with secrets, as DIR/NAME/KEY. Without it they come from PENSTOCK_SECRET_<NAME>_<KEY>.
    #[arg(long, value_name = "DIR")]
    secrets_dir: Option<PathBuf>,
}

/// The pipeline, and how its brokers are reached. They have answered.
pub(super) struct Target {
    pub pipeline: String,
    pub connection: Connection,
    pub names: PipelineNames,
}

/// Why there is no target.
pub(super) enum NoTarget {
    Manifests(Report),
    Choice(String),
    Usage(&'static str),
    Kafka(KafkaError),
}

impl TopicArgs {
    /// The pipeline that is meant. `administration`: with the credentials of who may delete records.
    pub(super) fn target(&self, administration: bool) -> Result<Target, NoTarget> {
        let manifests = self.manifests.load().map_err(NoTarget::Manifests)?;
        let (pipeline, kafka) = self.choose(&manifests).map_err(NoTarget::Choice)?;
        let Some(spec) = manifests.kafka_connection(&pipeline.namespace, kafka) else {
            return Err(NoTarget::Choice(format!("pipeline `{}`: the manifests hold no KafkaConnection `{kafka}`", pipeline.name)));
        };
        let secrets = Secrets::new(self.secrets_dir.clone());
        let connect = if administration { Connection::for_administration } else { Connection::new };
        let connection = connect(&spec.spec, &pipeline.namespace, &secrets).map_err(NoTarget::Kafka)?;
        connection.check(PATIENCE).map_err(NoTarget::Kafka)?;
        let names = PipelineNames::new(&pipeline.name, &pipeline.spec.topics, connection.prefix());
        Ok(Target { pipeline: pipeline.name.clone(), connection, names })
    }

    /// The pipeline, and the name of its connection.
    fn choose<'a>(&self, manifests: &'a Manifests) -> Result<(&'a Object<PipelineSpec>, &'a str), String> {
        let over_kafka = |pipeline: &'a Object<PipelineSpec>| Some((pipeline, pipeline.spec.kafka_ref.as_ref()?.name.as_str()));
        let all: Vec<_> = manifests.pipelines.iter().filter_map(over_kafka).collect();
        let names = || all.iter().map(|(pipeline, _)| pipeline.name.as_str()).collect::<Vec<_>>().join(", ");
        match (&self.pipeline, all.as_slice()) {
            (_, []) => Err("the manifests hold no pipeline with a kafkaRef; add one, or give its file as well".into()),
            (None, [only]) => Ok(*only),
            (None, _) => Err(format!("the manifests hold several pipelines; choose one with --pipeline: {}", names())),
            (Some(name), all) => {
                let found = all.iter().find(|(pipeline, _)| pipeline.name == *name);
                found.copied().ok_or_else(|| format!("no pipeline `{name}` flows over Kafka; the manifests hold: {}", names()))
            }
        }
    }
}

impl NoTarget {
    /// Says so.
    pub(super) fn print(self) -> anyhow::Result<Exit> {
        match self {
            Self::Manifests(report) => print_problems(&report),
            Self::Choice(message) => fail(&message, Exit::Invalid),
            Self::Usage(message) => fail(message, Exit::Usage),
            Self::Kafka(error) => fail_kafka(&error),
        }
    }
}

/// Prints why Kafka cannot be used.
pub(super) fn fail_kafka(error: &KafkaError) -> anyhow::Result<Exit> {
    let exit = match error {
        error if error.is_unreachable() => Exit::Unreachable,
        KafkaError::Secret(_) | KafkaError::Http(_) | KafkaError::Settings { .. } => Exit::Invalid,
        _ => Exit::Failed,
    };
    fail(&error.to_string(), exit)
}

/// Prints an error.
pub(super) fn fail(message: &str, exit: Exit) -> anyhow::Result<Exit> {
    writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
    Ok(exit)
}
