//! Checks that only this user can write a folder: whoever writes into a cache chooses the code that
//! its readers run.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Creates a folder and its parents with mode 0700; an existing folder is not changed.
pub(super) fn create_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates or opens a folder and returns its canonical path, which must be used from then on
/// because links may change.
///
/// # Errors
/// A message if the folder cannot be created, belongs to another user, or can be written or
/// replaced by others.
pub(super) fn open_private(folder: &Path) -> Result<PathBuf, String> {
    let shown = folder.display();
    create_private(folder)
        .map_err(|error| format!("failed to create cache folder `{shown}`: {error}"))?;
    let unreadable = |error: io::Error| format!("failed to read cache folder `{shown}`: {error}");
    let link = fs::symlink_metadata(folder).map_err(unreadable)?;
    let path = folder.canonicalize().map_err(unreadable)?;
    let own = fs::metadata(&path).map_err(unreadable)?;
    for metadata in [&link, &own] {
        let (owner, mode) = (metadata.uid(), metadata.mode());
        let others_write = mode & 0o022 != 0 && !metadata.is_symlink();
        if owner != user() || others_write {
            return Err(format!(
                "cache folder `{shown}` belongs to uid {owner} with mode {:o}; it must be yours \
                 and writable by nobody else",
                mode & 0o777
            ));
        }
    }
    for (inner, outer) in path.ancestors().zip(path.ancestors().skip(1)) {
        let metadata = (fs::metadata(inner), fs::metadata(outer));
        let (inside, outside) = (metadata.0.map_err(unreadable)?, metadata.1.map_err(unreadable)?);
        if is_replaceable(&inside, &outside) {
            return Err(format!(
                "cache folder `{shown}` can be replaced by others: `{}` belongs to uid {}, and \
                 `{}` to uid {}, gid {} with mode {:o}",
                inner.display(),
                inside.uid(),
                outer.display(),
                outside.uid(),
                outside.gid(),
                outside.mode() & 0o7777
            ));
        }
    }
    Ok(path)
}

/// Whether others can replace a folder: its parent belongs to another user or is writable by
/// others, and lacks the sticky bit or the folder belongs to another user.
fn is_replaceable(folder: &Metadata, parent: &Metadata) -> bool {
    let trusted = |of: &Metadata| [0, user()].contains(&of.uid());
    let mode = parent.mode();
    let others_write = mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_own_group(parent.gid()));
    !trusted(parent) || (others_write && !(mode & 0o1000 != 0 && trusted(folder)))
}

/// Whether a group is this user's private group, as many systems create with a group-writable
/// umask: it has the user's name and no other members.
fn is_own_group(group: u32) -> bool {
    let [groups, users] = ["/etc/group", "/etc/passwd"].map(fs::read_to_string);
    let (groups, users) = (groups.unwrap_or_default(), users.unwrap_or_default());
    is_group_of_one(group, user(), &groups, &users)
}

/// As [`is_own_group`], given the contents of `/etc/group` and `/etc/passwd`.
fn is_group_of_one(group: u32, user: u32, groups: &str, users: &str) -> bool {
    fn fields(line: &str) -> Option<[&str; 4]> {
        let mut fields = line.split(':');
        Some([fields.next()?, fields.next()?, fields.next()?, fields.next()?])
    }
    let is = |text: &str, id: u32| text.parse() == Ok(id);
    let users: Vec<[&str; 4]> = users.lines().filter_map(fields).collect();
    let own = |wanted: &str| users.iter().any(|[name, _, id, _]| *name == wanted && is(id, user));
    let begins = |[_, _, id, first]: &[&str; 4]| !is(id, user) && is(first, group);
    let found = groups.lines().filter_map(fields).find(|[_, _, id, _]| is(id, group));
    found.is_some_and(|[name, _, _, members]| {
        let mut members = members.split(',').filter(|member| !member.is_empty());
        own(name) && members.all(own) && !users.iter().any(begins)
    })
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    #[test]
    fn a_folder_that_others_can_replace_is_refused() {
        let parent = tempfile::tempdir().expect("temporary folder");
        let open = parent.path().join("open");
        fs::create_dir(&open).expect("writable");
        let with_mode = |mode| {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).expect("own folder");
            open_private(&open.join("made/cache"))
        };
        let text = with_mode(0o777).expect_err("replaceable");
        assert!(text.contains("can be replaced by others: `") && text.ends_with("777"), "{text}");
        for mode in [0o1777, 0o1775, 0o755, 0o700] {
            let path = with_mode(mode).expect("private");
            assert_eq!(fs::metadata(path).expect("there").mode() & 0o777, 0o700);
        }
        // Only root can assign a folder to a group without being a member.
        if chown(&open, None, Some(65_533)).is_ok() {
            let text = with_mode(0o775).expect_err("replaceable by the group");
            assert!(text.ends_with("gid 65533 with mode 775"), "{text}");
            with_mode(0o1775).expect("sticky");
        }
    }

    #[test]
    fn groups_of_one_are_no_others() {
        let users = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/:\nbob:x:1001:1001::/:\n";
        let own = |groups: &str, users: &str| is_group_of_one(1000, 1000, groups, users);
        assert!(own("root:x:0:\nann:x:1000:\n", users));
        assert!(own("ann:x:1000:ann\n", users));
        for (groups, users) in [
            ("", users),
            ("ann:x:1000", users),
            ("ann:x:1001:\n", users),
            // A group name may be a prefix of other users' names.
            ("staff:x:1000:\n", users),
            ("ann:x:1000:bob\n", users),
            ("ann:x:1000:ann,bob\n", users),
            ("ann:x:1000:nobody-knows\n", users),
            ("ann:x:1000:\n", ""),
            ("ann:x:1000:\n", "ann:x:1000:1000::/:\ncarl:x:1002:1000::/:\n"),
        ] {
            assert!(!own(groups, users), "{groups:?} {users:?}");
        }
    }

    #[test]
    fn links_are_followed_once() {
        let parent = tempfile::tempdir().expect("temporary folder");
        let parent = parent.path().canonicalize().expect("there");
        let (target, link) = (parent.join("target"), parent.join("link"));
        create_private(&target).expect("writable");
        symlink(&target, &link).expect("writable");
        assert_eq!(open_private(&link), Ok(target));
        symlink(parent.join("nowhere"), parent.join("dangling")).expect("writable");
        assert!(open_private(&parent.join("dangling")).is_err());
    }
}
