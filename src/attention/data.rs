//! mcDNN's sequence data descriptor (`mcdnnSetSeqDataDescriptor`, section 6.2.1.53) with its
//! checks.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;

/// `mcdnnSeqDataAxis_t` (section 6.1.2.10); the value is the index into the dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SequenceAxis {
    /// `MCDNN_SEQDATA_TIME_DIM`: time steps.
    Time,
    /// `MCDNN_SEQDATA_BATCH_DIM`: batch.
    Batch,
    /// `MCDNN_SEQDATA_BEAM_DIM`: beam candidates.
    Beam,
    /// `MCDNN_SEQDATA_VECT_DIM`: elements of a vector.
    Vector,
}

/// `MCDNN_SEQDATA_DIM_COUNT`.
const AXES: usize = 4;

impl SequenceAxis {
    /// All axes, in the order of the dimensions.
    pub const ALL: [SequenceAxis; AXES] =
        [SequenceAxis::Time, SequenceAxis::Batch, SequenceAxis::Beam, SequenceAxis::Vector];

    /// Name in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            SequenceAxis::Time => "time",
            SequenceAxis::Batch => "batch",
            SequenceAxis::Beam => "beam",
            SequenceAxis::Vector => "vector",
        }
    }
}

/// Arguments of `mcdnnSetSeqDataDescriptor`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SequenceDataSettings {
    /// f16, f32, f64, or bf16, which the document does not list.
    pub data_type: DType,
    /// Number of dimensions in use: 4.
    pub nb_dims: i32,
    /// Extents by [`SequenceAxis`], in the order of [`SequenceAxis::ALL`].
    pub dims: Vec<i32>,
    /// Memory order, outermost first; the vector axis is innermost.
    pub axes: Vec<SequenceAxis>,
    /// Number of steps of each sequence, with the beam index fastest, in every layout.
    pub seq_lengths: Vec<i32>,
    /// Fill value beyond a sequence's length: must be `None`, undefined.
    pub padding_fill: Option<Real>,
}

impl SequenceDataSettings {
    /// Full-length f32 sequences in the order batch, beam, time.
    pub fn new(batch: i32, beam: i32, time: i32, vector: i32) -> SequenceDataSettings {
        use SequenceAxis::{Batch, Beam, Time, Vector};
        let count = i64::from(batch.max(0)) * i64::from(beam.max(0));
        SequenceDataSettings {
            data_type: DType::F32,
            nb_dims: AXES as i32,
            dims: vec![time, batch, beam, vector],
            axes: vec![Batch, Beam, Time, Vector],
            seq_lengths: vec![time; count as usize],
            padding_fill: None,
        }
    }
}

/// Result of `mcdnnGetSeqDataDescriptor` (section 6.2.1.34).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SequenceDataView<'a> {
    /// Element type.
    pub data_type: DType,
    /// Number of dimensions.
    pub nb_dims: i32,
    /// The first dimensions, as many as requested.
    pub dims: &'a [i32],
    /// The outermost axes, as many as requested.
    pub axes: &'a [SequenceAxis],
    /// Number of sequences.
    pub seq_length_count: usize,
    /// Lengths of the first sequences, as many as requested.
    pub seq_lengths: &'a [i32],
    /// Fill value beyond a sequence's length.
    pub padding_fill: Option<Real>,
}

/// A valid sequence data descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SequenceDataDescriptor {
    settings: SequenceDataSettings,
}

fn bad<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("sequence data descriptor: {rule}")))
}

fn refuse<T>(rule: String) -> Result<T> {
    Err(Error::not_supported(format!("sequence data descriptor: {rule}")))
}

impl SequenceDataDescriptor {
    /// Validates the arguments.
    ///
    /// # Errors
    /// `BadParam` for a number of dimensions below 1, a number of `dims` or `axes` other than 4, an
    /// extent below 1, more than 2^31 - 1 sequences, a duplicate axis, a vector axis that is not
    /// innermost, a number of lengths other than the number of sequences, or a length below 0 or
    /// above the time extent; `NotSupported` for a number of dimensions other than 4, another type
    /// or a fill value.
    pub fn set(settings: SequenceDataSettings) -> Result<SequenceDataDescriptor> {
        settings.check_dims()?;
        settings.check_axes()?;
        settings.check_lengths()?;
        Ok(SequenceDataDescriptor { settings })
    }

