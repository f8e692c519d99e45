//! A disk that is soon full.

use anyhow::Context;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::path::Path;
use tempfile::TempDir;

/// A file system of its own, a few hundred kibibytes large, unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
    kibibytes: u32,
}

impl SmallDisk {
    /// Mounts one.
    ///
    /// # Errors
    /// Mounting needs root.
    pub fn mount(kibibytes: u32) -> anyhow::Result<Self> {
        let disk = Self { folder: tempfile::tempdir().context("failed to make the mount point")?, kibibytes };
        disk.mount_with(MsFlags::empty()).context(
            "failed to mount a tmpfs; run this suite as root: sudo -E cargo test -p penstock-tests --test suites local_disk_full",
        )?;
        Ok(disk)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Lets nobody write to it anymore.
    ///
    /// # Errors
    /// Somebody has a file open for writing.
    pub fn make_read_only(&self) -> anyhow::Result<()> {
        self.mount_with(MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY).context("failed to mount the tmpfs read-only")
    }

    fn mount_with(&self, flags: MsFlags) -> nix::Result<()> {
        let size = format!("size={}k", self.kibibytes);
        mount(Some("tmpfs"), self.path(), Some("tmpfs"), flags, Some(size.as_str()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // a test that failed may still have files open: the mount goes with the last of them
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}
