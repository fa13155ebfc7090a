//! `kiln cache`: what the disk cache holds, whether it is sound, and why a lookup missed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use kiln::cache::{Counts, DiskCache, EntryFile, Key};
use kiln::{Config, Error, ErrorKind, Kiln};
use serde_json::{Value, json};

use crate::terminal::say_json;

const EXAMPLES: &str = "\
Examples:
  kiln cache stats
  kiln cache ls --json
  kiln cache gc --budget 100M
  kiln cache explain 3f2a91c0";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
    /// Folder of the kernel cache
    #[arg(long, value_name = "DIR", global = true)]
    cache_dir: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum CacheCommand {
    /// Size, budget, hits and misses of all processes that have ended
    Stats,
    /// The entries, most recently used first
    Ls,
    /// Check every byte of every entry; exit code 1 when one is damaged
    Verify,
    /// Remove least recently used entries and abandoned files
    Gc {
        /// Keep the folder within this size: bytes, or with K, M or G
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        budget: Option<u64>,
    },
    /// Remove every entry that no running process uses
    Clear,
    /// Say how an entry differs from the one that comes nearest: why it had to be compiled
    Explain {
        /// The key, or the first digits of it
        key: String,
    },
}

fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        _ => (text, 1u64),
    };
    let count: u64 = digits.parse().map_err(|_| "expected like 500M".to_owned())?;
    count.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

pub fn cache(args: &CacheArgs) -> kiln::Result<ExitCode> {
    crate::progress::doing("reading the cache");
    let config = Config {
        device: Some("null".parse()?),
        cache_dir: args.cache_dir.clone(),
        ..Config::default()
    };
    // Opening would create it.
    if let Some(folder) = config.cache_folder()?.filter(|folder| !folder.exists()) {
        let text = format!("cache folder `{}` does not exist", folder.display());
        return Err(Error::with(ErrorKind::BadParam, text));
    }
    let kiln = Kiln::open(config)?;
    let disk = kiln.disk_cache().ok_or_else(|| {
        Error::with(ErrorKind::BadParam, "there is no usable cache folder: see `kiln doctor`")
    })?;
    let (document, text, code) = match &args.command {
        CacheCommand::Stats => stats(disk),
        CacheCommand::Ls => list(disk),
        CacheCommand::Verify => verify(disk),
        CacheCommand::Gc { budget } => collect(disk, budget.unwrap_or(disk.budget_bytes()))?,
        CacheCommand::Clear => collect(disk, 0)?,
        CacheCommand::Explain { key } => explain(disk, key)?,
    };
    match args.json {
        true => say_json(&document),
        false => say!("{}", text.trim_end()),
    }
    Ok(code)
}

type Answer = (Value, String, ExitCode);

fn stats(disk: &DiskCache) -> Answer {
    let entries = disk.entries();
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let counts = disk.counts_of_all();
    let Counts { hits, writes, evicted, saved_us, misses, read_bytes, written_bytes } = &counts;
    let document = json!({
        "folder": disk.folder(),
        "entries": entries.len(),
        "bytes": bytes,
        "budget_bytes": disk.budget_bytes(),
        "hits": hits,
        "misses": misses,
        "read_bytes": read_bytes,
        "writes": writes,
        "written_bytes": written_bytes,
        "evicted": evicted,
        "compile_time_saved_us": saved_us,
    });
    let reasons: Vec<String> =
        misses.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    let text = format!(
        "folder   {}\nentries  {}, {} of {}\nhits     {hits}, {:.1} s of compilation saved\n\
         misses   {}{reasons}\nwrites   {writes}, {evicted} evicted",
        disk.folder().display(),
        entries.len(),
        size(bytes),
        size(disk.budget_bytes()),
        *saved_us as f64 / 1e6,
        counts.misses_total(),
    );
    (document, text, ExitCode::SUCCESS)
}

