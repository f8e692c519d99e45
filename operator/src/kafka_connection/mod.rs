//! Kafka connections: each is observed by a thread of its own, and says whether its brokers answer and who uses it.

use crate::{
    context::{self, Context, write_status},
    error::Error,
    kafka::{Owner, OwnerKind, Reachable, Wanting},
    pipeline::validate,
    reconciler::Reconciler,
    resources::secrets_of,
    status::Conditions,
};
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{ResourceExt, runtime::controller::Action};
use penstock::{
    kafka::Connection,
    secrets::{SecretText, Secrets},
};
use penstock_crds::{
    KafkaConnection,
    conditions::{ConditionType as C, Reason},
    kafka_connection::KafkaConnectionStatus,
};
use std::{collections::BTreeMap, time::Duration};

/// How soon a connection that works is looked at again: a Secret may have changed.
const AGAIN: Duration = Duration::from_secs(300);
/// The same for one that does not.
const TROUBLE_AGAIN: Duration = Duration::from_secs(30);

impl Reconciler for KafkaConnection {
    async fn reconcile(&self, context: &Context) -> Result<Action, Error> {
        let (namespace, name) = (self.namespace().unwrap_or_default(), self.name_any());
        if self.metadata.deletion_timestamp.is_some() {
            context.observers.remove(&namespace, &name);
            return Ok(Action::await_change());
        }
        let problems = validate::check(&[validate::object("KafkaConnection", self, &self.spec)]);
        let found = if problems.is_empty() {
            observe(self, context, &namespace, &name).await?
        } else {
            Found::Problem(Reason::InvalidSpec, problems.join("\n"))
        };
        let status = status(self, context, &found, &problems, context.now());
        let works = matches!(found, Found::Seen(Reachable::Yes { .. }));
        write_status(context, self, self.status.as_ref(), &status).await?;
        Ok(Action::requeue(if works { AGAIN } else { TROUBLE_AGAIN }))
    }
}

/// What is known of the brokers.
enum Found {
    /// They cannot even be asked.
    Problem(Reason, String),
    /// They were asked.
    Seen(Reachable),
}

async fn observe(connection: &KafkaConnection, context: &Context, namespace: &str, name: &str) -> Result<Found, Error> {
    let (secrets, versions) = match secrets(connection, context, namespace).await? {
        Ok(secrets) => secrets,
        Err(missing) => return Ok(Found::Problem(Reason::SecretMissing, missing)),
    };
    let built = match Connection::for_administration(&connection.spec, namespace, &secrets) {
        Ok(built) => built,
        Err(error) => return Ok(Found::Problem(Reason::InvalidSpec, error.to_string())),
    };
    let spec = serde_json::to_string(&connection.spec).unwrap_or_default();
    let made_of = format!("{spec}{versions}");
    match context.observers.ensure(namespace, name, &made_of, built) {
        Ok(observer) => {
            observer.want(owner(namespace, name), Wanting::default());
            Ok(Found::Seen(observer.snapshot().reachable.clone()))
        }
        Err(error) => Ok(Found::Problem(Reason::BrokersUnreachable, format!("failed to start a thread: {error}"))),
    }
}

fn owner(namespace: &str, name: &str) -> Owner {
    Owner { kind: OwnerKind::Connection, namespace: namespace.to_owned(), name: name.to_owned() }
}

/// The values of all Secrets that a connection names, and what tells whether they have changed; or which of them is not there.
async fn secrets(connection: &KafkaConnection, context: &Context, namespace: &str) -> Result<Result<(Secrets, String), String>, Error> {
    let mut values: BTreeMap<(String, String), SecretText> = BTreeMap::new();
    let mut versions = String::new();
    for (name, keys) in secrets_of(&connection.spec) {
        let Some(secret) = context::read::<Secret>(context, namespace, &name).await? else {
            return Ok(Err(format!("there is no Secret `{name}` in the namespace; create it")));
        };
        versions.push_str(&secret.resource_version().unwrap_or_default());
        for key in keys {
            let Some(value) = secret.data.as_ref().and_then(|data| data.get(&key)) else {
                return Ok(Err(format!("Secret `{name}` has no key `{key}`; add it, or correct the reference")));
            };
            let Ok(text) = String::from_utf8(value.0.clone()) else {
                return Ok(Err(format!("Secret `{name}`, key `{key}`, is no text")));
            };
            values.insert((name.clone(), key), text.into());
        }
    }
    Ok(Ok((Secrets::given(values), versions)))
}

fn status(connection: &KafkaConnection, context: &Context, found: &Found, problems: &[String], now: Timestamp) -> KafkaConnectionStatus {
    let old = connection.status.clone().unwrap_or_default();
    let (namespace, name) = (connection.namespace(), connection.name_any());
    let uses = |pipeline: &penstock_crds::Pipeline| {
        pipeline.namespace() == namespace && pipeline.spec.kafka_ref.as_ref().is_some_and(|reference| reference.name == name)
    };
    let used_by = context.stores.pipelines.state().iter().filter(|pipeline| pipeline.0.as_ref().is_ok_and(uses)).count();
    let mut conditions = Conditions::new(&old.conditions, connection.metadata.generation, now);
    if problems.is_empty() {
        conditions.set(C::SpecValid, Some(true), Reason::AsSpecified, "");
    } else {
        conditions.set(C::SpecValid, Some(false), Reason::InvalidSpec, problems.join("\n"));
    }
    let mut status =
        KafkaConnectionStatus { observed_generation: connection.metadata.generation, used_by: i32::try_from(used_by).ok(), ..old.clone() };
    match found {
        Found::Seen(Reachable::Yes { cluster_id, brokers }) => {
            status.cluster_id = cluster_id.clone().or(old.cluster_id);
            status.brokers = i32::try_from(*brokers).ok();
            conditions.set(C::KafkaReachable, Some(true), Reason::BrokersReachable, "");
            conditions.set(C::Ready, Some(true), Reason::BrokersReachable, "");
        }
        Found::Seen(Reachable::Unknown) => {
            conditions.set(C::KafkaReachable, None, Reason::ChangePending, "the brokers are being asked");
            conditions.set(C::Ready, Some(false), Reason::ChangePending, "the brokers are being asked");
            conditions.set(C::Reconciling, Some(true), Reason::ChangePending, "the brokers are being asked");
        }
        Found::Seen(Reachable::No(trouble)) => {
            conditions.set(C::KafkaReachable, Some(false), trouble.reason, trouble.message.clone());
            conditions.set(C::Ready, Some(false), trouble.reason, trouble.message.clone());
        }
        Found::Problem(reason, message) => {
            conditions.set(C::Ready, Some(false), *reason, message.clone());
            conditions.set(C::Stalled, Some(true), *reason, message.clone());
        }
    }
    status.conditions = conditions.finish();
    status
}
