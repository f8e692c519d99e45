//! A broker with TLS, users and rights, as they are in production. Beside the open address of the harness itself it has
//!
//! * [`Security::sasl`]: TLS and a user: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER (unsigned tokens are taken);
//! * [`Security::mutual`]: TLS and a client certificate instead of a user;
//! * [`Security::expired`]: like `sasl`, with a certificate that was good until yesterday.

use super::{Kafka, library};
use crate::{
    cluster::free_ports,
    services::{program, run},
};
use anyhow::{Context, Result};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A user and password for PLAIN who may do everything.
pub const ADMIN: (&str, &str) = ("admin", "kettle & spoon");
/// A user and password for both SCRAM mechanisms who may do what [`Kafka::allow`] allows.
pub const USER: (&str, &str) = ("ulla", "cup=saucer");

/// Certificates, users and addresses of a secured broker.
#[derive(Debug)]
pub struct Security {
    folder: PathBuf,
    ports: [u16; 3],
}

impl Security {
    /// Makes the certificates, in a folder.
    pub fn prepare(folder: &Path) -> Result<Self> {
        make_certificates(folder)?;
        Ok(Self { folder: folder.to_owned(), ports: free_ports()? })
    }

    /// The address with TLS where users sign in.
    pub fn sasl(&self) -> String {
        format!("localhost:{}", self.ports[0])
    }

    /// The address that asks for a client certificate.
    pub fn mutual(&self) -> String {
        format!("localhost:{}", self.ports[1])
    }

    /// The address whose certificate has expired.
    pub fn expired(&self) -> String {
        format!("localhost:{}", self.ports[2])
    }

    /// The address of [`Security::sasl`] by a name that the certificate does not have.
    pub fn other_name(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// A text in PEM form: `ca`, `client` (signed by it), `client-key`, `other-ca` (signed nothing).
    pub fn pem(&self, name: &str) -> Result<String> {
        let file = self.folder.join(format!("{name}.pem"));
        fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))
    }

    pub(super) fn listeners(&self) -> String {
        let names = ["SASL", "MUTUAL", "EXPIRED"].iter().zip(self.ports);
        names.map(|(name, port)| format!(",{name}://localhost:{port}")).collect()
    }

    pub(super) fn scram_users(&self) -> Vec<String> {
        let (name, password) = USER;
        ["SCRAM-SHA-256", "SCRAM-SHA-512"].map(|mechanism| format!("{mechanism}=[name={name},password={password}]")).into()
    }

    pub(super) fn settings(&self) -> String {
        let sasl: String = ["sasl", "expired"].iter().map(|listener| sasl_settings(listener)).collect();
        format!(
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL,EXPIRED:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server-store.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.expired.ssl.keystore.type=PEM
listener.name.expired.ssl.keystore.location={folder}/expired-store.pem
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
{sasl}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{admin}
",
            folder = self.folder.display(),
            admin = ADMIN.0,
        )
    }
}

fn sasl_settings(listener: &str) -> String {
    let module = "org.apache.kafka.common.security";
    let (admin, password) = ADMIN;
    format!(
        "listener.name.{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required user_{admin}=\"{password}\";
listener.name.{listener}.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;
listener.name.{listener}.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule required;
listener.name.{listener}.oauthbearer.sasl.jaas.config={module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"none\";
"
    )
}

impl Kafka {
    /// Lets a user do something with all topics or groups whose name begins so: `("ulla", "Write", "--topic", "orders_")`.
    pub fn allow(&self, user: &str, operation: &str, kind: &str, prefix: &str) -> Result<()> {
        let mut command = Command::new(program("java")?);
        command.args(["-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", &format!("{}/*", library()?.display())]);
        command.args(["org.apache.kafka.tools.AclCommand", "--bootstrap-server", &self.bootstrap(), "--add"]);
        command.args(["--allow-principal", &format!("User:{user}"), "--operation", operation]);
        run(command.args(["--resource-pattern-type", "prefixed", kind, prefix]))
    }
}

fn make_certificates(folder: &Path) -> Result<()> {
    let openssl = |arguments: &str| run(Command::new(program("openssl")?).current_dir(folder).args(arguments.split(' ')));
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).with_context(|| format!("failed to write {name}"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).with_context(|| format!("failed to read {name}"));
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign";
    // openssl.cnf of many systems adds basicConstraints itself, and twice is once too many
    write("openssl.cnf", "[req]\ndistinguished_name=dn\n[dn]\n")?;
    for name in ["ca", "other-ca"] {
        openssl(&format!(
            "req -config openssl.cnf -x509 {key} {authority} -subj /CN={name} -days 30 -keyout {name}-key.pem -out {name}.pem"
        ))?;
    }
    for (name, usage, days) in [("server", "serverAuth", 30), ("client", "clientAuth", 30), ("expired", "serverAuth", -1)] {
        openssl(&format!("req -config openssl.cnf {key} -subj /CN={name} -keyout {name}-key.pem -out {name}.csr"))?;
        write(&format!("{name}.ext"), &format!("subjectAltName=DNS:localhost\nextendedKeyUsage={usage}\n"))?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days {days} -extfile {name}.ext -out {name}.pem"
        ))?;
        let store = format!("{}{}", read(&format!("{name}-key.pem"))?, read(&format!("{name}.pem"))?);
        write(&format!("{name}-store.pem"), &store)?;
    }
    Ok(())
}
