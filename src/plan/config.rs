//! Settings, read once at [`open`](crate::plan::Kiln::open).

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::cache::{BUDGET_BYTES, Pack, Remote, TrustRoot};
use crate::compile::Search;
use crate::device::{DeviceChoice, SimOptions};
use crate::error::{Error, Result};
use crate::plan::background::Background;

/// How a [`Kiln`](crate::plan::Kiln) is set up. A field that is `None` is taken from the
/// environment, and from its default where that says nothing.
///
/// | field | variable | default |
/// |---|---|---|
/// | `device` | `KILN_DEVICE`: `auto`, `sim[:TARGET]`, `cuda[:N]`, `null[:TARGET]` | `auto` |
/// | `cache_dir` | `KILN_CACHE_DIR`: a folder, or `off` | `$XDG_CACHE_HOME/kiln`, `~/.cache/kiln` |
/// | `cache_bytes` | `KILN_CACHE_BYTES`: the disk cache's budget | 1 GiB |
/// | `packs` | `KILN_PACKS`: files separated by colons, the first wins | none |
/// | `remote` | `KILN_REMOTE`: an address; `KILN_REMOTE_READ_ONLY`: 1; `KILN_REMOTE_MS` | none |
/// | `trust_roots` | `KILN_TRUST_ROOTS`: public keys separated by colons | no signature needed |
/// | `no_jit` | `KILN_NO_JIT`: 1 to fail rather than compile | compile |
/// | `background` | `KILN_BACKGROUND`: `THREADS` or `THREADS:QUEUE` | compile in the foreground |
/// | `record` | `KILN_RECORD`: a manifest that what is planned is added to | nothing is recorded |
/// | `sanitize` | `KILN_SANITIZE`: 1 to check launches on the simulator | no checks |
/// | `count` | none: counts are asked for | no counts |
/// | `dump` | `KILN_DUMP`: a folder; `KILN_DUMP_FILTER`: part of a stem | no dumps |
/// | `nvrtc` | `KILN_NVRTC`: the library or its folder | searched for |
/// | `templates` | `KILN_TEMPLATES`: a folder laid out as `templates/` | embedded |
///
/// These are all the variables the library reads. The command line tool also reads `KILN_LOG` or
/// else `RUST_LOG`, a filter for log messages such as `kiln=debug`, and `KILN_TRACE`, a file for
/// the spans of a run.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The device to run on.
    pub device: Option<DeviceChoice>,
    /// The folder of the disk cache.
    pub cache_dir: Option<PathBuf>,
    /// The size the disk cache is kept within, in bytes.
    pub cache_bytes: Option<u64>,
    /// Packs of prebuilt kernels, searched in this order and before the disk cache.
    pub packs: Option<Vec<Pack>>,
    /// A store that several machines share, asked after the disk cache; needs the cargo feature
    /// `remote`.
    pub remote: Option<Remote>,
    /// Public keys: where there is one, packs that none of them has signed are refused.
    pub trust_roots: Option<Vec<TrustRoot>>,
    /// Strict mode: fail with the missing key and its explanation instead of compiling.
    pub no_jit: Option<bool>,
    /// Serve a graph at once with a more general kernel that has been built, if there is one,
    /// while its own is compiled; not in strict mode.
    pub background: Option<Background>,
    /// A manifest that every problem planned is added to, for `kiln warm` and `kiln pack build`. An
    /// empty path: none.
    pub record: Option<PathBuf>,
    /// A folder that every planned kernel is dumped to, one folder each.
    pub dump: Option<PathBuf>,
    /// On the simulator: fail a launch that races, reads what nobody wrote or divides a barrier.
    pub sanitize: Option<bool>,
    /// On the simulator: count what launches execute ([`Device::report`](crate::device::Device)).
    pub count: bool,
    /// Keep compiled kernels in memory only: no disk cache, nor the remote of the environment.
    pub no_disk_cache: bool,
    /// The NVRTC library or the folder it is in.
    pub nvrtc: Option<PathBuf>,
    /// A folder of templates to use instead of the embedded ones.
    pub templates: Option<PathBuf>,
}

/// A [`Config`] with every choice made.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) device: DeviceChoice,
    pub(super) sim: SimOptions,
    /// `None`: no disk cache wanted, or no place for one.
    pub(super) cache_dir: Option<PathBuf>,
    pub(super) cache_bytes: u64,
    pub(super) packs: Vec<Pack>,
    pub(super) remote: Option<Remote>,
    pub(super) no_jit: bool,
    pub(super) background: Option<Background>,
    pub(super) record: Option<PathBuf>,
    pub(super) dump: Option<(PathBuf, String)>,
    pub(super) search: Search,
    pub(super) templates: Option<PathBuf>,
}

impl Config {
    /// The folder of the disk cache that [`open`](crate::plan::Kiln::open) would use and create;
    /// `None` where there is none.
    ///
    /// # Errors
    /// `BadParam` as for `open`.
    pub fn cache_folder(&self) -> Result<Option<PathBuf>> {
        Ok(self.resolve()?.cache_dir)
    }

