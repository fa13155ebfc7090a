//! Signed packs that someone has tampered with: whatever was done to them, either they are refused
//! or everything in them is what was signed. `KILN_TAMPERS` says how many are tried.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use kiln::cache::{Entry, Key, Pack, PackItem, PackSigner, Trust, TrustRoot, Validity};
use kiln::compile::Image;
use kiln::plan::{Manifest, catalog};
use kiln::target::Target;
use kiln::{Config, ErrorKind, Kiln};

use crate::dump::dumped;
use crate::{cli, harness};

/// A signature's bytes at the end of a pack.
const TRAILER_BYTES: usize = 120;

fn manifest() -> Manifest {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/pointwise.toml");
    let mut manifest = Manifest::read(Path::new(path)).unwrap();
    let problem = &mut manifest.problems[0];
    problem.vary.insert("tokens".to_owned(), vec![1.into()]);
    problem.vary.insert("hidden".to_owned(), vec![64.into()]);
    manifest
}

fn simulator(config: Config) -> Kiln {
    Kiln::open(Config { device: Some("sim".parse().unwrap()), ..config }).unwrap()
}

fn built(folder: &Path) -> PathBuf {
    let path = folder.join("a.kilnpack");
    let kiln = simulator(harness::config());
    kiln.build_pack(&manifest(), &Target::sim(), (0, 1), &path, |_| {}).unwrap();
    path
}

fn trusting(root: TrustRoot) -> Trust {
    Trust { roots: vec![root], ..Trust::default() }
}

fn entries(pack: &Pack) -> BTreeMap<Key, Entry> {
    pack.keys().map(|key| (key, pack.get(key).unwrap().unwrap())).collect()
}

/// The pack with one image replaced, and all digests that need no signature made right.
fn swapped(pack: &Pack, key: Key, change: impl Fn(Image) -> Image, to: &Path) -> Pack {
    let mut items = pack.items().unwrap();
    let entry = pack.get(key).unwrap().unwrap();
    let image = change(entry.image);
    let item: &mut PackItem = items.iter_mut().find(|item| item.key == key).unwrap();
    item.entry = Entry::encode(&entry.request, &image, entry.compile);
    Pack::write(to, pack.arch(), pack.toolchain(), items, &pack.catalog().unwrap()).unwrap();
    Pack::open(to).unwrap()
}

#[test]
fn tampered_packs_are_refused_or_whole() {
    let count = std::env::var("KILN_TAMPERS").map_or(300, |count| count.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = built(folder.path());
    let [signer, other] = [(); 2].map(|()| PackSigner::generate().unwrap());
    let later = SystemTime::now() + Duration::from_secs(86_400);
    let validity = Validity { version: 7, expires: Some(later) };
    Pack::sign(&path, &other, validity).unwrap();
    let others = fs::read(&path).unwrap();
    Pack::sign(&path, &signer, validity).unwrap();
    let (sound, expected) = (fs::read(&path).unwrap(), entries(&Pack::open(&path).unwrap()));
    let lines = Pack::open(&path).unwrap().catalog().unwrap();
    let trust = Trust { version_min: 7, expiry: true, ..trusting(signer.root()) };
    let (mut random, mut outcomes) = (fastrand::Rng::with_seed(19), BTreeMap::new());
    for number in 0..count {
        let mut bytes = sound.clone();
        let signature = sound.len() - TRAILER_BYTES;
        let what = match number % 8 {
            0 => flip(&mut bytes, random.usize(..sound.len()), "a bit"),
            1 => flip(&mut bytes, random.usize(..1000), "a bit of the head"),
            2 => flip(&mut bytes, random.usize(signature..sound.len()), "a bit of the signature"),
            3 => {
                bytes.truncate(random.usize(..sound.len()));
                "an end cut off"
            }
            4 => {
                bytes.truncate(sound.len() - random.usize(1..=TRAILER_BYTES));
                "the signature cut short"
            }
            5 => {
                // Version or expiry, to what the attacker likes.
                let at = signature + 40 + 8 * random.usize(..2);
                bytes[at..][..8].copy_from_slice(&random.u64(8..1 << 40).to_le_bytes());
                "another version or expiry"
            }
            6 => {
                bytes[signature..].copy_from_slice(&others[signature..]);
                "another's signature"
            }
            _ => {
                let from = random.usize(..signature);
                let length = random.usize(1..64).min(signature - from);
                let to = random.usize(..signature - length);
                bytes.copy_within(from..from + length, to);
                "bytes moved"
            }
        };
        let opened = Pack::embedded(bytes, "tampered");
        let refused = opened.and_then(|pack| pack.require_trust(&trust).map(|()| pack));
        let outcome = match refused {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
                "refused"
            }
            Ok(pack) => {
                for (key, entry) in &expected {
                    if let Ok(found) = pack.get(*key) {
                        assert_eq!(found.as_ref(), Some(entry), "{number}: {what}");
                    }
                }
                assert!(pack.keys().eq(expected.keys().copied()), "{number}: {what}");
                assert!(pack.catalog().map_or(true, |found| found == lines), "{number}: {what}");
                "whole where it is read"
            }
        };
        *outcomes.entry((what, outcome)).or_insert(0) += 1;
    }
    println!("{count} tampered packs of {} bytes:", sound.len());
    outcomes.iter().for_each(|((what, how), count)| println!("  {what:26} {how:24} {count}"));
}

