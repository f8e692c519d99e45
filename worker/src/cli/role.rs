//! `penstock worker`, `indexer`, `worker-indexer`: a part of pipelines over Kafka, until it is told to end.

use super::{
    Exit,
    manifests::{ManifestArgs, print_problems},
    process::{self, ProcessArgs},
    progress::Progress,
    result::LastWords,
};
use crate::{
    context::StepContext,
    courier::Role,
    indexers::{self, IndexerStats},
    manifest::{Manifests, Object},
    metrics::{RunFigures, StageFigures, StepFigures},
    publisher::StepState,
    runner::{Control, RoleEnd, RolePlan, RoleThreads, Route, StepError},
};
use anyhow::Context;
use clap::Args;
use penstock_crds::{PipelineSpec, pipeline::Mode};
use std::{
    io::{self, Write},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

const EXAMPLES: &str = "\
Examples:
  penstock worker manifests/                        stages: from source to dest topics
  penstock indexer manifests/ --pipeline products   from the dest topic of one pipeline to its index
  penstock worker-indexer manifests/                both in one (pipelines of mode WorkerIndexer)

Any number of these processes share the partitions of a pipeline. The topics must be there:
`penstock publish --create-topics` or `penstock run` make them. SIGINT and SIGTERM stop reading and
finish what is in flight (exit code 0, or 75 if the grace period is over); a second one ends at
once. What was not finished is done again by whoever takes the partitions over.";

/// How often the parts of the process are looked after.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of a role.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RoleCommand {
    #[command(flatten)]
    manifests: ManifestArgs,
    /// The pipeline to work for; may be given several times. Without it all that flow over Kafka in this role's mode.
    #[arg(long, value_name = "NAME")]
    pipeline: Vec<String>,
    #[command(flatten)]
    process: ProcessArgs,
}

impl RoleCommand {
    pub(super) fn execute(self, role: Role) -> anyhow::Result<Exit> {
        let manifests = match self.manifests.load() {
            Ok(manifests) => manifests,
            Err(report) => return print_problems(&report),
        };
        let pipelines = match self.choose(role, &manifests) {
            Ok(pipelines) => pipelines,
            Err(message) => {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
                return Ok(Exit::Invalid);
            }
        };
        let runtime = process::runtime()?;
        let figures = Arc::new(RunFigures::new("", 0));
        let process = match self.process.start(&figures, &runtime, None, LastWords::default())? {
            Ok(process) => process,
            Err(message) => {
                writeln!(io::stderr(), "error: {message}").context("failed to print the error")?;
                return Ok(Exit::Failed);
            }
        };
        process.end_in_time(&runtime);
        process.is_idle.store(true, Ordering::Release);
        let start = |pipeline: &&Object<PipelineSpec>| self.start(role, &manifests, pipeline, &figures, &process, &runtime);
        let started = pipelines.iter().map(start).collect::<Result<Vec<_>, _>>();
        process.is_idle.store(false, Ordering::Release);
        let exit = match started {
            Ok(parts) => {
                let progress = Progress::of_roles(self.process.log_interval.get(), Arc::clone(&figures))
                    .context("failed to start the progress display")?;
                let exit = follow(parts, &process.control);
                progress.finish();
                exit
            }
            Err(error) => Err(error),
        };
        // what still waits there has nobody to tell
        runtime.shutdown_background();
        exit.or_else(|error| {
            writeln!(io::stderr(), "error: {}", error.chain()).context("failed to print the error")?;
            Ok(process::exit_of(error.class()))
        })
    }