fn list(disk: &DiskCache) -> Answer {
    let mut rows = Vec::new();
    let mut text = format!("{:16}  {:>9}  {:>8}  kernel\n", "key", "size", "used");
    for file in disk.entries() {
        let age = SystemTime::now().duration_since(file.used).unwrap_or_default().as_secs();
        let entry = Key::from_hex(&file.key).map(|key| disk.read(key));
        let kernel = match &entry {
            Some(Ok(Some(entry))) => format!(
                "{} for {}, {} registers, {}",
                entry.request.stem,
                entry.request.arch,
                entry.image.resources.registers,
                entry.request.toolchain
            ),
            Some(Err(error)) => format!("damaged: {error}"),
            _ => "not an entry".to_owned(),
        };
        let key = file.key.get(..16).unwrap_or(&file.key);
        text += &format!("{key}  {:>9}  {:>8}  {kernel}\n", size(file.bytes), ago(age));
        rows.push(json!({
            "key": file.key,
            "bytes": file.bytes,
            "used_seconds_ago": age,
            "kernel": kernel,
        }));
    }
    (json!({"entries": rows}), text, ExitCode::SUCCESS)
}

fn verify(disk: &DiskCache) -> Answer {
    let check = |file: &EntryFile| match Key::from_hex(&file.key).map(|key| disk.read(key)) {
        Some(Ok(_)) => None,
        Some(Err(error)) => Some(format!("{}: {error}", file.path.display())),
        None => Some(format!("{}: the name is no key", file.path.display())),
    };
    let entries = disk.entries();
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let start = std::time::Instant::now();
    let damaged: Vec<String> = entries.iter().filter_map(check).collect();
    let rate = bytes as f64 / start.elapsed().as_secs_f64().max(1e-9) / 1e9;
    let mut text = format!("{} entries, {}, {rate:.1} GB/s", entries.len(), size(bytes));
    text += if damaged.is_empty() { ": all sound" } else { "" };
    damaged.iter().for_each(|line| text += &format!("\ndamaged  {line}"));
    let document = json!({"entries": entries.len(), "bytes": bytes, "damaged": damaged});
    (document, text, ExitCode::from(u8::from(!damaged.is_empty())))
}

fn collect(disk: &DiskCache, budget: u64) -> kiln::Result<Answer> {
    let collected = disk.collect(budget).ok_or_else(|| {
        Error::with(ErrorKind::Io, "another process is collecting, or the folder is read-only")
    })?;
    let document = json!({
        "removed": collected.removed,
        "removed_bytes": collected.removed_bytes,
        "kept": collected.kept,
        "kept_bytes": collected.kept_bytes,
        "in_use": collected.in_use,
        "stale_files": collected.stale,
    });
    let text = format!(
        "removed  {} entries, {}, and {} abandoned files\nkept     {} entries, {} ({} of them only \
         because they are in use)",
        collected.removed,
        size(collected.removed_bytes),
        collected.stale,
        collected.kept,
        size(collected.kept_bytes),
        collected.in_use,
    );
    Ok((document, text, ExitCode::SUCCESS))
}

fn explain(disk: &DiskCache, digits: &str) -> kiln::Result<Answer> {
    let bad = |text: String| Error::with(ErrorKind::BadParam, text);
    let matching: Vec<EntryFile> =
        disk.entries().into_iter().filter(|file| file.key.starts_with(digits)).collect();
    let key = match matching.as_slice() {
        [only] => Key::from_hex(&only.key),
        [] => return Err(bad(format!("no entry has a key that starts with `{digits}`"))),
        many => {
            let count = many.len();
            return Err(bad(format!("{count} keys start with `{digits}`: give more digits")));
        }
    };
    let entry = key.and_then(|key| disk.read(key).ok().flatten());
    let entry = entry.ok_or_else(|| bad(format!("the entry of key `{digits}` is damaged")))?;
    let explanation = disk.explain(&entry.request);
    let document = json!({
        "key": explanation.key.to_hex(),
        "stem": entry.request.stem,
        "nearest": explanation.nearest.as_ref().map(|(key, _)| key.to_hex()),
        "differences": explanation.differences.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let text = format!("{} ({})\n{explanation}", explanation.key, entry.request.stem);
    Ok((document, text, ExitCode::SUCCESS))
}

/// Bytes in binary units.
pub fn size(bytes: u64) -> String {
    match bytes as f64 {
        bytes if bytes < 1024.0 => format!("{bytes} B"),
        bytes if bytes < 1048576.0 => format!("{:.1} KiB", bytes / 1024.0),
        bytes if bytes < 1073741824.0 => format!("{:.1} MiB", bytes / 1048576.0),
        bytes => format!("{:.2} GiB", bytes / 1073741824.0),
    }
}

fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => "now".to_owned(),
        60..3600 => format!("{} min", seconds / 60),
        3600..86400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}
