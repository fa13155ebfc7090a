//! File systems and users that refuse: each in a namespace of its own, where the kernel allows one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kiln::cache::DiskCache;
use kiln::device::DeviceChoice;
use kiln::{Config, Kiln};

use crate::work::{self, BUDGET_BYTES};
use crate::{Context, Outcome, sample};

/// Entries that are tried on a small disk; two of them do not fit together.
const ENTRIES: u64 = 60;

/// Runs a role below `unshare` with these options.
fn unshared(options: &[&str], role: &str, context: &Context, environment: &[&str]) -> Outcome {
    let skip = |text: String| Outcome { skipped: vec![text], ..Outcome::default() };
    let probe = Command::new("unshare").args(options).arg("true").output();
    match probe {
        Ok(Output { status, .. }) if status.success() => {}
        Ok(Output { stderr, .. }) => {
            return skip(String::from_utf8_lossy(&stderr).trim().to_owned());
        }
        Err(error) => return skip(format!("failed to start unshare: {error}")),
    }
    let child = work::command(role, &context.folder, context.seed);
    let output = Command::new("unshare")
        .args(options)
        .args(["env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "KILN_CACHE_DIR"])
        .args(environment)
        .arg(child.get_program())
        .args(child.get_args())
        .output()
        .expect("unshare has just run");
    let text = String::from_utf8_lossy(&output.stdout);
    let Ok(outcome) = serde_json::from_str::<Outcome>(&text) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        let failure = format!("the child ended with {}: {}", output.status, errors.trim());
        return Outcome { failures: vec![failure], ..Outcome::default() };
    };
    outcome
}

fn mount(arguments: &[&str], folder: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(folder).output();
    let output = output.map_err(|error| format!("failed to start mount: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// A file system in memory that ends before the entries do.
pub fn disk_full(context: &Context) -> Outcome {
    unshared(&["--map-root-user", "--mount"], "disk-full", context, &[])
}

pub fn inside_full(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(text) = mount(&["-t", "tmpfs", "-o", "size=512k,mode=0700", "tmpfs"], folder) {
        outcome.skipped.push(text);
        return outcome;
    }
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 200 << 10]).expect("there is room for this");
    let folder = folder.join("cache");
    // Three processes meet the full disk; none may notice more than misses.
    for _ in 0..3 {
        let cache = DiskCache::open(&folder, BUDGET_BYTES).expect("own folder");
        for number in 0..ENTRIES {
            let _turn = cache.lock(sample::key(number));
            cache.put(sample::key(number), &sample::entry(number, 0));
            cache.keep(sample::key(number));
            let right = cache.get(sample::key(number));
            let right = right.is_none_or(|image| sample::is_right(number, &image));
            outcome.expect(right, || format!("number {number} has another image"));
        }
        let counts = cache.counts();
        let reasons: Vec<&String> = counts.misses.keys().collect();
        outcome.expect(reasons == ["absent"], || format!("misses for {reasons:?}"));
    }
    let found = work::check_all(&folder, &mut outcome);
    outcome.expect((1..ENTRIES).contains(&found), || format!("{found} entries fit"));
    outcome.figure("operations", 3 * 4 * ENTRIES);
    outcome.figure("entries that fit", found);
    let files: Vec<PathBuf> = work::temporary(&folder).collect();
    outcome.expect(files.is_empty(), || format!("left behind: {files:?}"));
    // There is room again: the next process writes again.
    fs::remove_file(ballast).expect("own file");
    let cache = DiskCache::open(&folder, BUDGET_BYTES).expect("own folder");
    (0..ENTRIES).for_each(|number| cache.put(sample::key(number), &sample::entry(number, 0)));
    let more = work::check_all(&folder, &mut outcome);
    outcome.expect(more > found, || "nothing is written when there is room again".to_owned());
    outcome.figure("with room again", more);
    outcome
}

/// A filled folder on a file system that takes no writes.
pub fn read_only(context: &Context) -> Outcome {
    unshared(&["--map-root-user", "--mount"], "read-only", context, &[])
}

pub fn inside_read_only(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let mounted = mount(&["-t", "tmpfs", "-o", "size=16m,mode=0700", "tmpfs"], folder);
    let cache_folder = folder.join("cache");
    let filled = mounted.map(|()| {
        let cache = DiskCache::open(&cache_folder, BUDGET_BYTES).expect("own folder");
        (0..ENTRIES).for_each(|number| cache.put(sample::key(number), &sample::entry(number, 0)));
    });
    if let Err(text) =
        filled.and_then(|()| mount(&["-t", "tmpfs", "-o", "remount,ro", "tmpfs"], folder))
    {
        outcome.skipped.push(text);
        return outcome;
    }
    let cache = DiskCache::open(&cache_folder, BUDGET_BYTES);
    outcome.expect(cache.is_some(), || "a read-only folder is refused".to_owned());
    let Some(cache) = cache else { return outcome };
    for number in 0..2 * ENTRIES {
        let key = sample::key(number);
        let found = cache.get(key);
        let right = found.as_ref().is_some_and(|image| sample::is_right(number, image));
        outcome.expect(right == (number < ENTRIES), || format!("number {number}: {right}"));
        drop(cache.lock(key));
        cache.put(key, &sample::entry(number, 1));
        cache.keep(key);
    }
    cache.reject(sample::key(0), "device", "it can not be removed");
    outcome.expect(cache.collect(0).is_none(), || "a read-only folder was collected".to_owned());
    outcome.figure("operations", 2 * 4 * ENTRIES + 2);
    outcome.figure("entries read", cache.counts().hits);
    outcome
}

/// No variable says where a cache may be, and the user has no name; nor may it write anywhere.
pub fn nobody(context: &Context) -> Outcome {
    // The user below is another one outside of this namespace.
    fs::set_permissions(&context.folder, fs::Permissions::from_mode(0o755)).expect("own folder");
    unshared(&["--user", "--map-user=54321", "--map-group=54321"], "nobody", context, &[])
}

pub fn inside_nobody(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let device = Some(DeviceChoice::Null("sim".to_owned()));
    let opened = Kiln::open(Config { device: device.clone(), ..Config::default() });
    let memory_only = opened.is_ok_and(|kiln| kiln.disk_cache().is_none());
    outcome.expect(memory_only, || "without HOME a Kiln does not open in memory only".to_owned());
    // The folder belongs to this user, if under another number outside.
    let cache_dir = Some(folder.join("cache"));
    let kiln = Kiln::open(Config { cache_dir, device, ..Config::default() });
    outcome.expect(kiln.is_ok(), || "a user without a name opens no Kiln".to_owned());
    let user = fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own));
    outcome.expect(matches!(user, Ok(54321)), || format!("the user is {user:?}"));
    if let Ok(kiln) = &kiln
        && let Some(disk) = kiln.disk_cache()
    {
        disk.put(sample::key(0), &sample::entry(0, 0));
        let found = disk.get(sample::key(0));
        outcome.expect(found == Some(sample::image(0, 0)), || "an entry is not kept".to_owned());
        outcome.figure("entries kept", 1);
    } else {
        outcome.failures.push("a folder of its own is refused".to_owned());
    }
    outcome.figure("Kilns opened", 2);
    // A folder of its own that it has forbidden itself to write into.
    let locked = folder.join("locked");
    fs::create_dir(&locked).expect("own folder");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).expect("own folder");
    let below = DiskCache::open(&locked.join("cache"), BUDGET_BYTES);
    outcome.expect(below.is_none(), || "a folder that can not be made is used".to_owned());
    let cache = DiskCache::open(&locked, BUDGET_BYTES).expect("own private folder");
    for number in 0..ENTRIES {
        cache.put(sample::key(number), &sample::entry(number, 0));
        let found = cache.get(sample::key(number));
        outcome.expect(found.is_none(), || "an entry was written".to_owned());
    }
    outcome.figure("calls on a folder that takes no writes", 2 * ENTRIES);
    drop(cache);
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).expect("own folder");
    outcome
}
