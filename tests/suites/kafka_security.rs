//! TLS, users and rights, against a broker that asks for them. What is wrong has its own message, soon.

use anyhow::{Context, Result, ensure};
use axum::{Json, Router, extract::State, http::HeaderMap, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use penstock::{
    kafka::{
        Access, Connection, KafkaContext, KafkaError,
        admin::{Admin, Created},
    },
    secrets::Secrets,
};
use penstock_crds::KafkaConnectionSpec;
use penstock_tests::services::{
    kafka::{
        Kafka,
        secured::{ADMIN, Security, USER},
    },
    poll_until,
};
use rdkafka::producer::{Producer, ThreadedProducer};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tempfile::TempDir;

/// Everything that is wrong is said within this time.
const LIMIT: Duration = Duration::from_secs(30);
/// How long something that may pass is waited for here.
const PATIENCE: Duration = Duration::from_secs(4);

/// A KafkaConnection and the folder of its secrets.
struct Manifest {
    secrets: TempDir,
    spec: Value,
}

impl Manifest {
    fn new(servers: &str) -> Result<Self> {
        let secrets = tempfile::tempdir().context("failed to create a folder")?;
        fs::create_dir(secrets.path().join("kafka")).context("failed to create a folder")?;
        Ok(Self { secrets, spec: json!({ "bootstrapServers": servers }) })
    }

    /// Puts a value into the Secret and gives a reference to it.
    fn secret(&self, key: &str, value: &str) -> Result<Value> {
        fs::write(self.secrets.path().join("kafka").join(key), value).context("failed to write a secret")?;
        Ok(json!({ "valueFrom": { "secretKeyRef": { "name": "kafka", "key": key } } }))
    }

    fn trusting(mut self, ca: &str) -> Result<Self> {
        self.spec["tls"] = json!({ "ca": self.secret("ca", ca)? });
        Ok(self)
    }

    fn user(mut self, mechanism: &str, (name, password): (&str, &str)) -> Result<Self> {
        self.spec["sasl"] =
            json!({ "mechanism": mechanism, "username": self.secret("user", name)?, "password": self.secret("password", password)? });
        Ok(self)
    }

    fn connection(&self) -> Result<Connection> {
        let spec: KafkaConnectionSpec = serde_json::from_value(self.spec.clone()).context("a spec")?;
        Connection::new(&spec, "shop", &Secrets::new(Some(self.secrets.path().to_owned()))).context("a connection")
    }

    fn check(&self) -> Result<Result<usize, KafkaError>> {
        let began = Instant::now();
        let answer = self.connection()?.check(PATIENCE).map(|cluster| cluster.brokers);
        ensure!(began.elapsed() < LIMIT, "the answer took {:?}", began.elapsed());
        Ok(answer)
    }

    /// What is wrong, in words, which must not hold a password.
    fn refused(&self) -> Result<String> {
        let error = self.check()?.err().context("this must not work")?;
        let message = error.to_string();
        assert!(error.is_unreachable(), "{error:?}");
        assert!(!format!("{message}{error:?}").contains("BEGIN"), "{error:?}");
        Ok(message)
    }
}

fn secured() -> Result<(&'static Kafka, &'static Security)> {
    let kafka = Kafka::shared_secured()?;
    Ok((kafka, kafka.security()?))
}

#[test]
fn every_mechanism_signs_in_over_tls() -> Result<()> {
    let (_, security) = secured()?;
    let ca = security.pem("ca")?;
    for (mechanism, user) in [("PLAIN", ADMIN), ("SCRAM-SHA-256", USER), ("SCRAM-SHA-512", USER)] {
        let manifest = Manifest::new(&security.sasl())?.trusting(&ca)?.user(mechanism, user)?;
        let brokers = manifest.check()?.with_context(|| mechanism)?;
        assert_eq!(brokers, 1, "{mechanism}");
    }
    Ok(())
}

#[test]
fn a_client_certificate_signs_in_and_without_it_the_broker_refuses() -> Result<()> {
    let (_, security) = secured()?;
    let mut manifest = Manifest::new(&security.mutual())?.trusting(&security.pem("ca")?)?;
    let message = manifest.refused()?;
    assert!(message.contains("ask for a client certificate"), "{message}");
    manifest.spec["tls"]["clientCertificate"] = manifest.secret("certificate", &security.pem("client")?)?;
    manifest.spec["tls"]["clientKey"] = manifest.secret("key", &security.pem("client-key")?)?;
    assert_eq!(manifest.check()?.context("with its certificate")?, 1);
    Ok(())
}

#[test]
fn wrong_credentials_are_named_as_such() -> Result<()> {
    let (_, security) = secured()?;
    let ca = security.pem("ca")?;
    for (mechanism, user) in
        [("PLAIN", (ADMIN.0, "wrong-word")), ("SCRAM-SHA-512", (USER.0, "wrong-word")), ("SCRAM-SHA-256", ("nobody", "x"))]
    {
        let message = Manifest::new(&security.sasl())?.trusting(&ca)?.user(mechanism, user)?.refused()?;
        assert!(message.contains("do not take these credentials; correct the Secret"), "{mechanism}: {message}");
        assert!(message.contains(&security.sasl()) && !message.contains("wrong-word"), "{message}");
    }
    Ok(())
}

#[test]
fn each_fault_of_a_certificate_is_told_apart() -> Result<()> {
    let (_, security) = secured()?;
    let (ca, other) = (security.pem("ca")?, security.pem("other-ca")?);
    for (servers, ca, want) in [
        (security.sasl(), &other, "signed by nobody whom we trust; put its authority into tls.ca"),
        (security.expired(), &ca, "has expired"),
        (security.other_name(), &ca, "is for another host name"),
    ] {
        let message = Manifest::new(&servers)?.trusting(ca)?.user("PLAIN", ADMIN)?.refused()?;
        assert!(message.contains(want), "{message}\n  lacks: {want}");
    }
    Ok(())
}

#[test]
fn an_authority_that_the_system_does_not_know_is_not_trusted() -> Result<()> {
    let (_, security) = secured()?;
    let mut manifest = Manifest::new(&security.sasl())?.user("PLAIN", ADMIN)?;
    manifest.spec["tls"] = json!({});
    let message = manifest.refused()?;
    assert!(message.contains("signed by nobody whom we trust"), "{message}");
    Ok(())
}

#[test]
fn tls_where_there_is_none_and_none_where_there_is_are_told_apart() -> Result<()> {
    let (kafka, security) = secured()?;
    let message = Manifest::new(&kafka.bootstrap())?.trusting(&security.pem("ca")?)?.refused()?;
    assert!(message.contains("do not speak TLS at that port"), "{message}");
    let message = Manifest::new(&security.sasl())?.refused()?;
    assert!(message.contains("expect TLS or a user at that port"), "{message}");
    Ok(())
}

#[test]
fn nobody_listening_and_an_unknown_host_are_told_apart() -> Result<()> {
    let message = Manifest::new("127.0.0.1:9")?.refused()?;
    assert!(message.contains("Kafka at 127.0.0.1:9 cannot be used: nothing answers there"), "{message}");
    let message = Manifest::new("no-such-host.invalid:9092")?.refused()?;
    assert!(message.contains("there is no host of that name; correct bootstrapServers"), "{message}");
    Ok(())
}

fn administrator(manifest: &Manifest) -> Result<Admin> {
    let spec: KafkaConnectionSpec = serde_json::from_value(manifest.spec.clone()).context("a spec")?;
    let secrets = Secrets::new(Some(manifest.secrets.path().to_owned()));
    let connection = Connection::for_administration(&spec, "shop", &secrets).context("a connection")?;
    Admin::new(&connection, LIMIT / 2).context("an administrator")
}

fn denied<T>(answer: Result<T, KafkaError>) -> Result<String> {
    let error = answer.err().context("this must not be allowed")?;
    assert!(matches!(error, KafkaError::Denied { .. }) && error.is_unreachable(), "{error:?}");
    let (_, what) =
        error.to_string().split_once(" does not allow ").map(|(server, what)| (server.to_owned(), what.to_owned())).context("what")?;
    Ok(what)
}

#[test]
fn a_missing_right_names_the_operation_and_what_it_is_for() -> Result<()> {
    let (kafka, security) = secured()?;
    let manifest = Manifest::new(&security.sasl())?.trusting(&security.pem("ca")?)?.user("SCRAM-SHA-256", USER)?;
    let admin = administrator(&manifest)?;
    kafka.create_topic("rights-there", 1)?;
    let cure = "; give the user of the KafkaConnection that right (an ACL)";
    assert_eq!(denied(admin.topic("rights-there"))?, format!("`Describe` on topic `rights-there`{cure}"));
    assert_eq!(denied(admin.create_topic("rights-new", 1, &BTreeMap::new()))?, format!("`Create` on topic `rights-new`{cure}"));
    assert_eq!(denied(admin.group_offsets("rights-group"))?, format!("`Describe` on consumer group `rights-group`{cure}"));
    kafka.allow(USER.0, "Describe", "--topic", "rights-")?;
    poll_until("the right is known", LIMIT, || admin.topic("rights-there").is_ok())?;
    assert_eq!(denied(admin.delete_topic("rights-there"))?, format!("`Delete` on topic `rights-there`{cure}"));
    let topic = admin.topic("rights-there")?.context("it is there")?;
    assert_eq!(topic.allowed, [Access::Describe], "what is allowed is known before it is tried");
    Ok(())
}

#[test]
fn administration_signs_in_with_credentials_of_its_own() -> Result<()> {
    let (_, security) = secured()?;
    let mut manifest = Manifest::new(&security.sasl())?.trusting(&security.pem("ca")?)?.user("SCRAM-SHA-256", USER)?;
    let (name, word) = (manifest.secret("admin", ADMIN.0)?, manifest.secret("admin-word", ADMIN.1)?);
    manifest.spec["adminSasl"] = json!({ "mechanism": "PLAIN", "username": name, "password": word });
    let admin = administrator(&manifest)?;
    assert_eq!(admin.create_topic("owned-by-admin", 2, &BTreeMap::new())?, Created::New);
    assert_eq!(manifest.check()?.context("the others sign in as before")?, 1);

    manifest.spec["adminSasl"]["password"] = manifest.secret("admin-word", "wrong-word")?;
    let error = administrator(&manifest)?.topic("owned-by-admin").err().context("wrong")?;
    assert!(error.to_string().contains("do not take these credentials"), "{error}");
    Ok(())
}

#[test]
fn a_broker_that_is_frozen_is_not_waited_for_without_end() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kafka = Kafka::start(folder.path())?;
    let manifest = Manifest::new(&kafka.bootstrap())?;
    assert_eq!(manifest.check()?.context("it runs")?, 1);
    kafka.pause()?;
    let message = manifest.refused()?;
    assert!(message.contains("did not describe the cluster within 4 s"), "{message}");
    kafka.resume()?;
    kafka.kill();
    let message = manifest.refused()?;
    assert!(message.contains("nothing answers there"), "{message}");
    kafka.start_again()?;
    assert_eq!(manifest.check()?.context("it runs again")?, 1);
    kafka.stop()
}

