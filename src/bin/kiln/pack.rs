//! `kiln pack`: prebuilt kernels in one file, for deployments that must not compile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use kiln::cache::{Key, Pack, PackSigner, Signed, Validity};
use kiln::escape::escaped;
use kiln::plan::{self, Manifest};
use kiln::{Error, ErrorKind, Kiln};
use serde_json::{Value, json};

use crate::cache::size;
use crate::options::DeviceArgs;
use crate::progress::{self, progress_bar, tell};
use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln pack build cache/pointwise.toml --target h200 -o pointwise.kilnpack
  kiln pack covers cache/pointwise.toml --target h200 pointwise.kilnpack
  kiln pack verify pointwise.kilnpack
  KILN_PACKS=pointwise.kilnpack KILN_NO_JIT=1 kiln run chain.json --random 1 --device sim:h200";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PackArgs {
    #[command(subcommand)]
    command: PackCommand,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
    /// Folder of the kernel cache; `off` keeps kernels in memory only
    #[arg(long, value_name = "DIR", global = true)]
    cache_dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum PackCommand {
    /// Compile a manifest's kernels for one target into a pack; needs no GPU
    Build {
        /// The manifest (TOML)
        manifest: PathBuf,
        /// The GPU or architecture
        #[arg(long)]
        target: String,
        /// The pack to write
        #[arg(short, long)]
        output: PathBuf,
        /// Build only the i-th of n parts, such as 0/4
        #[arg(long, value_parser = parse_shard, default_value = "0/1")]
        shard: (usize, usize),
    },
    /// What a pack holds
    Ls { pack: PathBuf },
    /// Check every byte and run every canary from the pack alone; exit code 1 on a failure
    Verify { pack: PathBuf },
    /// Prove that a program that follows the manifest never compiles; exit code 1 if it would
    Covers {
        /// The manifest (TOML)
        manifest: PathBuf,
        /// The packs, in the order they are searched
        #[arg(required = true)]
        packs: Vec<PathBuf>,
        /// The GPU or architecture
        #[arg(long)]
        target: String,
    },
    /// Write one pack from several
    Merge {
        /// The packs; the first of two equal kernels wins
        #[arg(required = true)]
        packs: Vec<PathBuf>,
        /// The pack to write
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Make a key for signing: writes the secret to a file, prints the public key
    Keygen {
        /// The file for the secret key, readable by you alone
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Sign a pack in place; `KILN_TRUST_ROOTS` lists the public keys a deployment accepts
    Sign {
        pack: PathBuf,
        /// The secret key's file
        #[arg(long)]
        key: PathBuf,
        /// Counts the packs of one purpose; KILN_TRUST_VERSION refuses those before
        #[arg(long, default_value_t = 0)]
        version: u64,
        /// The pack is refused after so many days; KILN_TRUST_EXPIRY=1 asks for an end
        #[arg(long)]
        days: Option<u64>,
    },
    /// What one pack holds and another does not; exit code 1 if they differ
    Diff { old: PathBuf, new: PathBuf },
}

fn parse_shard(text: &str) -> Result<(usize, usize), String> {
    let bad = || "expected like 0/4, the first below the second".to_owned();
    let (at, count) = text.split_once('/').ok_or_else(bad)?;
    let (at, count) = (at.parse().map_err(|_| bad())?, count.parse().map_err(|_| bad())?);
    if at < count { Ok((at, count)) } else { Err(bad()) }
}

pub fn pack(args: &PackArgs) -> kiln::Result<ExitCode> {
    let device = DeviceArgs {
        device: Some("sim".parse()?),
        cache_dir: args.cache_dir.clone(),
        nvrtc: None,
        templates: None,
    };
    let kiln = device.open()?;
    progress::doing("reading packs and manifests");
    let (document, text, sound) = match &args.command {
        PackCommand::Build { manifest, target, output, shard } => {
            let (bar, target) = (progress_bar(args.json), Manifest::target(target)?);
            let manifest = Manifest::read(manifest)?;
            tell(&bar, "planning");
            let count = kiln.build_pack(&manifest, &target, *shard, output, |step| {
                bar.set_length(step.total as u64);
                bar.set_position(step.done as u64);
                tell(&bar, step.stem);
            })?;
            bar.finish_and_clear();
            let pack = Pack::open(output)?;
            let (name, bytes) = (output.display(), size(pack.bytes()));
            let text = format!("{count} kernels for {} in {name}, {bytes}", target.arch);
            (json!({"kernels": count, "bytes": pack.bytes(), "pack": output}), text, true)
        }
        PackCommand::Ls { pack } => list(&Pack::open(pack)?)?,
        PackCommand::Verify { pack } => verify(&kiln, &Pack::open(pack)?)?,
        PackCommand::Covers { manifest, packs, target } => {
            let packs = open_all(packs)?;
            let target = Manifest::target(target)?;
            let coverage = kiln.covers(&packs, &Manifest::read(manifest)?, &target)?;
            let missing: Vec<Value> = coverage
                .missing
                .iter()
                .map(|(name, key)| json!({"problem": name, "key": key.to_hex()}))
                .collect();
            let mut text = format!("{} problems covered", coverage.covered);
            for (name, key) in &coverage.missing {
                text += &format!("\nmissing  {name}: key {key}");
            }
            let document = json!({"covered": coverage.covered, "missing": missing});
            (document, text, coverage.missing.is_empty())
        }
        PackCommand::Merge { packs, output } => {
            let count = plan::merge_packs(&open_all(packs)?, output)?;
            let text = format!("{count} kernels in {}", output.display());
            (json!({"kernels": count, "pack": output}), text, true)
        }
        PackCommand::Keygen { output } => keygen(output)?,
        PackCommand::Sign { pack, key, version, days } => {
            let key = PackSigner::read(key)?;
            let validity = Validity { version: *version, expires: (*days).map(end).transpose()? };
            Pack::sign(pack, &key, validity)?;
            let root = key.root().to_hex();
            let text = format!("signed {} with {root}", pack.display());
            (json!({"pack": pack, "public_key": root}), text, true)
        }
        PackCommand::Diff { old, new } => diff(&Pack::open(old)?, &Pack::open(new)?)?,
    };
    match args.json {
        true => say_json(&document),
        false => say!("{}", text.trim_end()),
    }
    Ok(ExitCode::from(u8::from(!sound)))
}

type Answer = (Value, String, bool);

fn open_all(paths: &[PathBuf]) -> kiln::Result<Vec<Pack>> {
    paths.iter().map(|path| Pack::open(path)).collect()
}

fn keygen(output: &Path) -> kiln::Result<Answer> {
    let key = PackSigner::generate()?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(output);
    file.and_then(|mut file| writeln!(file, "{}", key.to_hex())).map_err(|error| {
        let shown = output.display();
        Error::with(ErrorKind::Io, format!("failed to write key `{shown}`: {error}"))
    })?;
    let root = key.root().to_hex();
    Ok((json!({"key": output, "public_key": root}), root, true))
}

/// So many days from now.
fn end(days: u64) -> kiln::Result<SystemTime> {
    let seconds = days.checked_mul(86_400).map(Duration::from_secs);
    seconds.and_then(|seconds| SystemTime::now().checked_add(seconds)).ok_or_else(|| {
        Error::with(ErrorKind::BadParam, format!("--days {days}: no clock goes so far"))
    })
}

fn since_epoch(time: SystemTime) -> Option<u64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// A signature in words.
fn signature(signed: Option<&Signed>) -> String {
    let Some(Signed { by, validity: Validity { version, expires } }) = signed else {
        return "not signed".to_owned();
    };
    let days = |span: Duration| span.as_secs() / 86_400;
    let now = SystemTime::now();
    let end = match expires.map(|expires| expires.duration_since(now)) {
        None => "never expires".to_owned(),
        Some(Ok(left)) => format!("expires in {} days", days(left)),
        Some(Err(past)) => format!("expired {} days ago", days(past.duration())),
    };
    format!("signed by {}, version {version}, {end}", by.to_hex())
}

fn list(pack: &Pack) -> kiln::Result<Answer> {
    let lines = plan::catalog(pack)?;
    let signed = pack.signed()?;
    let mut text = format!(
        "{} kernels for {} by {}, {}, {}\n",
        pack.len(),
        pack.arch(),
        pack.toolchain(),
        size(pack.bytes()),
        signature(signed.as_ref()),
    );
    for line in &lines {
        let canary = if line.canary.is_some() { "canary" } else { "" };
        let [key, stem, problem] = [&line.key, &line.stem, &line.problem].map(|of| escaped(of));
        let key = key.get(..16).unwrap_or(&key);
        text += &format!("{key}  {stem:32} {canary:6}  {problem}\n");
    }
    let document = json!({
        "arch": pack.arch().to_string(),
        "toolchain": pack.toolchain().to_string(),
        "signed_by": signed.map(|signed| signed.by.to_hex()),
        "version": signed.map(|signed| signed.validity.version),
        "expires_s": signed.and_then(|signed| since_epoch(signed.validity.expires?)),
        "bytes": pack.bytes(),
        "kernels": lines,
    });
    Ok((document, text, true))
}

fn verify(kiln: &Kiln, pack: &Pack) -> kiln::Result<Answer> {
    let verified = kiln.verify_pack(pack)?;
    let mut text = format!(
        "{} kernels sound, {} canaries right, {} kernels without a canary",
        verified.sound, verified.canaries, verified.without_canary
    );
    text += &match &verified.not_rebuilt {
        None => format!("\n{} kernels rebuilt, the same bits", verified.rebuilt),
        Some(why) => format!("\nnot rebuilt: {why}; cubins are only as good as the signature"),
    };
    verified.problems.iter().for_each(|problem| text += &format!("\nfailed   {problem}"));
    let document = json!({
        "sound": verified.sound,
        "canaries": verified.canaries,
        "without_canary": verified.without_canary,
        "rebuilt": verified.rebuilt,
        "not_rebuilt": verified.not_rebuilt,
        "problems": verified.problems,
    });
    Ok((document, text, verified.problems.is_empty()))
}

fn diff(old: &Pack, new: &Pack) -> kiln::Result<Answer> {
    let names = |pack: &Pack| -> kiln::Result<BTreeMap<Key, String>> {
        let lines = plan::catalog(pack)?.into_iter().map(|line| {
            let key = Key::from_hex(&line.key).ok_or_else(|| {
                let text = format!("pack `{}`: the catalog is damaged", pack.name().display());
                Error::with(ErrorKind::BadParam, text)
            })?;
            Ok((key, format!("{} ({})", line.stem, line.problem)))
        });
        lines.collect()
    };
    let (before, after) = (names(old)?, names(new)?);
    let only = |one: &BTreeMap<Key, String>, other: &BTreeMap<Key, String>| -> Vec<String> {
        one.iter()
            .filter(|(key, _)| !other.contains_key(key))
            .map(|(_, name)| name.clone())
            .collect()
    };
    let (removed, added) = (only(&before, &after), only(&after, &before));
    let both = before.iter().filter(|(key, _)| after.contains_key(key));
    let mut changed = Vec::new();
    for (key, name) in both {
        // What is the same to the compiler is to be the same to the device.
        let image = |pack: &Pack| Ok(pack.get(*key)?.map(|entry| entry.image));
        if image(old)? != image(new)? {
            changed.push(name.clone());
        }
    }
    let mut text = format!(
        "{} removed, {} added, {} in both, {} of them with other code\n",
        removed.len(),
        added.len(),
        before.len() - removed.len(),
        changed.len()
    );
    removed.iter().for_each(|name| text += &format!("- {name}\n"));
    added.iter().for_each(|name| text += &format!("+ {name}\n"));
    changed.iter().for_each(|name| text += &format!("~ {name}\n"));
    let equal = removed.is_empty() && added.is_empty() && changed.is_empty();
    Ok((json!({"removed": removed, "added": added, "changed": changed}), text, equal))
}
