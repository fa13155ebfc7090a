//! Capturing the tensors of a kernel's first launch in its dump: inputs before it, outputs after
//! it, and the memory that it shares with other launches.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use tracing::warn;

use crate::cache::Held;
use crate::device::{Device, Stream};
use crate::error::{Error, Result};
use crate::plan::dump::format::{AFTER, BEFORE, DumpLaunch, FILE_MODE, INPUTS, OUTPUTS};
use crate::plan::dump::memory::SharedMemory;
use crate::plan::problem::tensors::packed_bytes;
use crate::plan::recipe::{Capture, Feed, PlannedKernel};
use crate::tensor::TensorDesc;

/// A launch to capture.
pub(in crate::plan) struct Captured<'a> {
    pub(in crate::plan) device: &'a Device,
    pub(in crate::plan) kernel: &'a PlannedKernel,
    pub(in crate::plan) stream: &'a Stream,
    /// The values of the recipe's bindings.
    pub(in crate::plan) words: &'a [u64],
    pub(in crate::plan) workspace: u64,
}

impl Captured<'_> {
    /// Runs `launch`, the kernel's first one, and captures its tensors. A failure to capture is a
    /// warning and never fails the call. If the launch fails, the dump has its inputs.
    #[cold]
    pub(in crate::plan) fn around(
        &self,
        capture: &Capture,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if capture.taken.swap(true, Ordering::Relaxed) {
            return launch();
        }
        let graph = &self.kernel.part.graph;
        let shape = self.kernel.dump_launch();
        let before = self
            .check_size(capture, &shape)
            .and_then(|()| self.write(capture, INPUTS, graph.inputs()))
            .and_then(|()| self.write_shared(capture, BEFORE, &shape));
        launch()?;
        let after = before
            .and_then(|()| self.write(capture, OUTPUTS, graph.outputs()))
            .and_then(|()| self.write_shared(capture, AFTER, &shape));
        if let Err(error) = after {
            warn!("the tensors of {} are not captured: {error}", self.kernel.report.stem);
        }
        Ok(())
    }

    fn check_size(&self, capture: &Capture, launch: &DumpLaunch) -> Result<()> {
        if self.device.kind() == "null" {
            return Err(Error::driver("the null device has no memory"));
        }
        let graph = &self.kernel.part.graph;
        let in_memory = graph.inputs().chain(graph.outputs()).filter(|tensor| !tensor.by_value);
        let shared = SharedMemory::arguments(launch).map(|(_, argument)| argument.bytes);
        let bytes = in_memory.map(|tensor| tensor.span_bytes().unwrap_or(u64::MAX)).chain(shared);
        let (bytes, bytes_max) = (bytes.fold(0, u64::saturating_add), capture.bytes_max);
        match bytes > bytes_max {
            true => Err(Error::driver(format!(
                "they span {bytes} bytes, the limit is {bytes_max} (KILN_DUMP_TENSOR_BYTES)"
            ))),
            false => Ok(()),
        }
    }

    fn write<'a>(
        &self,
        capture: &Capture,
        name: &str,
        tensors: impl Iterator<Item = &'a TensorDesc>,
    ) -> Result<()> {
        self.stream.synchronize()?;
        let mut addresses = HashMap::new();
        let mut packed = Vec::new();
        for tensor in tensors {
            let feed = self.kernel.tensors.iter().find(|(uid, _)| *uid == tensor.uid);
            let Some((_, feed)) = feed else { continue };
            let word = feed.word(self.words, self.workspace);
            let bytes = if tensor.by_value {
                let mut bytes = vec![0; tensor.dtype.bytes()];
                tensor.dtype.write(f64::from_bits(word), &mut bytes);
                bytes
            } else {
                addresses.insert(tensor.name.clone(), format!("{word:#x}"));
                let mut span = vec![0; tensor.span_bytes()? as usize];
                // A tensor without elements may have any address.
                if !span.is_empty() {
                    self.device.read(word, &mut span)?;
                }
                elements(tensor, &span)
            };
            packed.push((tensor, bytes));
        }
        put(capture, name, &packed_bytes(&packed, Some(addresses))?)
    }

    /// Writes the memory that the launch shares with others, if any.
    fn write_shared(&self, capture: &Capture, name: &str, launch: &DumpLaunch) -> Result<()> {
        if !launch.shares_memory() {
            return Ok(());
        }
        self.stream.synchronize()?;
        let feed = |at: usize| match self.kernel.feeds[at] {
            Feed::Map(map) => self.kernel.map_bases[map],
            feed => feed,
        };
        let memory = SharedMemory::captured(launch, |at, bytes| {
            self.device.read(feed(at).whole().word(self.words, self.workspace), bytes)
        });
        put(capture, name, &memory?.into_file()?)
    }
}

fn put(capture: &Capture, name: &str, bytes: &[u8]) -> Result<()> {
    let written = Held::open(&capture.folder).and_then(|own| own.put(name, bytes, FILE_MODE));
    written.map_err(|error| {
        let shown = capture.folder.join(name);
        Error::io(format!("failed to write tensors to `{}`: {error}", shown.display()))
    })
}

/// A tensor's elements in row-major order, from its strided memory.
fn elements(tensor: &TensorDesc, span: &[u8]) -> Vec<u8> {
    let size = tensor.dtype.bytes();
    tensor.offsets().flat_map(|offset| &span[offset * size..][..size]).copied().collect()
}
