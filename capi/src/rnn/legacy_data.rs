//! What the old interface describes vectors and weights by: a tensor descriptor for each step, and
//! a filter descriptor. Sizes and weights of networks so described.

use kiln::expr::Real;
use kiln::graph::RowLayout;
use kiln::rnn::{RnnDataDescriptor, RnnDataSettings, WeightSlice};

use crate::declare::functions;
use crate::filter::{Extents, Filter};
use crate::handle::Handle;
use crate::kept::workspace_bytes;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray, Out};
use crate::rnn::data::RnnData;
use crate::rnn::descriptor::{Record, RnnNetwork, SetBy};
use crate::rnn::forward::temp_space;
use crate::status::{Outcome, Status, bad, fail, refuse};
use crate::tensor::{Layout, Tensor};
use crate::values::{DataType, TensorFormat};

impl RnnNetwork {
    /// What it says of a network whose input has a type and a size.
    pub fn with_input(&self, data_type: DataType, size: i32) -> Outcome<Record> {
        let record = *self.0.read();
        match record.set_by {
            SetBy::Nothing => fail(Status::BAD_PARAM, "rnnDesc was never set"),
            SetBy::V8 if record.quantization.is_some() => {
                refuse("rnnDesc has 8-bit integers, which the old interface does not")
            }
            SetBy::V8 => {
                let Record { data_type: own, input_size, .. } = record;
                match (own, input_size) == (data_type, size) {
                    true => Ok(record),
                    false => bad(format!(
                        "the input has type {} and size {size}, rnnDesc {} and {input_size}",
                        DataType::TABLE.shown(data_type.0),
                        DataType::TABLE.shown(own.0)
                    )),
                }
            }
            SetBy::V6 => {
                let record = Record { data_type, input_size: size, ..record };
                record.check()?;
                Ok(record)
            }
        }
    }
}

/// The vectors of a step: its sequences, and the elements of a vector. Descriptors are packed, with
/// dimensions {sequences, elements, 1}.
fn step(descriptor: Ref<Tensor>, name: &str) -> Outcome<(DataType, i32, i32)> {
    let Layout { data_type, dims, strides } = descriptor.get(name)?.layout();
    let [batch, size, 1] = dims[..] else {
        return bad(format!("{name} has dimensions {dims:?}, expected 3 of which the last is 1"));
    };
    if strides != [size, 1, 1] {
        return bad(format!("{name} has strides {strides:?}, expected {:?}", [size, 1, 1]));
    }
    Ok((data_type, batch, size))
}

/// Packed sequences, from a descriptor for each of their steps.
pub struct Steps {
    /// The type of elements.
    pub data_type: DataType,
    /// Elements of a vector.
    pub size: i32,
    /// Descriptor of the vectors.
    pub data: RnnData,
}

impl Steps {
    /// Those of an array of this name.
    pub fn read(count: i32, descriptors: InArray<Ref<Tensor>>, name: &str) -> Outcome<Steps> {
        if count < 1 {
            return bad(format!("seqLength is {count}, expected at least 1"));
        }
        let all = descriptors.all(count as usize, name)?;
        let (data_type, batch, size) = step(all[0], name)?;
        let mut lengths = vec![0; batch as usize];
        let mut before = batch;
        for (at, descriptor) in all.into_iter().enumerate() {
            let (own_type, own, own_size) = step(descriptor, name)?;
            if (own_type, own_size) != (data_type, size) {
                return bad(format!("{name}[{at}] has another type or size than {name}[0]"));
            }
            if own > before {
                return bad(format!("{name}[{at}] has {own} sequences after {before}"));
            }
            before = own;
            lengths[..own as usize].iter_mut().for_each(|length| *length += 1);
        }
        let settings = RnnDataSettings {
            data_type: data_type.dtype(name)?,
            layout: RowLayout::Packed,
            max_seq_length: count,
            batch_size: batch,
            vector_size: size,
            seq_lengths: lengths,
            padding_fill: Some(Real::new(0.0)),
        };
        let data = RnnData::of(RnnDataDescriptor::set(settings)?);
        Ok(Steps { data_type, size, data })
    }
}

/// Bytes of the memory that a network needs for steps.
fn sizes(
    handle: Ref<Handle>,
    rnn: Ref<RnnNetwork>,
    (count, x): (i32, InArray<Ref<Tensor>>),
    training: bool,
) -> Outcome<kiln::layers::TempSpace> {
    let handle = handle.get("handle")?;
    let rnn = rnn.get("rnnDesc")?;
    let steps = Steps::read(count, x, "xDesc")?;
    let record = rnn.with_input(steps.data_type, steps.size)?;
    temp_space(&handle, &record, &steps.data, training)
}

