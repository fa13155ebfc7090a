//! `kiln pack`: prebuilt kernels in one file, for deployments that must not compile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use kiln::cache::{Key, Pack, PackSigner, TrustRoot};
use kiln::plan::{self, Manifest};
use kiln::{Error, ErrorKind, Kiln};
use serde_json::{Value, json};

use crate::DeviceArgs;
use crate::cache::size;
use crate::progress;
use crate::warm::{progress_bar, tell};

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
            let count = kiln.build_pack(&manifest, &target, *shard, output, |step| {
                bar.set_length(step.total as u64);
                bar.set_position(step.done as u64);
                bar.set_message(step.stem.to_owned());
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
        PackCommand::Sign { pack, key } => {
            let key = PackSigner::read(key)?;
            Pack::sign(pack, &key)?;
            let root = key.root().to_hex();
            let text = format!("signed {} with {root}", pack.display());
            (json!({"pack": pack, "public_key": root}), text, true)
        }
        PackCommand::Diff { old, new } => diff(&Pack::open(old)?, &Pack::open(new)?)?,
    };
    match args.json {
        true => say!("{document:#}"),
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
        Error::with(ErrorKind::Driver, format!("failed to write key `{shown}`: {error}"))
    })?;
    let root = key.root().to_hex();
    Ok((json!({"key": output, "public_key": root}), root, true))
}

fn list(pack: &Pack) -> kiln::Result<Answer> {
    let lines = plan::catalog(pack)?;
    let signer = pack.signer()?.map(TrustRoot::to_hex);
    let mut text = format!(
        "{} kernels for {} by {}, {}, {}\n",
        pack.len(),
        pack.arch(),
        pack.toolchain(),
        size(pack.bytes()),
        signer.as_ref().map_or("not signed".to_owned(), |root| format!("signed by {root}")),
    );
    for line in &lines {
        let canary = if line.canary.is_some() { "canary" } else { "" };
        let key = line.key.get(..16).unwrap_or(&line.key);
        text += &format!("{key}  {:32} {canary:6}  {}\n", line.stem, line.problem);
    }
    let document = json!({
        "arch": pack.arch().to_string(),
        "toolchain": pack.toolchain().to_string(),
        "signed_by": signer,
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
    verified.problems.iter().for_each(|problem| text += &format!("\nfailed   {problem}"));
    let document = json!({
        "sound": verified.sound,
        "canaries": verified.canaries,
        "without_canary": verified.without_canary,
        "problems": verified.problems,
    });
    Ok((document, text, verified.problems.is_empty()))
}

fn diff(old: &Pack, new: &Pack) -> kiln::Result<Answer> {
    let names = |pack: &Pack| -> kiln::Result<BTreeMap<Key, String>> {
        let lines = plan::catalog(pack)?.into_iter().map(|line| {
            let key = Key::from_hex(&line.key).ok_or_else(|| {
                let text = format!("pack `{}`: its catalog is damaged", pack.name().display());
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
    let mut text = format!(
        "{} removed, {} added, {} in both\n",
        removed.len(),
        added.len(),
        before.len() - removed.len()
    );
    removed.iter().for_each(|name| text += &format!("- {name}\n"));
    added.iter().for_each(|name| text += &format!("+ {name}\n"));
    let equal = removed.is_empty() && added.is_empty();
    Ok((json!({"removed": removed, "added": added}), text, equal))
}
