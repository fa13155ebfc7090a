//! A process's NVRTC: located, identified and loaded once, when it is first needed.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tracing::field::Empty;
use tracing::{debug_span, info, warn};

use crate::cache::DiskCache;
use crate::compile::{Compiler, Located, Search, Toolchain, locate, refusal};
use crate::error::{Error, Result};
use crate::plan::context::span::Timed;

/// NVRTC, with the results of locating, identifying and loading it.
pub(in crate::plan) struct Nvrtc {
    search: Search,
    located: OnceLock<Located>,
    toolchain: OnceLock<Toolchain>,
    compiler: OnceLock<(Compiler, Toolchain)>,
    /// Held while NVRTC is located or loaded, so that it happens once.
    loading: Mutex<()>,
}

impl Nvrtc {
    /// The NVRTC that a search finds.
    pub(in crate::plan) fn by(search: Search) -> Nvrtc {
        Nvrtc {
            search,
            located: OnceLock::new(),
            toolchain: OnceLock::new(),
            compiler: OnceLock::new(),
            loading: Mutex::new(()),
        }
    }

    /// The location of the library.
    pub(in crate::plan) fn located(&self) -> Result<&Located> {
        if let Some(located) = self.located.get() {
            return Ok(located);
        }
        let located = locate(&self.search)?;
        Ok(self.located.get_or_init(|| located))
    }

    /// The identity of the compiler: from memory, from the record in the cache folder, or by
    /// loading the library.
    pub(in crate::plan) fn toolchain(&self, disk: Option<&DiskCache>) -> Result<Toolchain> {
        if let Some(toolchain) = self.toolchain.get() {
            return Ok(toolchain.clone());
        }
        let located = match self.located() {
            Ok(located) => located,
            // Without NVRTC on this machine, entries of the toolchain that filled the cache are
            // still valid.
            Err(error) => {
                let known = disk.and_then(DiskCache::recall_latest).ok_or(error)?;
                return Ok(self.toolchain.get_or_init(|| known).clone());
            }
        };
        if let Some(known) = disk.and_then(|disk| disk.recall(located)) {
            return Ok(self.toolchain.get_or_init(|| known).clone());
        }
        let (_, toolchain) = self.compiler(disk)?;
        Ok(self.toolchain.get_or_init(|| toolchain.clone()).clone())
    }

    /// The compiler and its identity; it is loaded now if necessary.
    pub(in crate::plan) fn compiler(
        &self,
        disk: Option<&DiskCache>,
    ) -> Result<&(Compiler, Toolchain)> {
        if let Some(compiler) = self.compiler.get() {
            return Ok(compiler);
        }
        let _loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiler) = self.compiler.get() {
            return Ok(compiler);
        }
        let _span = Timed::new(debug_span!("toolchain", ns = Empty));
        let located = self.located()?;
        let start = Instant::now();
        let compiler = Compiler::load(&located.path)?;
        let refusal = self.search.driver.and_then(|driver| refusal(compiler.version(), driver));
        if let Some(refusal) = refusal {
            return Err(Error::no_compiler(format!("failed to use {located}: {refusal}")));
        }
        let toolchain = match disk.and_then(|disk| disk.recall(located)) {
            Some(known) if known.version == compiler.version() => known,
            _ => {
                let asked = Toolchain::of(&compiler)?;
                if let Some(Err(error)) = disk.map(|disk| disk.remember(located, &asked)) {
                    warn!("failed to remember the toolchain in the cache: {error}");
                }
                asked
            }
        };
        info!("loaded {compiler:?}, {}, in {:?}", located.found_by, start.elapsed());
        Ok(self.compiler.get_or_init(|| (compiler, toolchain)))
    }
}
