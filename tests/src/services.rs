//! Real services for tests, as child processes that never outlive the tests, however those end.
//!
//! What they need is fetched once into `${PENSTOCK_CACHE:-$HOME/.cache/penstock}/services`.

pub mod kafka;
pub mod nginx;
pub mod opensearch;

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Runs its arguments as a process, says its number, and kills it once its own input ends: at the latest with the tests.
/// It ends as the process did. The process starts before the guard ignores signals: what is ignored is inherited.
const GUARD: &str = r#""$@" < /dev/null & echo $!; trap "" INT TERM HUP; exec >&-; cat > /dev/null; kill -9 $! 2> /dev/null; wait $!"#;

/// What a service in Java logs, and where: warnings, with its messages.
const LOGGING: &str = "rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = stdout
appender.stdout.type = Console
appender.stdout.name = stdout
appender.stdout.target = SYSTEM_ERR
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = [%d] %p %c{1} %m%n
";

/// A running process. It is killed when this is dropped, and when the tests end without dropping anything.
#[derive(Debug)]
pub struct Service {
    guard: Child,
    pid: Pid,
}

impl Service {
    /// Starts a program whose messages go to the file `log`.
    pub fn start(program: &Path, arguments: &[String], log: &Path) -> Result<Self> {
        let messages = fs::File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "guard"])
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(messages)
            .spawn()
            .with_context(|| format!("failed to run {}", program.display()))?;
        let mut line = String::new();
        let said = guard.stdout.take().context("the guard has no output")?;
        BufReader::new(said).read_line(&mut line).context("failed to read the number of the process")?;
        let pid = line.trim().parse().with_context(|| format!("`{}` is not the number of a process", line.trim()))?;
        Ok(Self { guard, pid: Pid::from_raw(pid) })
    }

    /// Whether it runs still.
    pub fn runs(&self) -> bool {
        kill(self.pid, None).is_ok()
    }

    /// Asks it to end.
    pub fn terminate(&self) -> Result<()> {
        kill(self.pid, Signal::SIGTERM).context("failed to stop a service")
    }

    /// Asks it to end, waits for that, and gives its exit code.
    pub fn stop(mut self, limit: Duration) -> Result<i32> {
        self.terminate()?;
        poll_until("a service stops", limit, || !self.runs())?;
        drop(self.guard.stdin.take());
        let status = self.guard.wait().context("failed to wait for the end of a service")?;
        status.code().context("the guard of a service was killed")
    }

    /// Freezes it: connections stay open and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        kill(self.pid, Signal::SIGSTOP).context("failed to pause a service")
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<()> {
        kill(self.pid, Signal::SIGCONT).context("failed to resume a service")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if let Err(error) = self.guard.wait() {
            eprintln!("failed to wait for the end of a service: {error}");
        }
    }
}

/// A service in Java that may be stopped and started again, with its data.
pub(crate) struct Restartable {
    name: &'static str,
    arguments: Vec<String>,
    log: PathBuf,
    limit: Duration,
    running: Mutex<Option<Service>>,
}

impl Restartable {
    /// One that does not run yet. `limit`: how long it may take to answer.
    fn new(name: &'static str, arguments: Vec<String>, log: PathBuf, limit: Duration) -> Self {
        Self { name, arguments, log, limit, running: Mutex::new(None) }
    }

    /// Starts it, and waits until it answers.
    fn start(&self, mut answers: impl FnMut() -> bool) -> Result<()> {
        let Self { name, log, .. } = self;
        let service = Service::start(&program("java")?, &self.arguments, log)?;
        let mut died = false;
        let answered = poll_until(&format!("{name} answers"), self.limit, || {
            died = !service.runs();
            died || answers()
        });
        ensure!(answered.is_ok() && !died, "{name} did not start:\n{}", tail(log));
        *self.running() = Some(service);
        Ok(())
    }

    /// Stops it as a machine that is shut down would.
    fn terminate(&self, limit: Duration) -> Result<()> {
        let mut service = self.running();
        let running = service.as_ref().with_context(|| self.is_down())?;
        running.terminate()?;
        poll_until(&format!("{} stops", self.name), limit, || !running.runs())?;
        *service = None;
        Ok(())
    }

    /// Kills it.
    fn kill(&self) {
        *self.running() = None;
    }

    /// Freezes it: connections stay open and nothing is answered.
    fn pause(&self) -> Result<()> {
        self.running().as_ref().with_context(|| self.is_down())?.pause()
    }

    /// Lets it go on.
    fn resume(&self) -> Result<()> {
        self.running().as_ref().with_context(|| self.is_down())?.resume()
    }

    fn is_down(&self) -> String {
        format!("{} does not run", self.name)
    }

    fn running(&self) -> MutexGuard<'_, Option<Service>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until something is so.
pub fn poll_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + limit;
    while !is_so() {
        ensure!(Instant::now() < end, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A program of this machine.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    let found = folders.map(|folder| folder.join(name)).find(|program| program.is_file());
    found.with_context(|| format!("`{name}` is not installed, and this suite needs it: run .ci/setup"))
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("failed to run {name}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{name} failed:\n{}{}", text(&output.stdout), text(&output.stderr));
    Ok(())
}

/// Where everything is kept that is fetched or built once for tests.
pub(crate) fn cache_root() -> Result<PathBuf> {
    Ok(match (env::var_os("PENSTOCK_CACHE"), env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => PathBuf::from(home).join(".cache/penstock"),
        (None, None) => bail!("set PENSTOCK_CACHE or HOME: what the tests need is kept there"),
    })
}

/// The folder for what a service needs, below the cache.
fn cache(service: &str) -> Result<PathBuf> {
    let folder = cache_root()?.join("services").join(service);
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    Ok(folder)
}

/// Where the files of this repository for services are.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("services")
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
