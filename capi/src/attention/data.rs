//! Descriptors of sequence data (sections 6.2.1.34 and 6.2.1.53).

use kiln::attention::{SequenceAxis, SequenceDataDescriptor, SequenceDataSettings};
use kiln::expr::Real;

use crate::attention::values::SeqDataAxis;
use crate::declare::functions;
use crate::fill::Fill;
use crate::object::{Ref, Settable, object};
use crate::pointer::{DataMut, InArray, Out, OutArray};
use crate::status::{Outcome, bad, refuse};
use crate::values::DataType;

/// `mcdnnSeqDataDescriptor_t`.
#[derive(Debug, Default)]
pub struct SeqData(Settable<Option<SequenceDataDescriptor>>);
object!(SeqData: "mcdnnSeqDataDescriptor_t", "sequence data descriptor", 11);

/// The number of axes.
const AXES: usize = 4;

impl SeqData {
    /// The number of what it says.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// What the descriptor of this name says.
    pub fn said(&self, name: &str) -> Outcome<SequenceDataDescriptor> {
        match &*self.0.read() {
            Some(own) => Ok(own.clone()),
            None => bad(format!("{name} was never set")),
        }
    }
}

functions! { FUNCTIONS:
    /// Makes a sequence data descriptor (6.2.1.7).
    fn mcdnnCreateSeqDataDescriptor(seqDataDesc: Out<Ref<SeqData>>) {
        let place = seqDataDesc.required("seqDataDesc")?;
        place.put(Ref::new(SeqData::default())?);
        Ok(())
    }

    /// Destroys a sequence data descriptor; NULL is none (6.2.1.12).
    fn mcdnnDestroySeqDataDescriptor(seqDataDesc: Ref<SeqData>) {
        seqDataDesc.destroy("seqDataDesc")
    }

    /// Describes the vectors of sequences (6.2.1.53): extents by axis, the order of axes in memory
    /// from the outermost one, of which the last is that of vectors, and the length of each
    /// sequence, the beam index fastest. paddingFill must be NULL.
    fn mcdnnSetSeqDataDescriptor(
        seqDataDesc: Ref<SeqData>,
        dataType: DataType,
        nbDims: i32,
        dimA: InArray<i32>,
        axes: InArray<SeqDataAxis>,
        seqLengthArraySize: usize,
        seqLengthArray: InArray<i32>,
        paddingFill: DataMut,
    ) {
        let data = seqDataDesc.get("seqDataDesc")?;
        dataType.known("dataType")?;
        if nbDims < 1 {
            return bad(format!("nbDims is {nbDims}, expected 4"));
        }
        if nbDims as usize != AXES {
            return refuse(format!("nbDims is {nbDims}, expected 4"));
        }
        let dims = dimA.all(AXES, "dimA")?;
        let axes = axes.all(AXES, "axes")?;
        let axes = axes.into_iter().map(SeqDataAxis::axis).collect::<Outcome<Vec<_>>>()?;
        let [batch, beam] = [SequenceAxis::Batch, SequenceAxis::Beam].map(|of| dims[of as usize]);
        // So many lengths are read, and no more than there are said to be.
        let count = i64::from(batch.max(0)) * i64::from(beam.max(0));
        if count != seqLengthArraySize as i64 {
            return bad(format!("seqLengthArraySize is {seqLengthArraySize}, expected {count}"));
        }
        let settings = SequenceDataSettings {
            data_type: dataType.dtype("dataType")?,
            nb_dims: nbDims,
            dims,
            axes,
            seq_lengths: seqLengthArray.all(seqLengthArraySize, "seqLengthArray")?,
            padding_fill: Fill::read(paddingFill, dataType).map(|of| Real::new(of.value())),
        };
        data.0.set(Some(SequenceDataDescriptor::set(settings)?));
        Ok(())
    }

    /// What a sequence data descriptor says (6.2.1.34). Places of what is not wanted are NULL; of
    /// arrays, as many elements as are asked for and there.
    fn mcdnnGetSeqDataDescriptor(
        seqDataDesc: Ref<SeqData>,
        dataType: Out<DataType>,
        nbDims: Out<i32>,
        nbDimsRequested: i32,
        dimA: OutArray<i32>,
        axes: OutArray<SeqDataAxis>,
        seqLengthArraySize: Out<usize>,
        seqLengthSizeRequested: usize,
        seqLengthArray: OutArray<i32>,
        paddingFill: DataMut,
    ) {
        let data = seqDataDesc.get("seqDataDesc")?;
        let asked = usize::try_from(nbDimsRequested)
            .or_else(|_| bad(format!("nbDimsRequested is {nbDimsRequested}")))?
            .min(AXES);
        nbDims.put(AXES as i32);
        let own = data.0.read();
        let Some(own) = own.as_ref().map(SequenceDataDescriptor::get) else {
            dataType.put(DataType::FLOAT);
            dimA.put([0; AXES].into_iter().take(asked));
            seqLengthArraySize.put(0);
            return Ok(());
        };
        dataType.put(DataType::of(own.data_type));
        dimA.put(own.dims.iter().copied().take(asked));
        axes.put(own.axes.iter().map(|axis| SeqDataAxis::of(*axis)).take(asked));
        seqLengthArraySize.put(own.seq_lengths.len());
        seqLengthArray.put(own.seq_lengths.iter().copied().take(seqLengthSizeRequested));
        Fill::zero(DataType::of(own.data_type)).write(paddingFill);
        Ok(())
    }
}