    fn choose<'a>(&self, role: Role, manifests: &'a Manifests) -> Result<Vec<&'a Object<PipelineSpec>>, String> {
        let mode = if role == Role::WorkerIndexer { Mode::WorkerIndexer } else { Mode::Distributed };
        let fits = |pipeline: &&Object<PipelineSpec>| pipeline.spec.effective_mode() == mode;
        if self.pipeline.is_empty() {
            let all: Vec<_> = manifests.pipelines.iter().filter(fits).collect();
            return match all.is_empty() {
                true => Err(format!("the manifests hold no pipeline of mode {mode:?}, which `penstock {}` works for", role.as_str())),
                false => Ok(all),
            };
        }
        let find = |name: &String| {
            let found = manifests.pipelines.iter().find(|pipeline| pipeline.name == *name);
            let found = found.ok_or_else(|| format!("there is no pipeline `{name}`"))?;
            match fits(&found) {
                true => Ok(found),
                false => Err(format!(
                    "pipeline `{name}` has mode {:?}; `penstock {}` works for mode {mode:?}",
                    found.spec.effective_mode(),
                    role.as_str()
                )),
            }
        };
        self.pipeline.iter().map(find).collect()
    }

    fn start(
        &self,
        role: Role,
        manifests: &Manifests,
        pipeline: &Object<PipelineSpec>,
        figures: &RunFigures,
        process: &process::Process,
        runtime: &Runtime,
    ) -> Result<RoleThreads, StepError> {
        let context = StepContext {
            run: String::new(),
            run_id: String::new(),
            connector: String::new(),
            pipeline: pipeline.name.clone(),
            base_dir: pipeline.base_dir.clone(),
            run_base_dir: pipeline.base_dir.clone(),
            secrets: self.process.secrets(),
            runtime: runtime.handle().clone(),
            stop: process.control.abort.child_token(),
            is_continuous: true,
            written: Arc::default(),
        };
        let Some(route) = Route::of(manifests, pipeline, &context)? else {
            return Err(StepError::NoKafkaConnection { pipeline: pipeline.name.clone(), connection: String::new() });
        };
        route.check()?;
        route.check_topics(&pipeline.spec, None)?;
        let backend = match role.has_backend() {
            true => Some(indexers::build(&pipeline.spec.indexer, &context)?),
            false => None,
        };
        if let Some(backend) = &backend {
            runtime.block_on(backend.check())?;
        }
        let step = Arc::new(StepFigures {
            connector: String::new(),
            pipeline: pipeline.name.clone(),
            state: StepState::new(),
            indexer: Arc::new(IndexerStats::default()),
            stages: Arc::new(StageFigures::new(&pipeline.spec.stages)),
        });
        figures.begin(Arc::clone(&step));
        let courier = figures.courier(role, &pipeline.name);
        RoleThreads::start(RolePlan {
            role,
            pipeline: &pipeline.spec,
            context: &context,
            route: &route,
            backend,
            health: Arc::clone(&process.health),
            indexer: Arc::clone(&step.indexer),
            stages: Arc::clone(&step.stages),
            exit_on_stuck: self.process.exit_on_stuck,
            courier,
        })
    }
}

/// Follows the parts until all have ended.
fn follow(mut parts: Vec<RoleThreads>, control: &Control) -> Result<Exit, StepError> {
    let mut until = None;
    let mut exit = Exit::Complete;
    while !parts.is_empty() {
        if control.is_ending() {
            let until = *until.get_or_insert_with(|| Instant::now() + *control.grace);
            parts.iter().for_each(RoleThreads::drain);
            if control.abort.is_cancelled() || until <= Instant::now() {
                RoleThreads::finish_all(&mut parts, Duration::ZERO);
                return Ok(Exit::Interrupted);
            }
        }
        let mut error = None;
        parts.retain_mut(|part| match part.wait(LOOK) {
            None => true,
            Some(RoleEnd::Drained) => false,
            Some(RoleEnd::Aborted) => {
                exit = Exit::Interrupted;
                false
            }
            Some(RoleEnd::Failed(failed)) => {
                error = Some(failed);
                false
            }
        });
        if let Some(error) = error {
            // the others finish what they have and leave their groups in order
            RoleThreads::finish_all(&mut parts, *control.grace);
            return Err(error);
        }
    }
    Ok(exit)
}
