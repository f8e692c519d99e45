//! A real nginx in front of another service: TLS, a password, client certificates, its own limit on bodies.

use super::{Service, poll_until, program, run, tail};
use crate::cluster::free_ports;
use anyhow::{Context, Result};
use std::{
    fs,
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// The user and password that it asks for.
pub const CREDENTIALS: (&str, &str) = ("elastic", "kettle & spoon");

/// A proxy with TLS: one port asks for a password, the other for a client certificate.
pub struct Nginx {
    _service: Service,
    folder: TempDir,
    /// The port that asks for [`CREDENTIALS`].
    pub password_port: u16,
    /// The port that asks for a client certificate.
    pub certificate_port: u16,
}

impl Nginx {
    /// Starts it in front of `upstream`, with certificates of its own.
    pub fn start(upstream: &str) -> Result<Self> {
        let nginx = program("nginx")?;
        let folder = tempfile::tempdir().context("failed to create a folder for nginx")?;
        make_certificates(folder.path())?;
        let hash = Command::new(program("openssl")?).args(["passwd", "-apr1", CREDENTIALS.1]).output().context("failed to run openssl")?;
        let users = format!("{}:{}", CREDENTIALS.0, String::from_utf8_lossy(&hash.stdout));
        fs::write(folder.path().join("users"), users).context("failed to write the users of nginx")?;
        let [password_port, certificate_port] = free_ports()?;
        let settings = folder.path().join("nginx.conf");
        fs::write(&settings, configuration(folder.path(), upstream, password_port, certificate_port))
            .context("failed to write nginx.conf")?;
        let log = folder.path().join("log");
        let arguments = ["-e", "stderr", "-p", &folder.path().display().to_string(), "-c", &settings.display().to_string()];
        let service = Service::start(&nginx, &arguments.map(String::from), &log)?;
        poll_until("nginx answers", Duration::from_secs(20), || TcpStream::connect(("127.0.0.1", certificate_port)).is_ok())
            .with_context(|| tail(&log))?;
        Ok(Self { _service: service, folder, password_port, certificate_port })
    }

    /// A file in PEM form: `ca`, `client` (signed by it), `client-key`, `other-ca` (signed nothing).
    pub fn pem(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }
}

fn make_certificates(folder: &Path) -> Result<()> {
    let openssl = |arguments: &str| run(Command::new(program("openssl")?).current_dir(folder).args(arguments.split(' ')));
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    let authority = "-addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign";
    // openssl.cnf of many systems adds basicConstraints itself, and twice is once too many
    fs::write(folder.join("openssl.cnf"), "[req]\ndistinguished_name=dn\n[dn]\n").context("failed to write openssl.cnf")?;
    for name in ["ca", "other-ca"] {
        openssl(&format!(
            "req -config openssl.cnf -x509 {key} {authority} -subj /CN={name} -days 30 -keyout {name}-key.pem -out {name}.pem"
        ))?;
    }
    for (name, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
        openssl(&format!("req -config openssl.cnf {key} -subj /CN={name} -keyout {name}-key.pem -out {name}.csr"))?;
        let extensions = format!("subjectAltName=DNS:localhost\nextendedKeyUsage={usage}\n");
        fs::write(folder.join(format!("{name}.ext")), extensions).context("failed to write extensions")?;
        openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 30 -extfile {name}.ext -out {name}.pem"
        ))?;
    }
    Ok(())
}

fn configuration(folder: &Path, upstream: &str, password_port: u16, certificate_port: u16) -> String {
    let server = |port: u16, access: &str| {
        format!(
            "server {{ listen 127.0.0.1:{port} ssl; server_name localhost;
               ssl_certificate server.pem; ssl_certificate_key server-key.pem; {access}
               location / {{ proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Connection ''; }} }}"
        )
    };
    // one process, so that killing it leaves none behind
    format!(
        "daemon off; master_process off; pid nginx.pid; error_log stderr warn;
         events {{ worker_connections 128; }}
         http {{ access_log off; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
           uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
           {1}
           {2} }}",
        folder.display(),
        server(password_port, "auth_basic search; auth_basic_user_file users;"),
        server(certificate_port, "ssl_client_certificate ca.pem; ssl_verify_client on;"),
    )
}
