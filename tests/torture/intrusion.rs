//! Others who can write where a cache is to be: what they prepare must never be used.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use kiln::cache::DiskCache;

use crate::work::BUDGET_BYTES;
use crate::{Context, Outcome, sample};

/// A user that is not this one.
const STRANGER: u32 = 54321;

/// Links and folders as a stranger leaves them in a shared folder such as `/tmp`.
pub fn links_and_foreign_folders(context: &Context) -> Outcome {
    let mut outcome = Outcome::default();
    let shared = context.folder.join("shared");
    fs::create_dir(&shared).expect("own folder");
    mode(&shared, 0o1777);
    let mut refused = 0;
    let mut refuse = |outcome: &mut Outcome, what: &str, folder: &Path| {
        let is_refused = DiskCache::open(folder, BUDGET_BYTES).is_none();
        outcome.expect(is_refused, || format!("{what}: it is used"));
        refused += u64::from(is_refused);
    };
    let make = |name: &str, mode_bits: u32| {
        let folder = shared.join(name);
        fs::create_dir(&folder).expect("own folder");
        mode(&folder, mode_bits);
        folder
    };
    refuse(&mut outcome, "writable by all", &make("all", 0o777));
    refuse(&mut outcome, "writable by a group", &make("group", 0o770));
    let unsafe_parent = make("unsafe", 0o777);
    refuse(&mut outcome, "in a folder without sticky bit", &unsafe_parent.join("cache"));
    let dangling = shared.join("dangling");
    symlink(shared.join("nowhere"), &dangling).expect("own folder");
    refuse(&mut outcome, "a link to nothing", &dangling);
    let open_to_all = shared.join("to-all");
    symlink(shared.join("all"), &open_to_all).expect("own folder");
    refuse(&mut outcome, "a link to a folder writable by all", &open_to_all);

    // As root, strangers can be played.
    let foreign = make("foreign", 0o755);
    if let Err(error) = chown(&foreign, Some(STRANGER), None) {
        outcome.skipped.push(format!("folders of other users: {error}"));
    } else {
        refuse(&mut outcome, "a folder of another user", &foreign);
        refuse(&mut outcome, "below a folder of another user", &foreign.join("cache"));
        let own = make("own", 0o700);
        let link = shared.join("foreign-link");
        symlink(&own, &link).and_then(|()| lchown(&link, Some(STRANGER), None)).expect("root");
        refuse(&mut outcome, "another user's link to an own folder", &link);
        let to_foreign = shared.join("to-foreign");
        symlink(&foreign, &to_foreign).expect("own folder");
        refuse(&mut outcome, "an own link to a folder of another user", &to_foreign);
    }
    outcome.figure("traps refused", refused);
    own_folder(&shared.join("mine/cache"), &mut outcome);
    link_that_changes(&shared, &mut outcome);
    links_instead_of_files(context, &mut outcome);
    outcome
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).expect("own folder");
}

/// A private folder that this user makes in a shared one is safe.
fn own_folder(folder: &Path, outcome: &mut Outcome) {
    let cache = DiskCache::open(folder, BUDGET_BYTES);
    outcome.expect(cache.is_some(), || "an own folder in a shared one is refused".to_owned());
}

/// A link that points elsewhere once the cache is open leads nowhere else.
fn link_that_changes(shared: &Path, outcome: &mut Outcome) {
    let (before, after, link) = (shared.join("before"), shared.join("after"), shared.join("link"));
    for folder in [&before, &after] {
        fs::create_dir(folder).expect("own folder");
        mode(folder, 0o700);
    }
    symlink(&before, &link).expect("own folder");
    let cache = DiskCache::open(&link, BUDGET_BYTES).expect("own link to an own folder");
    fs::remove_file(&link).and_then(|()| symlink(&after, &link)).expect("own folder");
    cache.put(sample::key(0), &sample::entry(0, 0));
    drop(cache);
    let astray = fs::read_dir(&after).expect("own folder").count();
    outcome.expect(astray == 0, || format!("{astray} files follow the changed link"));
}

/// Links in the places of files: nothing is written or removed through them.
fn links_instead_of_files(context: &Context, outcome: &mut Outcome) {
    let precious = context.folder.join("precious");
    fs::write(&precious, b"precious").expect("own folder");
    let folder = context.folder.join("linked");
    let cache = DiskCache::open(&folder, BUDGET_BYTES).expect("own folder");
    let key = sample::key(0);
    cache.put(key, &sample::entry(0, 0));
    fs::create_dir_all(folder.join("locks")).expect("own folder");
    let entry = cache.path_of(key);
    fs::remove_file(&entry).expect("own file");
    let lock = folder.join("locks").join(key.to_hex());
    let mut links = vec![entry, lock];
    links.extend(["gc.lock", "stats.lock", "stats.json"].map(|name| folder.join(name)));
    for link in &links {
        let _ = fs::remove_file(link);
        symlink(&precious, link).expect("own folder");
    }
    outcome.expect(cache.get(key).is_none(), || "a link to another file is an entry".to_owned());
    drop(cache.lock(key));
    symlink(&precious, cache.path_of(key)).expect("the link was removed");
    cache.put(key, &sample::entry(0, 0));
    cache.collect(0);
    drop(cache);
    let kept = fs::read(&precious).is_ok_and(|bytes| bytes == b"precious");
    outcome.expect(kept, || "a file was changed through a link".to_owned());
    outcome.figure("links instead of files", links.len() as u64);
}
