//! Open folder handles: files are accessed relative to the handle, whatever happens to its path,
//! and symbolic links are not followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, renameat, statat,
    unlinkat,
};

/// Flags of every open: close on exec, no links, non-blocking.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// Metadata of a file, read without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) is_file: bool,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
    inode: u64,
}

impl Status {
    fn of(stat: &Stat) -> Status {
        let since = Duration::new(stat.st_mtime as u64, stat.st_mtime_nsec as u32);
        Status {
            is_file: FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile,
            bytes: stat.st_size as u64,
            // A date before 1970 counts as the epoch.
            modified: if stat.st_mtime < 0 { UNIX_EPOCH } else { UNIX_EPOCH + since },
            inode: stat.st_ino,
        }
    }
}

/// An open folder.
#[derive(Debug)]
pub struct Held {
    handle: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl Held {
    /// Opens a folder; symbolic links in its path are followed.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: &Path) -> io::Result<Held> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, path, flags, Mode::empty())?;
        Ok(Held { handle, path: path.to_owned() })
    }

    /// Duplicates the handle.
    ///
    /// # Errors
    /// Those of the operating system: too many open files.
    pub fn again(&self) -> io::Result<Held> {
        Ok(Held { handle: self.handle.try_clone()?, path: self.path.clone() })
    }

    /// Path at the time of opening.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a subfolder.
    ///
    /// # Errors
    /// Those of the operating system: the name does not exist, or is a link or a file.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Held> {
        let name = name.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let handle = openat(&self.handle, name, flags, Mode::empty())?;
        Ok(Held { handle, path: self.path.join(name) })
    }

    /// Opens a subfolder, creating it with this mode if missing.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn made(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Held> {
        match mkdirat(&self.handle, name.as_ref(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.folder(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Checks that the folder belongs to this user and is not writable by others.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode.
    pub fn private(self) -> io::Result<Held> {
        check(&self.handle, FileType::Directory, &self.path)?;
        Ok(self)
    }

    /// Opens a file for reading that only this user can write.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode; those of the operating system.
    pub fn private_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let file = openat(&self.handle, name, OFlags::RDONLY | ALWAYS, Mode::empty())?;
        check(&file, FileType::RegularFile, &self.path.join(name))?;
        Ok(file.into())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// Those of the operating system: the name does not exist, or is a link.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | ALWAYS;
        Ok(openat(&self.handle, name.as_ref(), flags, Mode::empty())?.into())
    }

    /// Names in this folder; empty if it cannot be read.
    pub(super) fn names(&self) -> Vec<OsString> {
        let entries = Dir::read_from(&self.handle).into_iter().flatten().flatten();
        let names = entries.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec()));
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// Metadata of a name; links are not followed.
    ///
    /// # Errors
    /// Those of the operating system: the name does not exist.
    pub(super) fn status(&self, name: impl AsRef<OsStr>) -> io::Result<Status> {
        Ok(Status::of(&statat(&self.handle, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Whether an open file still has this name.
    pub(super) fn is_called(&self, file: &File, name: impl AsRef<OsStr>) -> bool {
        let own = fstat(file).map(|stat| Status::of(&stat).inode);
        own.is_ok_and(|own| self.status(name).is_ok_and(|status| status.inode == own))
    }

    /// Opens a file for locking or touching, creating an empty one if missing.
    ///
    /// # Errors
    /// Those of the operating system: the name is a link, or the folder is read-only.
    pub(super) fn file_for_locks(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | ALWAYS;
        let mode = Mode::from_raw_mode(0o600);
        Ok(openat(&self.handle, name.as_ref(), flags, mode)?.into())
    }

    /// Creates a file for writing with a random name that starts with `prefix`; returns both.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn named_anew(&self, prefix: &str) -> io::Result<(String, File)> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let name = format!("{prefix}{:016x}", u64::from_le_bytes(random));
        let file = self.created(OsStr::new(&name), 0o600)?;
        Ok((name, file))
    }

    /// Updates the modification time of a file.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(super) fn touch(&self, name: impl AsRef<OsStr>, now: SystemTime) -> io::Result<()> {
        let flags = OFlags::WRONLY | ALWAYS;
        let file: File = openat(&self.handle, name.as_ref(), flags, Mode::empty())?.into();
        file.set_modified(now)
    }

    /// Writes a new file. An existing file or link of that name is removed, not written through.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn put(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = name.as_ref();
        self.remove(name)?;
        self.created(name, mode)?.write_all(bytes)
    }

    /// Writes a file atomically, flushed to disk: readers see the previous one, none, or all of the
    /// new one.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn put_whole(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let (temporary, mut file) = self.named_anew(".tmp-")?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let moved = written
            .and_then(|()| Ok(renameat(&self.handle, &temporary, &self.handle, name.as_ref())?));
        if moved.is_err() {
            // A leftover is removed by the cache's collector.
            let _ = self.remove(&temporary);
        }
        moved
    }

    /// Removes a file or link, if it exists.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match unlinkat(&self.handle, name.as_ref(), AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn created(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ALWAYS;
        Ok(openat(&self.handle, name, flags, Mode::from_raw_mode(mode))?.into())
    }
}