/// A matrix or bias of weights as the old interface gives it: shape and address.
fn put(
    slice: Option<WeightSlice>,
    base: Data,
    data_type: DataType,
    (descriptor, address): (&Filter, Out<DataMut>),
) {
    let Some(WeightSlice { offset_bytes, rows, columns }) = slice else {
        descriptor.0.set(Extents::default());
        address.put(DataMut::NULL);
        return;
    };
    let (format, dims) = (TensorFormat::NCHW, vec![1, rows as i32, columns as i32]);
    descriptor.0.set(Extents { data_type, format, dims });
    address.put(DataMut::of(base.address() + offset_bytes));
}

/// The weights that a linLayerID names, of which `of` picks one, put where they are asked for.
struct Asked {
    handle: Ref<Handle>,
    rnn: Ref<RnnNetwork>,
    layer: i32,
    x: Ref<Tensor>,
    w_desc: Ref<Filter>,
    w: Data,
    id: i32,
}

impl Asked {
    fn put(
        self,
        of: fn(kiln::rnn::WeightParams) -> Option<WeightSlice>,
        (name, descriptor): (&str, Ref<Filter>),
        (address_name, address): (&str, Out<DataMut>),
    ) -> Outcome {
        self.handle.get("handle")?;
        let rnn = self.rnn.get("rnnDesc")?;
        let (data_type, _, size) = step(self.x, "xDesc")?;
        let record = rnn.with_input(data_type, size)?;
        let bytes = self.w_desc.get("wDesc")?.0.read().bytes();
        self.w.required("w")?;
        let descriptor = descriptor.get(name)?;
        let address = address.required(address_name)?;
        let params = record.weight_params(self.layer, self.id, bytes)?;
        put(of(params), self.w, data_type, (&descriptor, address));
        Ok(())
    }
}

functions! { FUNCTIONS:
    /// Bytes of the weights of a network.
    fn mcdnnGetRNNParamsSize(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        xDesc: Ref<Tensor>,
        sizeInBytes: Out<usize>,
        dataType: DataType,
    ) {
        handle.get("handle")?;
        let rnn = rnnDesc.get("rnnDesc")?;
        let place = sizeInBytes.required("sizeInBytes")?;
        let (own, _, size) = step(xDesc, "xDesc")?;
        if own != dataType {
            return bad("dataType is not that of xDesc");
        }
        place.put(rnn.with_input(own, size)?.weight_space()?.bytes() as usize);
        Ok(())
    }

    /// Bytes of the workspace for sequences of so many steps.
    fn mcdnnGetRNNWorkspaceSize(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        sizeInBytes: Out<usize>,
    ) {
        let place = sizeInBytes.required("sizeInBytes")?;
        // The same workspace serves the passes of training.
        let sizes = sizes(handle, rnnDesc, (seqLength, xDesc), true)?;
        place.put(workspace_bytes(sizes.workspace_bytes) as usize);
        Ok(())
    }

    /// Bytes of the reserve space for sequences of so many steps.
    fn mcdnnGetRNNTrainingReserveSize(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        seqLength: i32,
        xDesc: InArray<Ref<Tensor>>,
        sizeInBytes: Out<usize>,
    ) {
        let place = sizeInBytes.required("sizeInBytes")?;
        let sizes = sizes(handle, rnnDesc, (seqLength, xDesc), true)?;
        place.put(sizes.reserve_bytes as usize);
        Ok(())
    }

    /// Shape {1, rows, columns} and address of a weight matrix; of one that is absent, no
    /// dimensions and NULL.
    fn mcdnnGetRNNLinLayerMatrixParams(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        pseudoLayer: i32,
        xDesc: Ref<Tensor>,
        wDesc: Ref<Filter>,
        w: Data,
        linLayerID: i32,
        linLayerMatDesc: Ref<Filter>,
        linLayerMat: Out<DataMut>,
    ) {
        let (x, w_desc, layer, id) = (xDesc, wDesc, pseudoLayer, linLayerID);
        let asked = Asked { handle, rnn: rnnDesc, layer, x, w_desc, w, id };
        let (name, address) = ("linLayerMatDesc", ("linLayerMat", linLayerMat));
        asked.put(|params| params.matrix, (name, linLayerMatDesc), address)
    }

    /// Shape {1, rows, 1} and address of a bias; of one that is absent, no dimensions and NULL.
    fn mcdnnGetRNNLinLayerBiasParams(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        pseudoLayer: i32,
        xDesc: Ref<Tensor>,
        wDesc: Ref<Filter>,
        w: Data,
        linLayerID: i32,
        linLayerBiasDesc: Ref<Filter>,
        linLayerBias: Out<DataMut>,
    ) {
        let (x, w_desc, layer, id) = (xDesc, wDesc, pseudoLayer, linLayerID);
        let asked = Asked { handle, rnn: rnnDesc, layer, x, w_desc, w, id };
        let (name, address) = ("linLayerBiasDesc", ("linLayerBias", linLayerBias));
        asked.put(|params| params.bias, (name, linLayerBiasDesc), address)
    }
}
