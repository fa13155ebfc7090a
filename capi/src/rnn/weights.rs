//! Where the weights of a network are (sections 6.2.1.31 and 6.2.1.32).

use kiln::rnn::{WeightParams, WeightSlice, WeightSpace};

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, Out};
use crate::rnn::descriptor::{Record, RnnNetwork};
use crate::status::{Outcome, Status, bad, fail};
use crate::tensor::{Layout, Tensor};

/// The largest linLayerID.
const LIN_LAYER_MAX: i32 = 8;

impl Record {
    /// The layout of the weight space.
    pub fn weight_space(&self) -> Outcome<WeightSpace> {
        Ok(WeightSpace::new(&self.descriptor()?.rnn())?)
    }

    /// The weights of a pseudo-layer with a linLayerID in a space of so many bytes.
    pub fn weight_params(&self, layer: i32, id: i32, bytes: usize) -> Outcome<WeightParams> {
        let space = self.weight_space()?;
        let count = space.pseudo_layers();
        if !(0..count as i64).contains(&i64::from(layer)) {
            return bad(format!("pseudoLayer is {layer}, the network has {count}"));
        }
        if !(0..=LIN_LAYER_MAX).contains(&id) {
            return bad(format!("linLayerID is {id}, expected 0 to {LIN_LAYER_MAX}"));
        }
        // What is left to be wrong is that the weights end behind the space.
        space
            .params(layer, id, bytes as u64)
            .or_else(|error| fail(Status::INVALID_VALUE, error.to_string()))
    }
}

/// Puts the shape and the address of weights; of those that are absent, no dimensions and NULL.
fn put(
    slice: Option<WeightSlice>,
    base: Data,
    record: &Record,
    (descriptor, address): (&Tensor, Out<DataMut>),
) -> Outcome {
    let Some(WeightSlice { offset_bytes, rows, columns }) = slice else {
        descriptor.set(Layout::default());
        address.put(DataMut::NULL);
        return Ok(());
    };
    descriptor.set(Layout::packed(record.data_type, &[1, rows as i32, columns as i32])?);
    address.put(DataMut::of(base.address() + offset_bytes));
    Ok(())
}

functions! { FUNCTIONS:
    /// Bytes of the weights of a network (6.2.1.32).
    fn mcdnnGetRNNWeightSpaceSize(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        weightSpaceSize: Out<usize>,
    ) {
        handle.get("handle")?;
        let rnn = rnnDesc.get("rnnDesc")?;
        let place = weightSpaceSize.required("weightSpaceSize")?;
        place.put(rnn.v8()?.weight_space()?.bytes() as usize);
        Ok(())
    }

    /// Shape and address of a weight matrix and of its bias (6.2.1.31). What the network does not
    /// have has no dimensions and the address NULL. The weights may be in memory of the host.
    fn mcdnnGetRNNWeightParams(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        pseudoLayer: i32,
        weightSpaceSize: usize,
        weightSpace: Data,
        linLayerID: i32,
        mDesc: Ref<Tensor>,
        mAddr: Out<DataMut>,
        bDesc: Ref<Tensor>,
        bAddr: Out<DataMut>,
    ) {
        handle.get("handle")?;
        let rnn = rnnDesc.get("rnnDesc")?;
        weightSpace.required("weightSpace")?;
        let matrix = (&*mDesc.get("mDesc")?, mAddr.required("mAddr")?);
        let bias = (&*bDesc.get("bDesc")?, bAddr.required("bAddr")?);
        let record = rnn.v8()?;
        let params = record.weight_params(pseudoLayer, linLayerID, weightSpaceSize)?;
        put(params.matrix, weightSpace, &record, matrix)?;
        put(params.bias, weightSpace, &record, bias)
    }
}
