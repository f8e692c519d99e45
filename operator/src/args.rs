//! Arguments and environment of the operator.

use clap::Parser;
use penstock::telemetry::LogFormat;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  penstock-operator                                          all namespaces
  penstock-operator --namespaces shop,search                 these, with rights in these only
  penstock-operator --leader-election --lease-namespace ops  one of several replicas

It takes its way to the cluster from KUBECONFIG, or from its service account. What is logged is said by
PENSTOCK_LOG (info, debug, penstock_operator=debug). SIGTERM finishes what is at work and gives the lease
back; a second one ends at once.";

/// Makes Pipelines and IngestRuns work: topics, Deployments, Jobs, and a true status.
#[derive(Clone, Debug, Parser)]
#[command(name = "penstock-operator", version, after_help = EXAMPLES)]
pub struct Args {
    /// Namespaces to look after, separated by commas. Without it all.
    #[arg(long, env = "PENSTOCK_OPERATOR_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub namespaces: Vec<String>,
    /// Image of all pods.
    #[arg(long, env = "PENSTOCK_OPERATOR_WORKER_IMAGE", default_value = concat!("penstock:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub worker_image: String,
    /// When the image is pulled: Always, IfNotPresent or Never.
    #[arg(long, env = "PENSTOCK_OPERATOR_IMAGE_PULL_POLICY", value_name = "POLICY")]
    pub image_pull_policy: Option<String>,
    /// Secrets to pull the image with, in the namespace of the pods; separated by commas.
    #[arg(long, env = "PENSTOCK_OPERATOR_IMAGE_PULL_SECRETS", value_delimiter = ',', value_name = "NAMES")]
    pub image_pull_secrets: Vec<String>,
    /// Make NetworkPolicies that shut pods off from everybody but who reads their metrics.
    #[arg(long, env = "PENSTOCK_OPERATOR_NETWORK_POLICIES")]
    pub network_policies: bool,
    /// Seconds between two looks at Kafka.
    #[arg(long, env = "PENSTOCK_OPERATOR_KAFKA_INTERVAL", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    pub kafka_interval: u64,
    /// Objects of one kind that are reconciled at the same time.
    #[arg(long, env = "PENSTOCK_OPERATOR_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..), value_name = "N")]
    pub concurrency: u16,
    /// Write only while holding a Lease, so that several replicas can wait for each other.
    #[arg(long, env = "PENSTOCK_OPERATOR_LEADER_ELECTION")]
    pub leader_election: bool,
    /// Namespace of the Lease.
    #[arg(long, env = "PENSTOCK_OPERATOR_LEASE_NAMESPACE", default_value = "default", value_name = "NAME")]
    pub lease_namespace: String,
    /// Name of the Lease.
    #[arg(long, env = "PENSTOCK_OPERATOR_LEASE_NAME", default_value = "penstock-operator", value_name = "NAME")]
    pub lease_name: String,
    /// Address for /metrics, /healthz and /readyz.
    #[arg(long, env = "PENSTOCK_OPERATOR_METRICS_ADDR", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub metrics_addr: SocketAddr,
    /// The form of log lines on standard error.
    #[arg(long, env = "PENSTOCK_OPERATOR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json)]
    pub log_format: LogFormat,
}
