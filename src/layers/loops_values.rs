//! Running a network with loops once on host values, for checks and the command line.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::layers::loops::LoopsPlan;
use crate::plan::{Kiln, Values, VariantPack};

impl LoopsPlan {
    /// Uploads inputs, runs the network once on the device that it was planned for, and downloads
    /// its outputs.
    ///
    /// # Errors
    /// As [`LoopsPlan::execute`]; `BadParam` when an input has no values or not as many as its
    /// tensor has elements, `OutOfMemory` when device memory is exhausted.
    pub fn trial(&self, kiln: &Kiln, inputs: &Values) -> Result<Values> {
        let mut pack = VariantPack::new();
        let mut buffers = HashMap::new();
        let network = self.network();
        for tensor in network.inputs() {
            let values = inputs.get(&tensor.uid).map_or(&[][..], Vec::as_slice);
            let (count, given) = (tensor.elements().unwrap_or(0) as usize, values.len());
            if count != given {
                let name = &tensor.name;
                let text =
                    format!("input `{name}` has {given} values, its tensor {count} elements");
                return Err(Error::bad_param(text));
            }
            if tensor.by_value {
                pack.set_value(tensor.uid, values[0]);
                continue;
            }
            let mut bytes = vec![0; tensor.span_bytes()? as usize];
            for (value, offset) in values.iter().zip(tensor.offsets()) {
                tensor.dtype.write(*value, &mut bytes[offset * tensor.dtype.bytes()..]);
            }
            pack = pack.with(tensor.uid, &kiln.device().upload(&bytes)?);
        }
        for tensor in network.outputs() {
            let buffer = kiln.device().alloc(tensor.span_bytes()?)?;
            pack = pack.with(tensor.uid, &buffer);
            buffers.insert(tensor.uid, buffer);
        }
        let workspace = kiln.device().alloc(self.workspace_bytes())?;
        let stream = kiln.stream();
        let ran = self.execute(&stream, &pack.with_workspace(&workspace));
        stream.synchronize()?;
        ran?;
        let mut outputs = Values::new();
        for tensor in network.outputs() {
            let (bytes, size) = (buffers[&tensor.uid].to_vec()?, tensor.dtype.bytes());
            let element = |offset: usize| tensor.dtype.read(&bytes[offset * size..]);
            outputs.insert(tensor.uid, tensor.offsets().map(element).collect());
        }
        Ok(outputs)
    }
}