    pub(super) fn resolve(&self) -> Result<Resolved> {
        let path =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let device = match (&self.device, env::var("KILN_DEVICE")) {
            (Some(device), _) => device.clone(),
            (None, Ok(text)) if !text.is_empty() => {
                text.parse().map_err(|error: Error| error.context("environment KILN_DEVICE"))?
            }
            (None, _) => DeviceChoice::Auto,
        };
        let cache_dir = match (&self.cache_dir, path("KILN_CACHE_DIR")) {
            _ if self.no_disk_cache => None,
            (Some(folder), _) => Some(folder.clone()),
            (None, Some(folder)) if folder.as_os_str() == "off" => None,
            (None, Some(folder)) => Some(folder),
            (None, None) => default_cache_dir(),
        };
        let cache_bytes = match self.cache_bytes {
            Some(bytes) => bytes,
            None => number("KILN_CACHE_BYTES", "bytes")?.unwrap_or(BUDGET_BYTES),
        };
        let packs = match (&self.packs, env::var_os("KILN_PACKS")) {
            (Some(packs), _) => packs.clone(),
            (None, Some(paths)) => env::split_paths(&paths)
                .filter(|path| !path.as_os_str().is_empty())
                .map(|path| Pack::open(&path))
                .collect::<Result<_>>()
                .map_err(|error| error.context("environment KILN_PACKS"))?,
            (None, None) => Vec::new(),
        };
        let trust_roots = match (&self.trust_roots, env::var("KILN_TRUST_ROOTS")) {
            (Some(roots), _) => roots.clone(),
            (None, Ok(text)) => text
                .split(':')
                .filter(|key| !key.is_empty())
                .map(TrustRoot::from_hex)
                .collect::<Result<_>>()
                .map_err(|error| error.context("environment KILN_TRUST_ROOTS"))?,
            (None, Err(_)) => Vec::new(),
        };
        if !trust_roots.is_empty() {
            packs.iter().try_for_each(|pack: &Pack| pack.require_trust(&trust_roots))?;
        }
        let background = match (self.background, env::var("KILN_BACKGROUND")) {
            (Some(background), _) => Some(background),
            (None, Ok(text)) if !text.is_empty() => Some(
                text.parse()
                    .map_err(|error: Error| error.context("environment KILN_BACKGROUND"))?,
            ),
            (None, _) => None,
        };
        let no_jit = self.no_jit.map_or_else(|| switch("KILN_NO_JIT"), Ok)?;
        let sanitize = self.sanitize.map_or_else(|| switch("KILN_SANITIZE"), Ok)?;
        Ok(Resolved {
            device,
            sim: SimOptions { sanitize, count: self.count },
            cache_dir,
            cache_bytes,
            packs,
            remote: match &self.remote {
                Some(remote) => Some(remote.clone()),
                None if self.no_disk_cache => None,
                None => remote_of_environment()?,
            },
            no_jit,
            background: background.filter(|background| background.threads > 0),
            record: self
                .record
                .clone()
                .or_else(|| path("KILN_RECORD"))
                .filter(|path| !path.as_os_str().is_empty()),
            dump: self
                .dump
                .clone()
                .or_else(|| path("KILN_DUMP"))
                .map(|folder| (folder, env::var("KILN_DUMP_FILTER").unwrap_or_default())),
            search: Search { configured: self.nvrtc.clone(), environment: path("KILN_NVRTC") },
            templates: self.templates.clone().or_else(|| path("KILN_TEMPLATES")),
        })
    }
}

/// A variable that is 1 or 0, 0 when it is not set.
fn switch(name: &str) -> Result<bool> {
    match env::var(name).as_deref() {
        Ok("1") => Ok(true),
        Ok("0" | "") | Err(_) => Ok(false),
        Ok(text) => {
            Err(Error::bad_param(format!("environment {name}: `{text}` is neither 0 nor 1")))
        }
    }
}

/// A variable that is a number of these units.
fn number(name: &str, units: &str) -> Result<Option<u64>> {
    let text = env::var(name).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        Error::bad_param(format!("environment {name}: `{text}` is not a number of {units}"))
    })
}

fn remote_of_environment() -> Result<Option<Remote>> {
    let uri = env::var("KILN_REMOTE").unwrap_or_default();
    if uri.is_empty() {
        return Ok(None);
    }
    let mut remote = Remote::new(uri);
    remote.read_only = switch("KILN_REMOTE_READ_ONLY")?;
    if let Some(ms) = number("KILN_REMOTE_MS", "milliseconds")? {
        remote.timeout = Duration::from_millis(ms);
    }
    Ok(Some(remote))
}

fn default_cache_dir() -> Option<PathBuf> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let found = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("kiln"));
    if found.is_none() {
        tracing::warn!("neither XDG_CACHE_HOME nor HOME is set; caching in memory only");
    }
    found
}