#[test]
fn clients_know_when_a_broker_is_gone_and_when_it_is_back() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kafka = Kafka::start(folder.path())?;
    let connection = Manifest::new(&kafka.bootstrap())?.connection()?;
    let context = connection.context();
    let client: ThreadedProducer<KafkaContext> = connection.client_of(|config| config.create_with_context(connection.context()))?;
    client.client().fetch_metadata(None, LIMIT).context("it runs")?;
    assert_eq!(context.trouble(), None);
    kafka.kill();
    poll_until("the trouble is known", LIMIT, || context.trouble().is_some_and(|trouble| trouble.broker == kafka.bootstrap()))?;
    kafka.start_again()?;
    poll_until("the trouble is over", LIMIT, || context.trouble().is_none())
}

/// An identity provider: it gives unsigned tokens to who knows the secret.
struct Provider {
    _runtime: tokio::runtime::Runtime,
    address: String,
    asked: Arc<AtomicUsize>,
}

const CLIENT: (&str, &str) = ("penstock-client", "tea & sugar");

impl Provider {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().context("a runtime")?;
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).context("a port")?;
        let address = format!("http://{}/token", listener.local_addr()?);
        let routes = Router::new().route("/token", post(give_token)).with_state(Arc::clone(&asked));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { _runtime: runtime, address, asked })
    }
}

