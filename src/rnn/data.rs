//! mcDNN's RNN data descriptor (`mcdnnSetRNNDataDescriptor`, section 6.2.1.47) with its checks.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::graph::RowLayout;
use crate::rnn::lower::Extent;

/// Arguments of `mcdnnSetRNNDataDescriptor`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RnnDataSettings {
    /// f16, f32, f64, or, which the document does not list, bf16, and i8 and u8 of quantised
    /// networks.
    pub data_type: DType,
    /// The order of the vectors.
    pub layout: RowLayout,
    /// Steps for which the tensor has room; packed: length of the longest sequence.
    pub max_seq_length: i32,
    /// Number of sequences.
    pub batch_size: i32,
    /// Elements of a vector.
    pub vector_size: i32,
    /// Steps of each sequence, 0 to `max_seq_length`; packed: non-increasing.
    pub seq_lengths: Vec<i32>,
    /// Value of output vectors beyond a sequence's length, of i8 and u8 the integer; undefined if
    /// `None`.
    pub padding_fill: Option<Real>,
}

/// A valid RNN data descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RnnDataDescriptor {
    settings: RnnDataSettings,
}

impl RnnDataDescriptor {
    /// Validates the arguments.
    ///
    /// # Errors
    /// `NotSupported` for another type; `BadParam` for a size below 1, a number of lengths other
    /// than the number of sequences, a length below 0 or above the maximum; packed: increasing
    /// lengths, or a maximum above the longest sequence.
    pub fn set(settings: RnnDataSettings) -> Result<RnnDataDescriptor> {
        let bad = |rule: String| Err(Error::bad_param(format!("rnn data descriptor: {rule}")));
        let RnnDataSettings { data_type, layout, max_seq_length, batch_size, .. } = settings;
        if !data_type.is_float() && !matches!(data_type, DType::I8 | DType::U8) {
            return Err(Error::not_supported(format!(
                "rnn data descriptor: data of {data_type}, expected f16, bf16, f32, f64, i8 or u8"
            )));
        }
        let sizes = [
            ("maximal length", max_seq_length),
            ("batch size", batch_size),
            ("vector size", settings.vector_size),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size < 1) {
            return bad(format!("the {name} is {size}, expected at least 1"));
        }
        let lengths = &settings.seq_lengths;
        if lengths.len() != batch_size as usize {
            let count = lengths.len();
            return bad(format!("{count} lengths of {batch_size} sequences"));
        }
        let off = |length: &i32| !(0..=max_seq_length).contains(length);
        if let Some(at) = lengths.iter().position(off) {
            let length = lengths[at];
            return bad(format!(
                "length {length} of sequence {at}, expected 0 to {max_seq_length}"
            ));
        }
        if layout == RowLayout::Packed {
            if let Some(at) = lengths.windows(2).position(|pair| pair[0] < pair[1]) {
                let (first, second) = (lengths[at], lengths[at + 1]);
                return bad(format!(
                    "packed: length {second} of sequence {} after length {first}: lengths may not \
                     increase",
                    at + 1
                ));
            }
            if lengths[0] != max_seq_length {
                let longest = lengths[0];
                return bad(format!(
                    "packed: the maximal length is {max_seq_length}, the longest sequence {longest}"
                ));
            }
        }
        Ok(RnnDataDescriptor { settings })
    }

    /// The arguments (`mcdnnGetRNNDataDescriptor`, section 6.2.1.19).
    pub fn get(&self) -> &RnnDataSettings {
        &self.settings
    }

    /// Batch size and number of vectors.
    pub fn extent(&self) -> Extent {
        let RnnDataSettings { layout, max_seq_length, batch_size, seq_lengths, .. } =
            &self.settings;
        let batch = i64::from(*batch_size);
        let rows = match layout {
            RowLayout::Packed => seq_lengths.iter().map(|length| i64::from(*length)).sum(),
            _ => i64::from(*max_seq_length) * batch,
        };
        Extent { batch, rows }
    }

    /// Whether a sequence is shorter than `max_seq_length`.
    pub fn is_ragged(&self) -> bool {
        self.settings.seq_lengths.iter().any(|length| *length != self.settings.max_seq_length)
    }

    /// Whether the other descriptor has the same sequences, type and layout.
    pub fn matches(&self, other: &RnnDataDescriptor) -> bool {
        let (mine, theirs) = (&self.settings, &other.settings);
        mine.data_type == theirs.data_type
            && mine.layout == theirs.layout
            && mine.max_seq_length == theirs.max_seq_length
            && mine.seq_lengths == theirs.seq_lengths
    }
}
