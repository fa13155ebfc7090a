//! Attention descriptors (sections 6.2.1.14 and 6.2.1.43).

use kiln::attention::{AttentionDescriptor, AttentionSettings, AttentionSizes, QueryMap};
use kiln::dtype::DType;
use kiln::expr::Real;

use crate::attention::values::{ONE_TO_ONE, PROJ_BIASES};
use crate::declare::functions;
use crate::dropout::Dropout;
use crate::object::{Ref, Settable, object};
use crate::pointer::Out;
use crate::status::{Outcome, bad, refuse};
use crate::values::{DataType, MathType};

/// `mcdnnAttnDescriptor_t`.
#[derive(Debug, Default)]
pub struct Attention(Settable<Option<Record>>);
object!(Attention: "mcdnnAttnDescriptor_t", "attention descriptor", 12);

/// What a descriptor says.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    mode: u32,
    heads: i32,
    scaler: f64,
    /// `dataType`.
    pub data_type: DataType,
    compute_prec: DataType,
    math_type: MathType,
    /// Of the softmax, and of the output.
    dropouts: [Ref<Dropout>; 2],
    /// Of queries, keys and values.
    sizes: [i32; 3],
    /// Of queries, keys, values and output.
    projections: [i32; 4],
    /// Steps of queries, of keys; sequences, candidates.
    limits: [i32; 4],
}

impl Attention {
    /// The numbers of what it and its dropouts say.
    pub fn versions(&self) -> [u64; 3] {
        let dropouts = self.0.read().map_or([Ref::NULL; 2], |record| record.dropouts);
        let [attention, post] = dropouts.map(Ref::version);
        [self.0.version(), attention, post]
    }

    /// What it says.
    pub fn record(&self) -> Outcome<Record> {
        match *self.0.read() {
            Some(record) => Ok(record),
            None => bad("attnDesc was never set"),
        }
    }

    /// The layer that it describes.
    pub fn descriptor(&self) -> Outcome<AttentionDescriptor> {
        self.record()?.descriptor()
    }
}

impl Record {
    fn descriptor(&self) -> Outcome<AttentionDescriptor> {
        let [attn_dropout, post_dropout] = self.dropouts.map(Ref::descriptor);
        let (attn_dropout, post_dropout) = (attn_dropout?, post_dropout?);
        let data_type = self.floating(self.data_type, "dataType")?;
        let compute_prec = self.floating(self.compute_prec, "computePrec")?;
        if (data_type == DType::F64) != (compute_prec == DType::F64) {
            return refuse(format!("computePrec of {compute_prec} and dataType of {data_type}"));
        }
        let math_type = self.math_type.hint(data_type)?;
        let known = ONE_TO_ONE | PROJ_BIASES;
        if self.mode & !known != 0 {
            return bad(format!("attnMode is {:#x}, expected bits of {known:#x}", self.mode));
        }
        let [q_size, k_size, v_size] = self.sizes;
        let [q_proj_size, k_proj_size, v_proj_size, o_proj_size] = self.projections;
        let [qo_max_seq_length, kv_max_seq_length, max_batch_size, max_beam_size] = self.limits;
        let alike = AttentionSizes { heads: self.heads, size: q_size, batch: 1, steps: 1 };
        let one_to_one = self.mode & ONE_TO_ONE != 0;
        let query_map = if one_to_one { QueryMap::OneToOne } else { QueryMap::AllToOne };
        Ok(AttentionDescriptor::set(AttentionSettings {
            query_map,
            proj_biases: self.mode & PROJ_BIASES != 0,
            sm_scaler: Real::new(self.scaler),
            data_type,
            compute_prec,
            math_type,
            attn_dropout,
            post_dropout,
            k_size,
            v_size,
            q_proj_size,
            k_proj_size,
            v_proj_size,
            o_proj_size,
            qo_max_seq_length,
            kv_max_seq_length,
            max_batch_size,
            max_beam_size,
            ..AttentionSettings::new(alike)
        })?)
    }

    /// A type, of which others than the documents' are invalid.
    fn floating(&self, data_type: DataType, name: &str) -> Outcome<DType> {
        data_type.dtype(name).or_else(|failure| bad(failure.text))
    }
}

