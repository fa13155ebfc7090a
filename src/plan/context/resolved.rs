//! A [`Config`] completed with the environment and defaults.

use std::path::PathBuf;

use crate::cache::{BUDGET_BYTES, Pack, Remote, Trust};
use crate::compile::{Search, variable};
use crate::device::{DeviceChoice, SimOptions};
use crate::engine::Selection;
use crate::error::{Error, Result};
use crate::plan::context::config::{Background, Config};
use crate::plan::context::report::BuildReport;
use crate::plan::context::variables::with_environment;

/// The default of [`Config::dump_tensor_bytes`].
const DUMP_TENSOR_BYTES: u64 = 256 << 20;

/// Which planned kernels are dumped, and where.
#[derive(Debug, Clone)]
pub(in crate::plan) struct Dumping {
    pub(in crate::plan) folder: PathBuf,
    /// Substring of a stem, or prefix of a key.
    pub(in crate::plan) filter: String,
    /// Maximum size in bytes of captured tensors; `None` captures none.
    pub(in crate::plan) tensor_bytes_max: Option<u64>,
}

impl Dumping {
    pub(in crate::plan) fn wants(&self, report: &BuildReport) -> bool {
        let filter = self.filter.as_str();
        report.stem.contains(filter) || report.key.to_hex().starts_with(filter)
    }
}

/// A [`Config`] without open choices.
#[derive(Debug, Clone)]
pub(in crate::plan) struct Resolved {
    pub(in crate::plan) device: DeviceChoice,
    pub(in crate::plan) sim: SimOptions,
    pub(in crate::plan) ptx_only: bool,
    /// `None`: no disk cache is wanted, or there is no folder for one.
    pub(in crate::plan) cache_dir: Option<PathBuf>,
    pub(in crate::plan) cache_bytes: u64,
    pub(in crate::plan) packs: Vec<Pack>,
    pub(in crate::plan) trust: Trust,
    /// Whether only signed code and kernels compiled here may run.
    pub(in crate::plan) signed_only: bool,
    pub(in crate::plan) remote: Option<Remote>,
    pub(in crate::plan) no_jit: bool,
    pub(in crate::plan) selection: Selection,
    pub(in crate::plan) allow_spills: bool,
    pub(in crate::plan) overlap_launches: bool,
    pub(in crate::plan) background: Option<Background>,
    pub(in crate::plan) record: Option<PathBuf>,
    pub(in crate::plan) dump: Option<Dumping>,
    pub(in crate::plan) overrides: Option<PathBuf>,
    pub(in crate::plan) search: Search,
    pub(in crate::plan) templates: Option<PathBuf>,
}

impl Config {
    /// The folder of the disk cache that [`open`](crate::plan::Kiln::open) would use and create;
    /// `None` without a disk cache.
    ///
    /// # Errors
    /// `BadParam` as for `open`.
    pub fn cache_folder(&self) -> Result<Option<PathBuf>> {
        Ok(self.resolve()?.cache_dir)
    }

    pub(in crate::plan) fn resolve(&self) -> Result<Resolved> {
        let filled = with_environment(self, variable)?;
        let trust = filled.trust()?;
        let packs = filled.packs.clone().unwrap_or_default();
        packs.iter().try_for_each(|pack: &Pack| pack.require_trust(&trust))?;
        let sanitize = filled.sanitize.unwrap_or(false);
        filled.signed_only(Resolved {
            trust,
            signed_only: filled.trust_all.unwrap_or(false),
            packs,
            device: filled.device.clone().unwrap_or_default(),
            sim: SimOptions {
                sanitize,
                count: self.count,
                seed: filled.sim_seed.unwrap_or(0),
                worst: filled.sim_worst.unwrap_or(false),
                sample: self.sample,
                late: filled.sim_late.unwrap_or(false),
            },
            ptx_only: filled.ptx_only.unwrap_or(false),
            cache_dir: self.disk_cache(&filled),
            cache_bytes: filled.cache_bytes.unwrap_or(BUDGET_BYTES),
            remote: filled.remote.clone(),
            no_jit: filled.no_jit.unwrap_or(false),
            selection: Selection {
                mode: filled.heuristic.unwrap_or_default(),
                without: filled.without.clone().unwrap_or_default(),
            },
            allow_spills: filled.allow_spills.unwrap_or(true),
            overlap_launches: filled.overlap_launches.unwrap_or(true),
            background: filled.background.filter(|background| background.threads > 0),
            record: filled.record.clone().filter(|path| !path.as_os_str().is_empty()),
            dump: filled.dump.clone().map(|folder| filled.dumping(folder)),
            overrides: filled.overrides.clone(),
            search: Search {
                configured: self.nvrtc.clone(),
                environment: filled.nvrtc.clone().filter(|_| self.nvrtc.is_none()),
                // The device is not open yet.
                driver: None,
            },
            templates: filled.templates.clone(),
        })
    }

    /// The folder of the disk cache; `filled` are these fields completed with the environment.
    /// `None` if no disk cache is wanted or there is no folder for one.
    fn disk_cache(&self, filled: &Config) -> Option<PathBuf> {
        match (&self.cache_dir, &filled.cache_dir) {
            _ if self.no_disk_cache => None,
            // A folder with this name is given as `./off`.
            (None, Some(folder)) if folder.as_os_str() == "off" => None,
            (_, Some(folder)) => Some(folder.clone()),
            (_, None) => default_cache_dir(),
        }
    }

    /// The keys to trust. A field or variable that tightens trust never loosens it.
    fn trust(&self) -> Result<Trust> {
        let roots = self.trust_roots.clone().unwrap_or_default();
        let version_min = self.trust_version.unwrap_or(0);
        let expiry = self.trust_expiry.unwrap_or(false);
        if roots.is_empty() && (version_min > 0 || expiry) {
            let text = "a version or an expiry is required of packs, but no trust root is set";
            return Err(Error::bad_param(text));
        }
        Ok(Trust { roots, version_min, expiry })
    }

    /// With [`Config::trust_all`]: removes or refuses every source of kernels that cannot have been
    /// signed.
    fn signed_only(&self, resolved: Resolved) -> Result<Resolved> {
        let refuse = |what: &str| Err(unsigned(what));
        match &resolved {
            Resolved { signed_only: false, .. } => Ok(resolved),
            Resolved { trust, .. } if !trust.is_required() => refuse("no trust root is set"),
            Resolved { remote: Some(_), .. } => refuse("what a remote store has is not signed"),
            Resolved { overrides: Some(_), .. } => refuse("overrides are not signed"),
            Resolved { templates: Some(_), .. } => refuse("a folder of templates is not signed"),
            _ => Ok(Resolved { cache_dir: None, ..resolved }),
        }
    }

    fn dumping(&self, folder: PathBuf) -> Dumping {
        let bytes_max = self.dump_tensor_bytes.unwrap_or(DUMP_TENSOR_BYTES);
        Dumping {
            folder,
            filter: self.dump_filter.clone().unwrap_or_default(),
            tensor_bytes_max: self.dump_tensors.unwrap_or(false).then_some(bytes_max),
        }
    }
}

/// The error of [`Config::trust_all`] for code that cannot have been signed.
pub(in crate::plan) fn unsigned(what: &str) -> Error {
    Error::bad_param(format!("only signed code is to be run (KILN_TRUST_ALL): {what}"))
}

fn default_cache_dir() -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let found = absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|folder| folder.join("kiln"));
    if found.is_none() {
        tracing::warn!("neither XDG_CACHE_HOME nor HOME is set; caching in memory only");
    }
    found
}