    /// The arguments.
    pub fn get(&self) -> &SequenceDataSettings {
        &self.settings
    }

    /// The arguments, truncated to the requested numbers of dimensions, axes and lengths
    /// (`mcdnnGetSeqDataDescriptor`).
    ///
    /// # Errors
    /// `BadParam` for a negative number.
    pub fn view(
        &self,
        nb_dims_requested: i32,
        seq_lengths_requested: usize,
    ) -> Result<SequenceDataView<'_>> {
        let SequenceDataSettings { data_type, nb_dims, dims, axes, seq_lengths, padding_fill } =
            &self.settings;
        let Ok(requested) = usize::try_from(nb_dims_requested) else {
            return bad(format!("{nb_dims_requested} dimensions are requested"));
        };
        let count = requested.min(AXES);
        Ok(SequenceDataView {
            data_type: *data_type,
            nb_dims: *nb_dims,
            dims: &dims[..count],
            axes: &axes[..count],
            seq_length_count: seq_lengths.len(),
            seq_lengths: &seq_lengths[..seq_lengths_requested.min(seq_lengths.len())],
            padding_fill: *padding_fill,
        })
    }

    /// Extent along an axis.
    pub fn extent(&self, axis: SequenceAxis) -> i64 {
        i64::from(self.settings.dims[axis as usize])
    }

    /// Memory order of the vectors, outermost first.
    pub fn order(&self) -> [SequenceAxis; 3] {
        [0, 1, 2].map(|at| self.settings.axes[at])
    }
}

impl SequenceDataSettings {
    fn check_dims(&self) -> Result<()> {
        let SequenceDataSettings { data_type, nb_dims, dims, axes, .. } = self;
        if *nb_dims < 1 {
            return bad(format!("{nb_dims} dimensions, expected 4"));
        }
        if *nb_dims != AXES as i32 {
            return refuse(format!("{nb_dims} dimensions, expected 4"));
        }
        if dims.len() != AXES || axes.len() != AXES {
            let (dims, axes) = (dims.len(), axes.len());
            return bad(format!("{dims} extents and {axes} axes of 4 dimensions"));
        }
        if !data_type.is_float() {
            return refuse(format!("data of {data_type}, expected f16, bf16, f32 or f64"));
        }
        for (axis, extent) in SequenceAxis::ALL.into_iter().zip(dims) {
            if *extent < 1 {
                let name = axis.name();
                return bad(format!("the {name} extent is {extent}, expected at least 1"));
            }
        }
        Ok(())
    }

    fn check_axes(&self) -> Result<()> {
        let axes = &self.axes;
        for (at, axis) in axes.iter().enumerate() {
            if axes[..at].contains(axis) {
                return bad(format!("axis {} is there twice", axis.name()));
            }
        }
        match axes[AXES - 1] {
            SequenceAxis::Vector => Ok(()),
            other => bad(format!("the innermost axis is {}, expected vector", other.name())),
        }
    }

    fn check_lengths(&self) -> Result<()> {
        let [time, batch, beam] = [0, 1, 2].map(|axis| self.dims[axis]);
        let Some(count) = batch.checked_mul(beam) else {
            return bad(format!("{batch} beams of {beam} candidates, more than 2^31 - 1"));
        };
        let lengths = &self.seq_lengths;
        if lengths.len() != count as usize {
            return bad(format!("{} lengths of {count} sequences", lengths.len()));
        }
        if let Some(at) = lengths.iter().position(|length| !(0..=time).contains(length)) {
            let length = lengths[at];
            return bad(format!("length {length} of sequence {at}, expected 0 to {time}"));
        }
        match self.padding_fill {
            Some(fill) => refuse(format!("padding is filled with {fill}, expected no fill")),
            None => Ok(()),
        }
    }
}