async fn give_token(State(asked): State<Arc<AtomicUsize>>, headers: HeaderMap, body: String) -> (axum::http::StatusCode, Json<Value>) {
    asked.fetch_add(1, Ordering::SeqCst);
    // OAuth wants both parts encoded as in a form
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{}:tea%20%26%20sugar", CLIENT.0)));
    let known = headers.get("authorization").is_some_and(|header| header.as_bytes() == expected.as_bytes());
    if !known || body != "grant_type=client_credentials&scope=kafka%20write" {
        return (axum::http::StatusCode::UNAUTHORIZED, Json(json!({ "error": "invalid_client" })));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let token = format!("{}.{}.", part(json!({ "alg": "none" })), part(json!({ "sub": CLIENT.0, "iat": now, "exp": now + 300 })));
    (axum::http::StatusCode::OK, Json(json!({ "access_token": token, "expires_in": 300, "token_type": "Bearer" })))
}

#[test]
fn tokens_of_a_provider_sign_in() -> Result<()> {
    let (_, security) = secured()?;
    let provider = Provider::start()?;
    let mut manifest = Manifest::new(&security.sasl())?.trusting(&security.pem("ca")?)?;
    let oauth = |manifest: &Manifest, endpoint: &str, secret: &str| -> Result<Value> {
        let (id, secret) = (manifest.secret("id", CLIENT.0)?, manifest.secret("secret", secret)?);
        let oauth = json!({ "tokenEndpoint": endpoint, "clientId": id, "clientSecret": secret, "scope": "kafka write" });
        Ok(json!({ "mechanism": "OAUTHBEARER", "oauth": oauth }))
    };
    manifest.spec["sasl"] = oauth(&manifest, &provider.address, CLIENT.1)?;
    assert_eq!(manifest.check()?.context("with a token")?, 1);
    assert!(provider.asked.load(Ordering::SeqCst) > 0);

    manifest.spec["sasl"] = oauth(&manifest, &provider.address, "wrong-word")?;
    let message = manifest.refused()?;
    assert!(message.contains("no token could be had; check tokenEndpoint") && message.contains("401 invalid_client"), "{message}");
    assert!(!message.contains("wrong-word"), "{message}");

    manifest.spec["sasl"] = oauth(&manifest, "http://127.0.0.1:9/token", CLIENT.1)?;
    let message = manifest.refused()?;
    assert!(message.contains("127.0.0.1:9/token cannot be asked for a token"), "{message}");
    Ok(())
}
