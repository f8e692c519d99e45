//! Arguments and environment of the operator.

use clap::Parser;
use penstock::telemetry::LogFormat;
use std::net::SocketAddr;

const EXAMPLES: &str = "\
Examples:
  penstock-operator
      all namespaces of the cluster that KUBECONFIG, or the service account of its pod, leads to
  penstock-operator --namespaces shop,search
      these two only; it needs rights in no other
  penstock-operator --leader-election
      one of several replicas: those that do not lead keep up with what happens, and write nothing
  penstock-operator --worker-image registry.example/penstock:0.1.0 --image-pull-secret registry
      pods have this image, pulled with the Secret `registry` of their namespace
  PENSTOCK_LOG=info,penstock_operator=debug penstock-operator --log-format text --metrics-addr 127.0.0.1:8080
      on a laptop, with more to read

What is logged is said by PENSTOCK_LOG. SIGTERM and Ctrl-C let running reconciles end, for 20 s at most, give the lease back and end
with 0; a second one ends at once (143, 130). Who loses the lease ends with 1.";

/// Makes Pipelines and IngestRuns work: topics, Deployments, Jobs, and a true status.
#[derive(Clone, Debug, Parser)]
#[command(name = "penstock-operator", version, after_help = EXAMPLES, max_term_width = 130)]
pub struct Args {
    /// Namespaces to look after, separated by commas, or the flag several times. Without it all.
    #[arg(long, env = "PENSTOCK_OPERATOR_NAMESPACES", value_delimiter = ',', value_name = "NAMES")]
    pub namespaces: Vec<String>,
    /// Image of all pods.
    #[arg(long, env = "PENSTOCK_OPERATOR_WORKER_IMAGE", default_value = concat!("penstock:", env!("CARGO_PKG_VERSION")), value_name = "IMAGE")]
    pub worker_image: String,
    /// When the image is pulled. Without it as Kubernetes does: Always if its tag is `latest`, else IfNotPresent.
    #[arg(long, env = "PENSTOCK_OPERATOR_IMAGE_PULL_POLICY", value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: Option<String>,
    /// Secrets to pull the image with, in the namespace of the pods; separated by commas, or the flag several times.
    #[arg(long = "image-pull-secret", env = "PENSTOCK_OPERATOR_IMAGE_PULL_SECRETS", value_delimiter = ',', value_name = "NAMES")]
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
    /// Write only while holding a Lease, so that one of several replicas works and the others wait.
    #[arg(long, env = "PENSTOCK_OPERATOR_LEADER_ELECTION")]
    pub leader_election: bool,
    /// Namespace of the Lease. Without it that of the pod, or of the context in KUBECONFIG.
    #[arg(long, env = "PENSTOCK_OPERATOR_LEASE_NAMESPACE", value_name = "NAME")]
    pub lease_namespace: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["penstock-operator"], words].concat())
    }

    #[test]
    fn lists_may_be_given_either_way() {
        let names = |words: &[&str]| parse(words).expect("valid").namespaces;
        assert_eq!(names(&["--namespaces", "shop,search"]), ["shop", "search"]);
        assert_eq!(names(&["--namespaces", "shop", "--namespaces", "search"]), ["shop", "search"]);
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_ones() {
        let error = parse(&["--image-pull-policy", "always"]).expect_err("wrong").to_string();
        assert!(error.contains("[possible values: Always, IfNotPresent, Never]"), "{error}");
    }

    /// A flag as `docs/operator.md` has it in its table.
    fn row(flag: &clap::Arg) -> String {
        let value = flag.get_value_names().filter(|_| flag.get_action().takes_values()).map(|names| format!(" {}", names[0]));
        let default = flag.get_default_values().first().filter(|_| flag.get_action().takes_values());
        format!(
            "| `--{}{}` | `{}` | {} | {} |",
            flag.get_long().unwrap_or_default(),
            value.unwrap_or_default(),
            flag.get_env().unwrap_or_default().display(),
            default.map(|default| format!("`{}`", default.display())).unwrap_or_default(),
            flag.get_help().map(ToString::to_string).unwrap_or_default(),
        )
    }

    #[test]
    fn the_guide_has_every_flag_as_help_explains_it() {
        let guide = include_str!("../../docs/operator.md");
        let command = Args::command();
        let wanted: Vec<String> = command.get_arguments().map(row).collect();
        let there: Vec<&str> = guide.lines().filter(|line| line.starts_with("| `--")).collect();
        assert_eq!(there, wanted, "docs/operator.md should have these rows:\n{}", wanted.join("\n"));
    }

    #[test]
    fn the_examples_of_help_are_valid() {
        for line in
            EXAMPLES.lines().filter(|line| line.starts_with("  ") && line.contains("penstock-operator") && !line.starts_with("      "))
        {
            let words = line.split_whitespace().skip_while(|word| *word != "penstock-operator").skip(1).collect::<Vec<_>>();
            assert!(parse(&words).is_ok(), "{line}");
        }
    }
}
