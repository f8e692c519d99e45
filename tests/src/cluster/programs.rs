//! The programs of the cluster. They are built once for their sources (`tests/cluster/src`), from Go modules, into
//! `${PENSTOCK_CACHE:-$HOME/.cache/penstock}/cluster`: Kubernetes takes 7 to 12 minutes of CPU, CoreDNS 2, later starts nothing.

use super::{run, scripts};
use crate::services::{cache_root, program};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The folder of Kubernetes and etcd.
pub fn kubernetes() -> Result<PathBuf> {
    built("clusterbin")
}

/// The folder of CoreDNS.
pub fn coredns() -> Result<PathBuf> {
    built("coredns")
}

/// The folder of the image with the container that holds a pod's network.
pub fn pause() -> Result<PathBuf> {
    built("pause")
}

/// The folder of what `build.sh` calls so.
fn built(what: &str) -> Result<PathBuf> {
    let cache = cache()?;
    let lock = fs::File::create(cache.join("lock")).context("failed to create the lock of the cluster's programs")?;
    lock.lock().context("failed to lock the cluster's programs")?;
    let folder = cache.join(source_key(what)?);
    if !folder.exists() {
        build(what, &folder)?;
    }
    Ok(folder)
}

fn build(what: &str, folder: &Path) -> Result<()> {
    program(if what == "pause" { "gcc" } else { "go" })?;
    eprintln!("building {what} of the test cluster into {}: minutes, once", folder.display());
    let unfinished = folder.with_extension("unfinished");
    let mut build = Command::new("nice");
    build.arg(scripts().join("build.sh")).arg(what).env("CLUSTER_BIN", &unfinished).env("CLUSTER_IMAGES", &unfinished);
    let answer = run(&mut build)?;
    ensure!(answer.success, "{what} of the test cluster cannot be built:\n{}{}", answer.stdout, answer.stderr);
    fs::rename(&unfinished, folder).with_context(|| format!("failed to create {}", folder.display()))
}

/// Names what something is built from: FNV-1a over names and contents.
fn source_key(what: &str) -> Result<String> {
    let sources = scripts().join("src").join(what);
    let listed = fs::read_dir(&sources).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let mut names: Vec<_> =
        listed.with_context(|| format!("failed to list {}", sources.display()))?.iter().map(fs::DirEntry::path).collect();
    names.sort();
    let mut key = 0xcbf2_9ce4_8422_2325_u64;
    for file in names {
        let content = fs::read(&file).with_context(|| format!("failed to read {}", file.display()))?;
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        for byte in name.iter().chain(&content) {
            key = (key ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{key:016x}"))
}

/// Where all of the cluster is that outlives it.
pub fn cache() -> Result<PathBuf> {
    let cache = cache_root()?.join("cluster");
    fs::create_dir_all(&cache).with_context(|| format!("failed to create {}", cache.display()))?;
    Ok(cache)
}
