//! The `penstock` program, as a user starts it, in a folder of its own.

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant, SystemTime},
};
use tempfile::TempDir;

/// Longest time that a command of a test may take.
const LIMIT: Duration = Duration::from_secs(120);

/// The program that `cargo test --workspace` has built.
///
/// # Errors
/// It is not there, or older than its sources: the tests would try something else than what is written.
pub fn program() -> Result<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAM.get_or_init(|| find("penstock", &["worker/src", "crds/src"])).clone().map_err(anyhow::Error::msg)
}

/// The operator that `cargo test --workspace` has built.
///
/// # Errors
/// It is not there, or older than its sources.
pub fn operator() -> Result<PathBuf> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let sources = ["operator/src", "worker/src", "crds/src"];
    PROGRAM.get_or_init(|| find("penstock-operator", &sources)).clone().map_err(anyhow::Error::msg)
}

fn find(name: &str, sources: &[&str]) -> Result<PathBuf, String> {
    let found = find_newer_than(name, sources);
    found.map_err(|error| format!("{error:#}; run `cargo test --workspace`, or `cargo build --workspace --bin {name}` first"))
}

fn find_newer_than(name: &str, sources: &[&str]) -> Result<PathBuf> {
    // the tests lie in `deps`, the program beside it
    let test = std::env::current_exe().context("failed to find this test")?;
    let folder = test.parent().and_then(Path::parent).context("the test lies in no target folder")?;
    let program = folder.join(name);
    let built =
        fs::metadata(&program).and_then(|metadata| metadata.modified()).with_context(|| format!("there is no {}", program.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in sources {
        ensure!(built >= newest_below(&root.join(folder))?, "{} is older than its sources in {folder}", program.display());
    }
    Ok(program)
}

/// When a file below the folder was last changed.
fn newest_below(folder: &Path) -> Result<SystemTime> {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in fs::read_dir(folder).with_context(|| format!("failed to read {}", folder.display()))? {
        let entry = entry?;
        let changed = if entry.file_type()?.is_dir() { newest_below(&entry.path())? } else { entry.metadata()?.modified()? };
        newest = newest.max(changed);
    }
    Ok(newest)
}

/// A folder with files in which the program is run. It is removed at the end.
pub struct Workdir(TempDir);

impl Workdir {
    /// An empty folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir().context("failed to make a folder")?))
    }

    /// A folder with a copy of a fixture folder, for example `contract`.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn with_fixture(name: &str) -> Result<Self> {
        let workdir = Self::new()?;
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name), workdir.path())?;
        Ok(workdir)
    }

    /// A folder with a copy of a folder of the repository, at the same place in it, without the `out` of earlier runs.
    ///
    /// # Errors
    /// It cannot be copied.
    pub fn with_copy_of(folder: &str) -> Result<Self> {
        let workdir = Self::new()?;
        let target = workdir.path().join(folder);
        fs::create_dir_all(&target)?;
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &target)?;
        match fs::remove_dir_all(target.join("out")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).context("failed to remove the copy of `out`"),
            _ => Ok(workdir),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with the folders that it needs.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<&Self> {
        let path = self.path().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, content).with_context(|| format!("failed to write {name}"))?;
        Ok(self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read as text.
    pub fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path().join(name)).with_context(|| format!("failed to read {name}"))
    }

    /// The JSON objects of a file, one a line.
    ///
    /// # Errors
    /// It cannot be read as JSON lines.
    pub fn read_json_lines(&self, name: &str) -> Result<Vec<Value>> {
        self.read(name)?.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))).collect()
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// It does not start, or does not end in time.
    pub fn penstock<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<Answer> {
        self.start(arguments, &[])?.wait()
    }

    /// Starts the program, with these variables in its environment.
    ///
    /// # Errors
    /// It does not start.
    pub fn start<'a>(&self, arguments: impl IntoIterator<Item = &'a str>, environment: &[(&str, &str)]) -> Result<Running> {
        let outputs = tempfile::tempdir().context("failed to make a folder")?;
        let out = fs::File::create(outputs.path().join("out"))?;
        let err = fs::File::create(outputs.path().join("err"))?;
        let child = Command::new(program()?)
            .args(arguments)
            .current_dir(self.path())
            .envs(environment.iter().copied())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .context("failed to start penstock")?;
        Ok(Running { child, outputs })
    }

    /// Runs the manifests and gives the summary with the answer.
    ///
    /// # Errors
    /// It does not end in time, or prints no summary.
    pub fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Result<(Value, Answer)> {
        let answer = self.penstock(["run", "--summary", "json"].into_iter().chain(arguments))?;
        Ok((answer.summary()?, answer))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("failed to read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// The running program. It is killed if it is dropped.
pub struct Running {
    child: Child,
    outputs: TempDir,
}

/// What the program said.
#[derive(Debug)]
pub struct Answer {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// The JSON summary, the last line on standard output.
    ///
    /// # Errors
    /// There is none.
    pub fn summary(&self) -> Result<Value> {
        let line = self.out.lines().last().with_context(|| format!("no summary; {self:?}"))?;
        serde_json::from_str(line).with_context(|| format!("the last line is no JSON; {self:?}"))
    }
}

impl Running {
    /// Sends a signal.
    ///
    /// # Errors
    /// The program is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid(), signal).context("failed to signal penstock")
    }

    /// The number of its process.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// What it has written to standard error up to now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn err(&self) -> Result<String> {
        Ok(fs::read_to_string(self.outputs.path().join("err"))?)
    }

    /// Whether it runs still.
    ///
    /// # Errors
    /// The system does not say.
    pub fn runs(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("failed to look after penstock")?.is_none())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait(mut self) -> Result<Answer> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("failed to wait for penstock")? {
                let out = fs::read_to_string(self.outputs.path().join("out")).context("standard output is no text")?;
                return Ok(Answer { code: status.code(), signal: status.signal(), out, err: self.err()? });
            }
            if begun.elapsed() > LIMIT {
                bail!("penstock does not end; it said: {}", self.err()?);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
