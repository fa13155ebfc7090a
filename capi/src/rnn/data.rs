//! Descriptors of the vectors of recurrent networks (sections 6.2.1.19 and 6.2.1.47).

use kiln::dtype::DType;
use kiln::expr::Real;
use kiln::graph::RowLayout;
use kiln::rnn::{RnnDataDescriptor, RnnDataSettings};

use crate::declare::functions;
use crate::fill::Fill;
use crate::object::{Ref, Settable, object};
use crate::pointer::{DataMut, InArray, Out, OutArray};
use crate::rnn::values::RnnDataLayout;
use crate::status::{Failure, Outcome, bad};
use crate::values::DataType;

/// `mcdnnRNNDataDescriptor_t`.
#[derive(Debug, Default)]
pub struct RnnData(Settable<Vectors>);
object!(RnnData: "mcdnnRNNDataDescriptor_t", "RNN data descriptor", 9);

/// What a descriptor says.
#[derive(Debug, Clone)]
struct Vectors {
    data_type: DataType,
    layout: RnnDataLayout,
    max_length: i32,
    batch: i32,
    size: i32,
    lengths: Vec<i32>,
    fill: Option<Fill>,
    /// What Kiln takes it for; what packed sequences break is found out when they are used.
    taken: Result<RnnDataDescriptor, Failure>,
}

impl Default for Vectors {
    fn default() -> Vectors {
        Vectors {
            data_type: DataType::FLOAT,
            layout: RnnDataLayout::SEQ_MAJOR_UNPACKED,
            max_length: 0,
            batch: 0,
            size: 0,
            lengths: Vec::new(),
            fill: None,
            taken: bad("the RNN data descriptor was never set"),
        }
    }
}

impl RnnData {
    /// The number of what it says.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// Uses what the descriptor of this name says.
    pub fn with<T>(
        &self,
        name: &str,
        of: impl FnOnce(&RnnDataDescriptor) -> Outcome<T>,
    ) -> Outcome<T> {
        match &self.0.read().taken {
            Ok(taken) => of(taken),
            Err(failure) => {
                let text = format!("{name}: {failure}");
                Err(Failure { status: failure.status, text })
            }
        }
    }

    /// The type and the number of elements of a vector.
    pub fn input(&self) -> (DataType, i32) {
        let own = self.0.read();
        (own.data_type, own.size)
    }

    /// A descriptor that says what Kiln's does.
    pub fn of(taken: RnnDataDescriptor) -> RnnData {
        RnnData(Settable::new(Vectors { taken: Ok(taken), ..Vectors::default() }))
    }
}

/// Takes the arguments of a descriptor, of which `lengths` gives the lengths of so many sequences.
fn take(
    data_type: DataType,
    layout: RnnDataLayout,
    [max_length, batch, size]: [i32; 3],
    lengths: InArray<i32>,
    fill: DataMut,
) -> Outcome<Vectors> {
    data_type.known("dataType")?;
    let dtype: DType = data_type.dtype_or_integer("dataType")?;
    let row_layout = layout.layout()?;
    let sizes = [("maxSeqLength", max_length), ("batchSize", batch), ("vectorSize", size)];
    if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size < 1) {
        return bad(format!("{name} is {size}, expected at least 1"));
    }
    let lengths = lengths.all(batch as usize, "seqLengthArray")?;
    let fill = Fill::read(fill, data_type);
    let settings = RnnDataSettings {
        data_type: dtype,
        layout: row_layout,
        max_seq_length: max_length,
        batch_size: batch,
        vector_size: size,
        seq_lengths: lengths.clone(),
        padding_fill: fill.map(|fill| Real::new(fill.value())),
    };
    let taken = RnnDataDescriptor::set(settings.clone()).map_err(Failure::from);
    let late = row_layout == RowLayout::Packed && {
        // Lengths that increase are said to be in the wrong order when they are used.
        let mut sorted = lengths.clone();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        RnnDataDescriptor::set(RnnDataSettings { seq_lengths: sorted, ..settings }).is_ok()
    };
    let taken = match taken {
        Err(failure) if !late => return Err(failure),
        taken => taken,
    };
    Ok(Vectors { data_type, layout, max_length, batch, size, lengths, fill, taken })
}

functions! { FUNCTIONS:
    /// Makes an RNN data descriptor (6.2.1.5).
    fn mcdnnCreateRNNDataDescriptor(rnnDataDesc: Out<Ref<RnnData>>) {
        let place = rnnDataDesc.required("rnnDataDesc")?;
        place.put(Ref::new(RnnData::default())?);
        Ok(())
    }

    /// Destroys an RNN data descriptor; NULL is none (6.2.1.10).
    fn mcdnnDestroyRNNDataDescriptor(rnnDataDesc: Ref<RnnData>) {
        rnnDataDesc.destroy("rnnDataDesc")
    }

    /// Describes the vectors of all steps and sequences (6.2.1.47). Of outputs, those beyond a
    /// sequence's length are filled with the value at paddingFill, of type dataType; with NULL they
    /// are not defined. MCDNN_DATA_INT8 and MCDNN_DATA_UINT8 are of networks with a quantization
    /// (mcdnnKilnSetRNNQuantization).
    fn mcdnnSetRNNDataDescriptor(
        rnnDataDesc: Ref<RnnData>,
        dataType: DataType,
        layout: RnnDataLayout,
        maxSeqLength: i32,
        batchSize: i32,
        vectorSize: i32,
        seqLengthArray: InArray<i32>,
        paddingFill: DataMut,
    ) {
        let data = rnnDataDesc.get("rnnDataDesc")?;
        let sizes = [maxSeqLength, batchSize, vectorSize];
        data.0.set(take(dataType, layout, sizes, seqLengthArray, paddingFill)?);
        Ok(())
    }

    /// What an RNN data descriptor says (6.2.1.19): as many lengths as are asked for, those that
    /// are not there as 0.
    fn mcdnnGetRNNDataDescriptor(
        rnnDataDesc: Ref<RnnData>,
        dataType: Out<DataType>,
        layout: Out<RnnDataLayout>,
        maxSeqLength: Out<i32>,
        batchSize: Out<i32>,
        vectorSize: Out<i32>,
        arrayLengthRequested: i32,
        seqLengthArray: OutArray<i32>,
        paddingFill: DataMut,
    ) {
        let own = rnnDataDesc.get("rnnDataDesc")?.0.read().clone();
        let asked = usize::try_from(arrayLengthRequested)
            .or_else(|_| bad(format!("arrayLengthRequested is {arrayLengthRequested}")))?;
        let dataType = dataType.required("dataType")?;
        let layout = layout.required("layout")?;
        let maxSeqLength = maxSeqLength.required("maxSeqLength")?;
        let batchSize = batchSize.required("batchSize")?;
        let vectorSize = vectorSize.required("vectorSize")?;
        let lengths = seqLengthArray.required(asked, "seqLengthArray")?;
        paddingFill.required("paddingFill")?;
        dataType.put(own.data_type);
        layout.put(own.layout);
        maxSeqLength.put(own.max_length);
        batchSize.put(own.batch);
        vectorSize.put(own.size);
        lengths.put((0..asked).map(|at| own.lengths.get(at).copied().unwrap_or(0)));
        own.fill.unwrap_or(Fill::zero(own.data_type)).write(paddingFill);
        Ok(())
    }
}
