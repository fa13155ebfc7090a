//! Recurrent networks of 8-bit integers, which the documents do not have.

use kiln::DType;
use kiln::graph::Quantization;

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut};
use crate::rnn::descriptor::{Record, RnnNetwork};
use crate::rnn::weights::Parts;
use crate::status::bad;
use crate::values::DataType;

functions! { FUNCTIONS:
    /// Makes a network that mcdnnSetRNNDescriptor_v8 has described, of type float, one of 8-bit
    /// integers for inference: x, y, hx and hy are of dataType, MCDNN_DATA_INT8 or
    /// MCDNN_DATA_UINT8, cx and cy float. An integer is a number times scale plus shift, which is
    /// an integer too, rounded to nearest even and saturated. mcdnnSetRNNDescriptor_v8 makes it one
    /// of float again.
    fn mcdnnKilnSetRNNQuantization(
        rnnDesc: Ref<RnnNetwork>,
        dataType: DataType,
        scale: f64,
        shift: f64,
    ) {
        let rnn = rnnDesc.get("rnnDesc")?;
        let record = rnn.v8()?;
        let dtype = dataType.known("dataType")?.dtype_or_integer("dataType")?;
        let integer = shift as i64;
        if integer as f64 != shift {
            return bad(format!("shift is {shift}, expected an integer"));
        }
        rnn.0.set(record.quantised(dtype, Quantization::new(scale, integer))?);
        Ok(())
    }

    /// Makes the weight space of a network of 8-bit integers from that of the network as it was in
    /// float: of each row of a matrix the largest weight is 127 or -127, and the row has a scale;
    /// biases stay float. Both are in device memory, of mcdnnGetRNNWeightSpaceSize bytes with the
    /// quantization and without. The weights go through memory of the host: the call waits for what
    /// is queued on the handle's stream, and has written them when it returns.
    fn mcdnnKilnQuantizeRNNWeights(
        handle: Ref<Handle>,
        rnnDesc: Ref<RnnNetwork>,
        floatWeightSpaceSize: usize,
        floatWeightSpace: Data,
        weightSpaceSize: usize,
        weightSpace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        let record = rnnDesc.get("rnnDesc")?.v8()?;
        let from = floatWeightSpace.required("floatWeightSpace")?;
        let to = weightSpace.required("weightSpace")?;
        let rnn = record.descriptor()?.rnn();
        let parts = Parts::of(&rnn)?;
        let Some((end, first)) = parts.integers else {
            return bad("rnnDesc has no quantization: mcdnnKilnSetRNNQuantization sets one");
        };
        let in_float = Record { quantization: None, ..record };
        let given = Parts::of(&in_float.descriptor()?.rnn())?;
        given.check("floatWeightSpaceSize", floatWeightSpaceSize)?;
        parts.check("weightSpaceSize", weightSpaceSize)?;
        let stream = handle.stream();
        let mut last = [0];
        // SAFETY: the program gives memory of so many bytes. Where it does not, the last byte is
        // missing, and nothing is asked of the host.
        unsafe { stream.read_address(from.saturating_add(given.bytes - 1), &mut last) }?;
        let mut bytes = vec![0; given.bytes as usize];
        // SAFETY: as above.
        unsafe { stream.read_address(from, &mut bytes) }?;
        let numbers = bytes.chunks_exact(DType::F32.bytes()).map(|of| DType::F32.read(of));
        let weights = rnn.quantise_weights(&numbers.collect::<Vec<_>>(), |row| row.factor())?;
        let mut space = rnn.encode(&weights);
        let padding = vec![0; (first - end) as usize];
        space.splice(end as usize..end as usize, padding);
        // SAFETY: as above.
        Ok(unsafe { stream.write_address(to, &space) }?)
    }
}
