//! Images for the node, made of programs of this machine with the libraries that they need. No container engine takes part.
//!
//! They are kept in the cache, one of each, under a name that says of what it was made.

use super::{Cluster, Mode, programs, run, scripts};
use crate::{penstock, services};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::PoisonError,
};

/// The user of our own images: nobody in particular, as a restricted namespace wants it.
const USER: &str = "65532:65532";
/// Where programs find the authorities that they trust.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// The programs of the image for what has nothing to do with Penstock.
const TOOLS: [&str; 8] = ["bash", "cat", "date", "getent", "rm", "sleep", "stat", "touch"];

struct Image {
    name: &'static str,
    programs: Vec<PathBuf>,
}

impl Cluster {
    /// The image of `penstock`, as the node knows it.
    pub fn penstock_image(&self) -> Result<&'static str> {
        self.import(Image { name: "penstock", programs: vec![penstock::program()?] })
    }

    /// The image of `penstock-operator`, as the node knows it.
    pub fn operator_image(&self) -> Result<&'static str> {
        self.import(Image { name: "penstock-operator", programs: vec![penstock::operator()?] })
    }

    /// An image with a shell and a few programs beside it, as the node knows it. It starts `bash`.
    pub fn tools_image(&self) -> Result<&'static str> {
        let programs = TOOLS.iter().map(|name| services::program(name)).collect::<Result<_>>()?;
        self.import(Image { name: "tools", programs })
    }

    fn import(&self, image: Image) -> Result<&'static str> {
        ensure!(self.mode == Mode::Node, "this cluster has no node that would run {}", image.name);
        let mut imported = self.imported.lock().unwrap_or_else(PoisonError::into_inner);
        let tag = image.tag();
        if !imported.contains(tag) {
            let mut ctr = Command::new(services::program("ctr")?);
            ctr.arg("--address").arg(self.keeper.state().join("run/containerd.sock"));
            ctr.args(["--namespace", "k8s.io", "images", "import"]).arg(image.file()?);
            succeed(&mut ctr)?;
            imported.insert(tag);
        }
        Ok(tag)
    }
}

impl Image {
    fn tag(&self) -> &'static str {
        match self.name {
            "penstock" => "localhost/penstock:test",
            "penstock-operator" => "localhost/penstock-operator:test",
            _ => "localhost/tools:test",
        }
    }

    /// The file with the image; it is made if it is not there for these programs.
    fn file(&self) -> Result<PathBuf> {
        let images = programs::cache()?.join("images");
        fs::create_dir_all(&images).with_context(|| format!("failed to create {}", images.display()))?;
        let lock = fs::File::create(images.join("lock")).context("failed to create the lock of the images")?;
        lock.lock().context("failed to lock the images")?;
        let folder = images.join(self.name);
        let file = folder.join(format!("{}.tar", self.key()?));
        if !file.exists() {
            // one at a time: an older one is of no use to anybody
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
            self.make(&file)?;
        }
        Ok(file)
    }

    /// Names what the image is made of, and how.
    fn key(&self) -> Result<String> {
        let mut sum = Command::new("sh");
        sum.args(["-c", r#"cat "$@" | sha256sum"#, "sh"]).args(&self.programs);
        sum.arg(scripts().join("mkimage.sh")).arg(scripts().join("../src/cluster/images.rs"));
        Ok(succeed(&mut sum)?.chars().take(16).collect())
    }

    fn make(&self, file: &Path) -> Result<()> {
        let root = tempfile::tempdir().context("failed to make a folder for an image")?;
        let root = root.path();
        for folder in ["usr/bin", "etc/ssl/certs", "tmp"] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("failed to create {folder} of an image"))?;
        }
        fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).context("failed to open /tmp of an image to all")?;
        symlink("usr/bin", root.join("bin")).context("failed to link /bin of an image")?;
        for program in &self.programs {
            add_program(root, program)?;
        }
        let certificates = Path::new("/").join(CERTIFICATES);
        if certificates.exists() {
            fs::copy(&certificates, root.join(CERTIFICATES)).context("failed to copy certificates into an image")?;
        }
        let first = self.programs.first().and_then(|program| program.file_name()).context("an image has a program")?;
        let entry = Path::new("/usr/bin").join(first);
        let config = json!({"Entrypoint": [entry], "User": USER, "Env": ["PATH=/usr/bin"]}).to_string();
        let unfinished = file.with_extension("unfinished");
        succeed(Command::new(scripts().join("mkimage.sh")).arg(root).arg(self.tag()).arg(&unfinished).arg(config))?;
        fs::rename(&unfinished, file).with_context(|| format!("failed to create {}", file.display()))
    }
}

/// Adds a program, without what only a debugger needs, and its libraries.
fn add_program(root: &Path, program: &Path) -> Result<()> {
    let name = program.file_name().context("a program has a name")?;
    let target = root.join("usr/bin").join(name);
    succeed(Command::new("strip").arg("--strip-debug").arg("-o").arg(&target).arg(program))?;
    for library in libraries(&succeed(Command::new("ldd").arg(program))?) {
        let target = root.join(library.trim_start_matches('/'));
        let folder = target.parent().context("a library lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        fs::copy(&library, &target).with_context(|| format!("failed to copy {library}"))?;
    }
    Ok(())
}

/// The files that `ldd` names: libraries after the arrow, the loader by itself.
fn libraries(listing: &str) -> BTreeSet<String> {
    listing.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

fn succeed(command: &mut Command) -> Result<String> {
    let answer = run(command)?;
    let name = command.get_program().to_string_lossy().into_owned();
    ensure!(answer.success, "{name} failed: {}{}", answer.stdout, answer.stderr);
    Ok(answer.stdout)
}