functions! { FUNCTIONS:
    /// Makes an attention descriptor (6.2.1.3).
    fn mcdnnCreateAttnDescriptor(attnDesc: Out<Ref<Attention>>) {
        let place = attnDesc.required("attnDesc")?;
        place.put(Ref::new(Attention::default())?);
        Ok(())
    }

    /// Destroys an attention descriptor; NULL is none (6.2.1.8).
    fn mcdnnDestroyAttnDescriptor(attnDesc: Ref<Attention>) {
        attnDesc.destroy("attnDesc")
    }

    /// Describes a layer (6.2.1.43). A projection of size 0 is none.
    fn mcdnnSetAttnDescriptor(
        attnDesc: Ref<Attention>,
        attnMode: u32,
        nHeads: i32,
        smScaler: f64,
        dataType: DataType,
        computePrec: DataType,
        mathType: MathType,
        attnDropoutDesc: Ref<Dropout>,
        postDropoutDesc: Ref<Dropout>,
        qSize: i32,
        kSize: i32,
        vSize: i32,
        qProjSize: i32,
        kProjSize: i32,
        vProjSize: i32,
        oProjSize: i32,
        qoMaxSeqLength: i32,
        kvMaxSeqLength: i32,
        maxBatchSize: i32,
        maxBeamSize: i32,
    ) {
        let attention = attnDesc.get("attnDesc")?;
        let record = Record {
            mode: attnMode,
            heads: nHeads,
            scaler: smScaler,
            data_type: dataType,
            compute_prec: computePrec,
            math_type: mathType,
            dropouts: [attnDropoutDesc, postDropoutDesc],
            sizes: [qSize, kSize, vSize],
            projections: [qProjSize, kProjSize, vProjSize, oProjSize],
            limits: [qoMaxSeqLength, kvMaxSeqLength, maxBatchSize, maxBeamSize],
        };
        record.descriptor()?;
        attention.0.set(Some(record));
        Ok(())
    }

    /// What an attention descriptor says (6.2.1.14); zeros before it is set. Places of what is not
    /// wanted are NULL.
    fn mcdnnGetAttnDescriptor(
        attnDesc: Ref<Attention>,
        attnMode: Out<u32>,
        nHeads: Out<i32>,
        smScaler: Out<f64>,
        dataType: Out<DataType>,
        computePrec: Out<DataType>,
        mathType: Out<MathType>,
        attnDropoutDesc: Out<Ref<Dropout>>,
        postDropoutDesc: Out<Ref<Dropout>>,
        qSize: Out<i32>,
        kSize: Out<i32>,
        vSize: Out<i32>,
        qProjSize: Out<i32>,
        kProjSize: Out<i32>,
        vProjSize: Out<i32>,
        oProjSize: Out<i32>,
        qoMaxSeqLength: Out<i32>,
        kvMaxSeqLength: Out<i32>,
        maxBatchSize: Out<i32>,
        maxBeamSize: Out<i32>,
    ) {
        let own = attnDesc.get("attnDesc")?.0.read().unwrap_or(Record {
            mode: 0,
            heads: 0,
            scaler: 0.0,
            data_type: DataType::FLOAT,
            compute_prec: DataType::FLOAT,
            math_type: MathType::DEFAULT_MATH,
            dropouts: [Ref::NULL; 2],
            sizes: [0; 3],
            projections: [0; 4],
            limits: [0; 4],
        });
        attnMode.put(own.mode);
        nHeads.put(own.heads);
        smScaler.put(own.scaler);
        dataType.put(own.data_type);
        computePrec.put(own.compute_prec);
        mathType.put(own.math_type);
        attnDropoutDesc.put(own.dropouts[0]);
        postDropoutDesc.put(own.dropouts[1]);
        let places = [qSize, kSize, vSize].into_iter().zip(own.sizes);
        let projected = [qProjSize, kProjSize, vProjSize, oProjSize].into_iter();
        let limits = [qoMaxSeqLength, kvMaxSeqLength, maxBatchSize, maxBeamSize].into_iter();
        let places = places.chain(projected.zip(own.projections)).chain(limits.zip(own.limits));
        places.for_each(|(place, value)| place.put(value));
        Ok(())
    }
}