fn flip(bytes: &mut [u8], at: usize, what: &'static str) -> &'static str {
    bytes[at] ^= 1 << (at % 8);
    what
}

#[test]
fn a_cubin_of_other_code_is_found_without_a_signature() {
    let folder = tempfile::tempdir().unwrap();
    let path = built(folder.path());
    let (pack, to) = (Pack::open(&path).unwrap(), folder.path().join("forged.kilnpack"));
    let kiln = simulator(harness::config());
    let sound = kiln.verify_pack(&pack).unwrap();
    assert_eq!((sound.problems, sound.rebuilt), (vec![], pack.len()));
    let keys: Vec<Key> = pack.keys().collect();
    let other = pack.get(keys[1]).unwrap().unwrap().image.cubin;
    let swap = |image: Image| Image { cubin: other.clone(), ..image };
    // The canary runs the PTX, which is right.
    let forged = swapped(&pack, keys[0], swap, &to);
    let verified = kiln.verify_pack(&forged).unwrap();
    assert_eq!(verified.canaries, pack.len());
    let has = |text: &str| verified.problems.iter().any(|problem| problem.ends_with(text));
    assert!(has("it is not what was packed"), "{:?}", verified.problems);
    assert!(has("its source gives another cubin"), "{:?}", verified.problems);
    // Nor does a catalog help that was made for it.
    let line = |mut line: kiln::plan::CatalogLine| {
        if line.key == keys[0].to_hex() {
            line.code.cubin = blake3::hash(&other).to_hex().to_string();
        }
        line
    };
    let lines: Vec<_> = catalog(&forged).unwrap().into_iter().map(line).collect();
    let (items, lines) = (forged.items().unwrap(), serde_json::to_string(&lines).unwrap());
    Pack::write(&to, pack.arch(), pack.toolchain(), items, &lines).unwrap();
    let problems = kiln.verify_pack(&Pack::open(&to).unwrap()).unwrap().problems;
    assert!(matches!(&problems[..], [one] if one.ends_with("another cubin")), "{problems:?}");
}

#[test]
fn signatures_end_and_grow_old() {
    let folder = tempfile::tempdir().unwrap();
    let path = built(folder.path());
    let signer = PackSigner::generate().unwrap();
    let check = |validity: Validity, trust: &Trust| {
        Pack::sign(&path, &signer, validity).unwrap();
        let checked = Pack::open(&path).unwrap().require_trust(trust);
        checked.map_err(|error| error.to_string().rsplit_once(": ").unwrap().1.to_owned())
    };
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let of = |version: u64, expires: Option<SystemTime>| Validity { version, expires };
    let any = trusting(signer.root());
    assert_eq!(check(of(0, None), &any), Ok(()));
    assert_eq!(check(of(0, Some(now + day)), &any), Ok(()));
    let past = check(of(0, Some(now - 3 * day)), &any);
    assert_eq!(past, Err("it expired 3 days ago".to_owned()));
    let strict = Trust { version_min: 4, expiry: true, ..any };
    let old = check(of(3, Some(now + day)), &strict);
    assert_eq!(old, Err("it has version 3, expected at least 4".to_owned()));
    let never = check(of(4, None), &strict);
    assert_eq!(never, Err("it has no expiry, which is required".to_owned()));
    assert_eq!(check(of(4, Some(now + day)), &strict), Ok(()));
}

/// The pack, and one that an unknown key has signed, from the command line.
#[test]
fn verify_and_covers_ask_for_the_signature() {
    let folder = tempfile::tempdir().unwrap();
    let path = built(folder.path());
    let list = folder.path().join("list.toml");
    fs::write(&list, manifest().to_toml()).unwrap();
    let problem = concat!(env!("CARGO_MANIFEST_DIR"), "/cache/");
    let text =
        fs::read_to_string(&list).unwrap().replace("file = \"", &format!("file = \"{problem}"));
    fs::write(&list, text).unwrap();
    let [signer, other] = [(); 2].map(|()| PackSigner::generate().unwrap());
    let run = |arguments: &[&str], variables: &[(&str, &str)]| {
        let output = cli::command(arguments).envs(variables.iter().copied()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (pack, list) = (path.to_str().unwrap(), list.to_str().unwrap());
    let root = signer.root().to_hex();
    let trust = [("KILN_TRUST_ROOTS", root.as_str())];
    let covers = ["pack", "covers", list, pack, "--target", "sim"];
    let (code, text) = run(&covers, &[]);
    assert_eq!(code, Some(0), "{text}");
    for signature in [None, Some(&other)] {
        if let Some(key) = signature {
            Pack::sign(&path, key, Validity::default()).unwrap();
        }
        let expected = if signature.is_some() { "not a trust root" } else { "it is not signed" };
        let (code, text) = run(&["pack", "verify", pack], &trust);
        assert!(code == Some(1) && text.contains(expected), "{code:?} {text}");
        let (code, text) = run(&covers, &trust);
        assert!(code == Some(2) && text.contains(expected), "{code:?} {text}");
    }
    Pack::sign(&path, &signer, Validity { version: 3, expires: None }).unwrap();
    let (code, text) = run(&["pack", "verify", pack], &trust);
    assert!(code == Some(0) && text.contains("kernels rebuilt, the same bits"), "{text}");
    assert_eq!(run(&covers, &trust).0, Some(0));
    let (_, text) = run(&["pack", "ls", pack], &[]);
    assert!(text.contains(&format!("signed by {root}, version 3, never expires")), "{text}");
    // A broken signature, roots or not.
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let (code, text) = run(&["pack", "verify", pack], &[]);
    assert!(code == Some(1) && text.contains("the signature is invalid"), "{text}");
    assert_eq!(run(&covers, &[]).0, Some(2));
}

#[test]
fn equal_keys_with_other_code_differ() {
    let folder = tempfile::tempdir().unwrap();
    let path = built(folder.path());
    let (pack, to) = (Pack::open(&path).unwrap(), folder.path().join("forged.kilnpack"));
    let longer = |image: Image| Image { cubin: [&image.cubin[..], b"!"].concat(), ..image };
    swapped(&pack, pack.keys().next().unwrap(), longer, &to);
    let (before, after) = (path.to_str().unwrap(), to.to_str().unwrap());
    let output = cli::kiln(&["pack", "diff", before, after]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.starts_with("0 removed, 0 added, 2 in both, 1 of them with other code\n~ "),
        "{text}"
    );
    assert_eq!(cli::kiln(&["pack", "diff", before, before]).status.code(), Some(0));
}

#[test]
fn what_asks_for_signatures_is_never_ignored() {
    let refused = |variables: &[(&str, &str)], expected: &str| {
        let mut command = cli::command(&["doctor", "--device", "sim"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{variables:?}: {text}");
    };
    let root = PackSigner::generate().unwrap().root().to_hex();
    let roots = ("KILN_TRUST_ROOTS", root.as_str());
    let no_key = "environment KILN_TRUST_ROOTS: a public key is 64 hexadecimal digits";
    refused(&[("KILN_TRUST_ROOTS", ":")], no_key);
    refused(&[("KILN_TRUST_ROOTS", &format!("{root}:"))], no_key);
    let no_root = "is required of packs, but no trust root is set";
    refused(&[("KILN_TRUST_VERSION", "3")], no_root);
    refused(&[("KILN_TRUST_EXPIRY", "1")], no_root);
    let all = ("KILN_TRUST_ALL", "1");
    refused(&[all], "(KILN_TRUST_ALL): no trust root is set");
    refused(&[roots, all, ("KILN_OVERRIDES", "/tmp")], "overrides are not signed");
    refused(&[roots, all, ("KILN_TEMPLATES", "templates")], "a folder of templates is not signed");
    refused(&[roots, all, ("KILN_REMOTE", "fs:///tmp")], "a remote store has is not signed");
}

/// A dump is not signed: neither its kernel nor its source is run.
#[test]
fn only_signed_code_means_no_replay() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(folder.path(), &[]);
    let root = PackSigner::generate().unwrap().root().to_hex();
    let mut replay = cli::command(&["replay", own.to_str().unwrap(), "--device", "sim"]);
    let output = replay.env("KILN_TRUST_ALL", "1").env("KILN_TRUST_ROOTS", root).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("(KILN_TRUST_ALL): dumps are not signed"), "{errors}");
}

/// An entry of the disk cache is not signed: with the switch it is neither read nor written.
#[test]
fn only_signed_code_means_no_disk_cache() {
    let folder = tempfile::tempdir().unwrap();
    let root = PackSigner::generate().unwrap().root();
    let config = |all: bool| Config {
        cache_dir: Some(folder.path().join("cache")),
        trust_roots: Some(vec![root]),
        trust_all: Some(all),
        ..Config::default()
    };
    assert!(simulator(config(true)).disk_cache().is_none());
    assert!(!folder.path().join("cache").exists());
    assert!(simulator(config(false)).disk_cache().is_some());
}

/// A program whose cache has been tuned runs in strict mode from a pack of what was tuned, and from
/// one of another machine that knows of no tuning.
#[test]
fn tuned_programs_find_their_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let cache = |name: &str| Some(folder.path().join(name));
    let of = |name: &str| Config { cache_dir: cache(name), ..Config::default() };
    let tuned = simulator(Config { count: true, ..of("tuned") });
    let instances = manifest().instances().unwrap();
    let graph = instances[0].planned.graph().unwrap();
    let own = tuned.plan(graph).unwrap().kernels()[0].config().to_string();
    tuned.tune(graph, 4, |_| {}).unwrap();
    // The heuristic's setting stays the best where the simulator sees no difference: another wins.
    let file = fs::read_dir(folder.path().join("tuned/tuned")).unwrap().next().unwrap().unwrap();
    let text = fs::read_to_string(file.path()).unwrap();
    let mut record = cli::json(&text);
    let tried = record["tried"].as_array().unwrap().clone();
    let other = tried.iter().find(|tried| tried["config"] != own.as_str()).unwrap();
    record["config"] = other["config"].clone();
    fs::write(file.path(), record.to_string()).unwrap();
    let chosen = simulator(of("tuned")).plan(graph).unwrap().kernels()[0].config().to_string();
    assert_eq!(other["config"], chosen.as_str(), "the program is tuned");
    for builder in ["tuned", "plain"] {
        let path = folder.path().join(format!("{builder}.kilnpack"));
        let builder_of = simulator(of(builder));
        builder_of.build_pack(&manifest(), &Target::sim(), (0, 1), &path, |_| {}).unwrap();
        let packs = vec![Pack::open(&path).unwrap()];
        for program in ["tuned", "plain"] {
            let walked = simulator(of(program)).covers(&packs, &manifest(), &Target::sim());
            let missing = walked.unwrap().missing.len();
            assert_eq!(missing, usize::from(builder == "plain" && program == "tuned"));
            // Its cache has the tuning and none of the kernels.
            let bare = folder.path().join(format!("{builder}-{program}"));
            fs::create_dir(&bare).unwrap();
            if program == "tuned" {
                fs::create_dir(bare.join("tuned")).unwrap();
                fs::copy(file.path(), bare.join("tuned").join(file.file_name())).unwrap();
            }
            fs::set_permissions(&bare, std::os::unix::fs::PermissionsExt::from_mode(0o700))
                .unwrap();
            let strict = simulator(Config {
                cache_dir: Some(bare),
                packs: Some(packs.clone()),
                no_jit: Some(true),
                ..Config::default()
            });
            let plan = strict.plan(graph).unwrap_or_else(|error| panic!("{error:?}"));
            let expected = if builder == "tuned" && program == "tuned" { &chosen } else { &own };
            assert_eq!(plan.kernels()[0].config().to_string(), *expected);
        }
    }
}
