//! The tensors of a kernel's first launch, written into its dump: inputs before, outputs after.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use crate::cache::Held;
use crate::device::{Device, Stream};
use crate::error::{Error, Result};
use crate::plan::dump::{FILE_MODE, INPUTS, OUTPUTS};
use crate::plan::recipe::PlannedKernel;
use crate::plan::tensors::packed_bytes;
use crate::tensor::TensorDesc;

/// Where the first launch's tensors go.
#[derive(Debug)]
pub(super) struct Capture {
    folder: PathBuf,
    /// Dumping more than this is a mistake more often than not.
    bytes_max: u64,
    /// Set by the launch that is captured.
    taken: AtomicBool,
}

/// A launch that is about to run.
pub(super) struct Captured<'a> {
    pub(super) device: &'a Device,
    pub(super) kernel: &'a PlannedKernel,
    pub(super) stream: &'a Stream,
    /// Those of the recipe's bindings.
    pub(super) words: &'a [u64],
    pub(super) workspace: u64,
}

impl Capture {
    pub(super) fn new(folder: PathBuf, bytes_max: u64) -> Capture {
        Capture { folder, bytes_max, taken: AtomicBool::new(false) }
    }

    /// Runs `launch`, the kernel's first, between two captures. What can not be captured is a
    /// warning: a dump never fails a call. A launch that fails leaves the inputs it failed with.
    #[cold]
    pub(super) fn around(
        &self,
        of: &Captured<'_>,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.taken.swap(true, Ordering::Relaxed) {
            return launch();
        }
        let graph = &of.kernel.part.graph;
        let before = self.check_size(of).and_then(|()| self.write(INPUTS, graph.inputs(), of));
        launch()?;
        let after = before.and_then(|()| self.write(OUTPUTS, graph.outputs(), of));
        if let Err(error) = after {
            warn!("the tensors of {} are not captured: {error}", of.kernel.report.stem);
        }
        Ok(())
    }

    fn check_size(&self, of: &Captured<'_>) -> Result<()> {
        if of.device.kind() == "null" {
            return Err(Error::driver("the null device has no memory"));
        }
        let graph = &of.kernel.part.graph;
        let in_memory = graph.inputs().chain(graph.outputs()).filter(|tensor| !tensor.by_value);
        let bytes = in_memory.map(|tensor| tensor.span_bytes().unwrap_or(u64::MAX));
        let (bytes, bytes_max) = (bytes.fold(0, u64::saturating_add), self.bytes_max);
        match bytes > bytes_max {
            true => Err(Error::driver(format!(
                "they span {bytes} bytes, the limit is {bytes_max} (KILN_DUMP_TENSOR_BYTES)"
            ))),
            false => Ok(()),
        }
    }

    fn write<'a>(
        &self,
        name: &str,
        tensors: impl Iterator<Item = &'a TensorDesc>,
        of: &Captured<'_>,
    ) -> Result<()> {
        of.stream.synchronize()?;
        let mut addresses = HashMap::new();
        let mut packed = Vec::new();
        for tensor in tensors {
            let feed = of.kernel.tensors.iter().find(|(uid, _)| *uid == tensor.uid);
            let Some((_, feed)) = feed else { continue };
            let word = feed.word(of.words, of.workspace);
            let bytes = if tensor.by_value {
                let mut bytes = vec![0; tensor.dtype.bytes()];
                tensor.dtype.write(f64::from_bits(word), &mut bytes);
                bytes
            } else {
                addresses.insert(tensor.name.clone(), format!("{word:#x}"));
                let mut span = vec![0; tensor.span_bytes()? as usize];
                // A tensor without elements may lie anywhere.
                if !span.is_empty() {
                    of.device.read(word, &mut span)?;
                }
                elements(tensor, &span)
            };
            packed.push((tensor, bytes));
        }
        let bytes = packed_bytes(&packed, Some(addresses))?;
        let written = Held::open(&self.folder).and_then(|own| own.put(name, &bytes, FILE_MODE));
        written.map_err(|error| {
            let shown = self.folder.join(name);
            Error::driver(format!("failed to write tensors to `{}`: {error}", shown.display()))
        })
    }
}

/// A tensor's elements out of the bytes it spans, in row-major order.
fn elements(tensor: &TensorDesc, span: &[u8]) -> Vec<u8> {
    let size = tensor.dtype.bytes();
    tensor.offsets().flat_map(|offset| &span[offset * size..][..size]).copied().collect()
}
