//! Folders that are held open: what is in them is found relative to them, whatever becomes of
//! their paths, and no link is followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat,
};

/// What every open has: nothing leaves the process, nothing is a link, nothing waits.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// An open folder.
#[derive(Debug)]
pub struct Held {
    handle: OwnedFd,
    /// For texts.
    path: PathBuf,
}

impl Held {
    /// Opens a folder; links on the way to it are followed.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: &Path) -> io::Result<Held> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, path, flags, Mode::empty())?;
        Ok(Held { handle, path: path.to_owned() })
    }

    /// A folder in this one.
    ///
    /// # Errors
    /// Those of the operating system: it is not there, or it is a link or a file.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Held> {
        let name = name.as_ref();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | ALWAYS;
        let handle = openat(&self.handle, name, flags, Mode::empty())?;
        Ok(Held { handle, path: self.path.join(name) })
    }

    /// The same, made with this mode where there is none.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn made(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Held> {
        match mkdirat(&self.handle, name.as_ref(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.folder(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses a folder of someone else, or one that others may write.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode.
    pub fn private(self) -> io::Result<Held> {
        check(&self.handle, FileType::Directory, &self.path)?;
        Ok(self)
    }

    /// A file in this folder that nobody else can have written.
    ///
    /// # Errors
    /// `PermissionDenied` with owner and mode; those of the operating system.
    pub fn private_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let name = name.as_ref();
        let file = openat(&self.handle, name, OFlags::RDONLY | ALWAYS, Mode::empty())?;
        check(&file, FileType::RegularFile, &self.path.join(name))?;
        Ok(file.into())
    }

    /// A file in this folder, to be read.
    ///
    /// # Errors
    /// Those of the operating system: it is not there, or it is a link.
    pub fn file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDONLY | ALWAYS;
        Ok(openat(&self.handle, name.as_ref(), flags, Mode::empty())?.into())
    }

    /// Puts a new file in this folder. One of that name, or a link, gives way: it is not written
    /// through.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn put(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = name.as_ref();
        self.remove(name)?;
        self.created(name, mode)?.write_all(bytes)
    }

    /// Puts a file in this folder, flushed to disk, so that readers see the one before, none, or
    /// all of this one.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn put_whole(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
        let temporary = format!(".tmp-{:016x}", u64::from_le_bytes(random));
        let mut file = self.created(OsStr::new(&temporary), 0o600)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let moved = written
            .and_then(|()| Ok(renameat(&self.handle, &temporary, &self.handle, name.as_ref())?));
        if moved.is_err() {
            // What is left is removed by the collector of a cache.
            let _ = self.remove(&temporary);
        }
        moved
    }

    /// Removes a file or a link, if there is one.
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

/// Whether something is of its kind and written by this user, or root, alone.
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
        // What is put in a link's place does not reach what it pointed to.
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
        assert_eq!(fs::read_dir(&there).expect("there").count(), 1, "nothing temporary is left");
    }
}
