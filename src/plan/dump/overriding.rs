//! Replacing generated kernels by overrides.

use std::sync::Arc;

use tracing::warn;

use crate::cache::{Key, Pack, Request};
use crate::codegen::KernelSource;
use crate::compile::Image;
use crate::device::KernelName;
use crate::error::Result;
use crate::plan::context::kernel_store::Loaded;
use crate::plan::context::planner::Planner;
use crate::plan::dump::format::identifier;
use crate::plan::dump::read::Edit;

impl Planner {
    /// The edit that replaces a kernel.
    pub(in crate::plan) fn overriding(&self, source: &KernelSource) -> Option<&Edit> {
        let overrides = self.overrides.as_ref()?;
        let packed = self.store.packs.iter().map(Pack::toolchain).cloned();
        let keys: Vec<Key> = (self.store.toolchain().ok().into_iter().chain(packed))
            .map(|toolchain| Key::of(&Request::new(source, &toolchain)))
            .collect();
        let found = overrides.find(source, &keys)?;
        let name = keys.first().map_or(source.stem.clone(), |key| identifier(&source.stem, *key));
        warn!("kernel {name} is overridden by `{}`", found.edit.path.display());
        found.note(name);
        Some(&found.edit)
    }

    /// A kernel with the given PTX, which the device assembles; its resources are assumed to be
    /// unchanged.
    pub(in crate::plan) fn with_ptx(
        &self,
        loaded: &Loaded,
        source: &KernelSource,
        shared_bytes: u32,
        edit: &Edit,
    ) -> Result<Arc<Loaded>> {
        let image = Image { cubin: Vec::new(), ptx: edit.text.clone(), ..(*loaded.image).clone() };
        let name = KernelName { stem: &source.stem, entry: &source.entry };
        let kernel = self
            .store
            .device
            .load(&image, name, shared_bytes)
            .map_err(|error| error.context(format_args!("`{}`", edit.path.display())))?;
        Ok(Arc::new(Loaded {
            key: loaded.key.overridden(&edit.text),
            kernel,
            image: Arc::new(image),
            ..*loaded
        }))
    }
}
