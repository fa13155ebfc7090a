//! Sizes of a layer's memory, and where its weights are (sections 6.2.1.15 and 6.2.1.16).

use kiln::attention::AttentionWeights;

use crate::attention::descriptor::Attention;
use crate::attention::values::AttentionWeightKind;
use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, Out};
use crate::tensor::{Layout, Tensor};

functions! { FUNCTIONS:
    /// Bytes of weights, workspace and reserve space of the largest call (6.2.1.15). With NULL for
    /// the reserve space, the workspace is that of inference.
    fn mcdnnGetMultiHeadAttnBuffers(
        handle: Ref<Handle>,
        attnDesc: Ref<Attention>,
        weightSizeInBytes: Out<usize>,
        workSpaceSizeInBytes: Out<usize>,
        reserveSpaceSizeInBytes: Out<usize>,
    ) {
        handle.get("handle")?;
        let descriptor = attnDesc.get("attnDesc")?.descriptor()?;
        let weights = weightSizeInBytes.required("weightSizeInBytes")?;
        let workspace = workSpaceSizeInBytes.required("workSpaceSizeInBytes")?;
        let buffers = descriptor.buffers(!reserveSpaceSizeInBytes.is_null())?;
        weights.put(buffers.weight_bytes as usize);
        workspace.put(buffers.workspace_bytes as usize);
        reserveSpaceSizeInBytes.put(buffers.reserve_bytes as usize);
        Ok(())
    }

    /// Shape [heads, projected size, size], strides and address of weights or biases (6.2.1.16).
    /// Those that are absent have no dimensions and the address NULL. The weights may be in memory
    /// of the host.
    fn mcdnnGetMultiHeadAttnWeights(
        handle: Ref<Handle>,
        attnDesc: Ref<Attention>,
        wKind: AttentionWeightKind,
        weightSizeInBytes: usize,
        weights: Data,
        wDesc: Ref<Tensor>,
        wAddr: Out<DataMut>,
    ) {
        handle.get("handle")?;
        let attention = attnDesc.get("attnDesc")?;
        let kind = wKind.kind()?;
        let base = weights.required("weights")?;
        let tensor = wDesc.get("wDesc")?;
        let place = wAddr.required("wAddr")?;
        let record = attention.record()?;
        let layout = AttentionWeights::new(&attention.descriptor()?)?;
        let Some(slice) = layout.get(kind, weightSizeInBytes as u64)? else {
            tensor.set(Layout::default());
            place.put(DataMut::NULL);
            return Ok(());
        };
        let [dims, strides] =
            [slice.dims, slice.strides].map(|all| all.map(|of| of as i32).to_vec());
        tensor.set(Layout { data_type: record.data_type, dims, strides });
        let bytes = slice.offset as u64 * record.data_type.bytes() as u64;
        place.put(DataMut::of(base + bytes));
        Ok(())
    }
}