/// Checks the type of a file, and that only this user or root can write it.
fn check(handle: &OwnedFd, kind: FileType, path: &Path) -> io::Result<()> {
    let found = fstat(handle)?;
    let (owner, mode) = (found.st_uid, found.st_mode);
    let own = [0, rustix::process::geteuid().as_raw()].contains(&owner);
    if own && mode & 0o022 == 0 && FileType::from_raw_mode(mode) == kind {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("`{shown}` belongs to uid {owner} with mode {:o}", mode & 0o7777);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("own file");
    }

    #[test]
    fn links_and_what_others_write_are_refused() {
        let root = tempfile::tempdir().expect("temporary folder");
        let held = Held::open(root.path()).expect("there");
        let inner = held.made("inner", 0o700).expect("writable").private().expect("own");
        inner.put_whole("file", b"right").expect("writable");
        inner.private_file("file").expect("own");
        let path = root.path().join("inner/file");
        mode(&path, 0o666);
        let text = inner.private_file("file").expect_err("anyone's").to_string();
        assert!(text.ends_with("with mode 666"), "{text}");
        mode(&root.path().join("inner"), 0o777);
        assert!(held.folder("inner").expect("there").private().is_err());
        symlink(root.path().join("inner"), root.path().join("link")).expect("writable");
        symlink(&path, root.path().join("inner/link")).expect("writable");
        assert!(held.folder("link").is_err() && held.made("link", 0o700).is_err());
        assert!(inner.private_file("link").is_err() && inner.file("link").is_err());
        // Replacing a link does not affect its target.
        inner.put("link", b"new", 0o644).expect("writable");
        assert_eq!(fs::read(&path).expect("there"), b"right");
        assert_eq!(fs::read(root.path().join("inner/link")).expect("there"), b"new");
    }

    #[test]
    fn a_held_folder_is_the_same_wherever_it_is_moved() {
        let root = tempfile::tempdir().expect("temporary folder");
        let [here, there] = ["here", "there"].map(|name| root.path().join(name));
        fs::create_dir(&here).expect("writable");
        let held = Held::open(&here).expect("there");
        fs::rename(&here, &there).expect("writable");
        fs::create_dir(&here).expect("writable");
        held.put_whole("file", b"").expect("writable");
        assert!(there.join("file").exists() && !here.join("file").exists());
        assert_eq!(held.names(), ["file"], "nothing temporary is left");
        assert!(held.status("file").expect("there").is_file);
    }

    #[test]
    fn locks_and_dates_follow_no_link() {
        let root = tempfile::tempdir().expect("temporary folder");
        let held = Held::open(root.path()).expect("there");
        let file = held.file_for_locks("file").expect("writable");
        assert!(held.is_called(&file, "file") && !held.is_called(&file, "other"));
        let dated = held.status("file").expect("there");
        for (name, target) in [("link", "file"), ("dangling", "nowhere")] {
            symlink(root.path().join(target), root.path().join(name)).expect("writable");
            assert!(held.file_for_locks(name).is_err());
            assert!(held.touch(name, UNIX_EPOCH).is_err());
            assert!(!held.status(name).expect("there").is_file);
        }
        assert_eq!(held.status("file").expect("there"), dated);
        held.touch("file", UNIX_EPOCH).expect("own file");
        assert_eq!(held.status("file").expect("there").modified, UNIX_EPOCH);
        held.remove("file").and_then(|()| held.put_whole("file", b"")).expect("writable");
        assert!(!held.is_called(&file, "file"), "it is another file");
    }
}
