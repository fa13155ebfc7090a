//! The tensors of a kernel's first launch, written into its dump: inputs before, outputs after.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;

use crate::device::Stream;
use crate::error::{Error, Result};
use crate::plan::dump::{INPUTS, OUTPUTS};
use crate::plan::execute::{PlanInner, PlannedKernel};
use crate::plan::tensors::write_packed;
use crate::plan::variant_pack::{Slot, VariantPack};
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

impl Capture {
    pub(super) fn new(folder: PathBuf, bytes_max: u64) -> Capture {
        Capture { folder, bytes_max, taken: AtomicBool::new(false) }
    }

    /// Runs `launch`, the plan's first, between two captures. What can not be captured is a
    /// warning: a dump never fails a call. A launch that fails leaves the inputs it failed with.
    #[cold]
    pub(super) fn around(
        &self,
        plan: &PlanInner,
        kernel: &PlannedKernel,
        stream: &Stream,
        pack: &VariantPack,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if self.taken.load(Ordering::Relaxed)
            || !kernel.fits(pack)
            || self.taken.swap(true, Ordering::Relaxed)
        {
            return launch();
        }
        let before = self.check_size(plan, kernel).and_then(|()| {
            let inputs: Vec<&TensorDesc> = plan.graph.inputs().collect();
            self.write(INPUTS, &inputs, plan, stream, pack)
        });
        launch()?;
        let outputs: Vec<&TensorDesc> = plan.graph.outputs().collect();
        let after = before.and_then(|()| self.write(OUTPUTS, &outputs, plan, stream, pack));
        if let Err(error) = after {
            warn!("the tensors of {} are not captured: {error}", kernel.report.stem);
        }
        Ok(())
    }

    fn check_size(&self, plan: &PlanInner, kernel: &PlannedKernel) -> Result<()> {
        if plan.device.kind() == "null" {
            return Err(Error::driver("the null device has no memory"));
        }
        let in_memory = kernel.bindings.iter().filter(|binding| binding.by_value.is_none());
        let spans = in_memory.map(|binding| binding.bytes);
        let (bytes, bytes_max) = (spans.fold(0, u64::saturating_add), self.bytes_max);
        match bytes > bytes_max {
            true => Err(Error::driver(format!(
                "they span {bytes} bytes, the limit is {bytes_max} (KILN_DUMP_TENSOR_BYTES)"
            ))),
            false => Ok(()),
        }
    }

    fn write(
        &self,
        name: &str,
        tensors: &[&TensorDesc],
        plan: &PlanInner,
        stream: &Stream,
        pack: &VariantPack,
    ) -> Result<()> {
        stream.synchronize()?;
        let mut addresses = HashMap::new();
        let mut packed = Vec::new();
        for tensor in tensors {
            let bytes = match pack.find(tensor.uid, 0).expect("the pack fits the plan") {
                Slot::Memory { address, .. } => {
                    addresses.insert(tensor.name.clone(), format!("{address:#x}"));
                    let mut span = vec![0; tensor.span_bytes()? as usize];
                    // A tensor without elements may lie anywhere.
                    if !span.is_empty() {
                        plan.device.read(*address, &mut span)?;
                    }
                    elements(tensor, &span)
                }
                Slot::Value(value) => {
                    let mut bytes = vec![0; tensor.dtype.bytes()];
                    tensor.dtype.write(*value, &mut bytes);
                    bytes
                }
            };
            packed.push((*tensor, bytes));
        }
        write_packed(&self.folder.join(name), &packed, Some(addresses))
    }
}

/// A tensor's elements out of the bytes it spans, in row-major order.
fn elements(tensor: &TensorDesc, span: &[u8]) -> Vec<u8> {
    let size = tensor.dtype.bytes();
    tensor.offsets().flat_map(|offset| &span[offset * size..][..size]).copied().collect()
}
