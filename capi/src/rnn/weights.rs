//! Where the weights of a network are (sections 6.2.1.31 and 6.2.1.32).

use kiln::rnn::{Rnn, Role, WeightParams, WeightSlice, WeightSpace};

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, Out};
use crate::rnn::descriptor::{Record, RnnNetwork};
use crate::status::{Outcome, Status, bad, fail, refuse};
use crate::tensor::{Layout, Tensor};

/// The largest linLayerID.
const LIN_LAYER_MAX: i32 = 8;

/// Numbers behind integers are aligned to so many bytes, as graphs want tensors to be.
const NUMBERS_ALIGNMENT: u64 = 16;

/// Where the parts of a weight space are.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Bytes of the whole.
    pub bytes: u64,
    /// Of a quantised network, the first byte behind its integers, and that of its numbers.
    pub integers: Option<(u64, u64)>,
}

impl Parts {
    /// Those of a network.
    pub fn of(rnn: &Rnn) -> Outcome<Parts> {
        let space = WeightSpace::new(rnn)?;
        if rnn.quantization.is_none() {
            return Ok(Parts { bytes: space.bytes(), integers: None });
        }
        let end = space.elements_of(Role::Weights) as u64;
        let first = end.next_multiple_of(NUMBERS_ALIGNMENT);
        let bytes = space.bytes() - end + first;
        Ok(Parts { bytes, integers: Some((end, first)) })
    }

    /// Refuses a space of fewer bytes, whose size is an argument of this name.
    pub fn check(&self, name: &str, bytes: usize) -> Outcome {
        match bytes as u64 >= self.bytes {
            true => Ok(()),
            false => bad(format!("{name} is {bytes}, expected at least {}", self.bytes)),
        }
    }
}

impl Record {
    /// The layout of the weight space.
    pub fn weight_space(&self) -> Outcome<WeightSpace> {
        Ok(WeightSpace::new(&self.descriptor()?.rnn())?)
    }

    /// The weights of a pseudo-layer with a linLayerID in a space of so many bytes.
    pub fn weight_params(&self, layer: i32, id: i32, bytes: usize) -> Outcome<WeightParams> {
        if self.quantization.is_some() {
            return refuse("weights of 8-bit integers are made by mcdnnKilnQuantizeRNNWeights");
        }
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
        let parts = Parts::of(&rnn.v8()?.descriptor()?.rnn())?;
        place.put(parts.bytes as usize);
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
