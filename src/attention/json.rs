//! JSON form of attention layers: problem documents whose only key is `mha`.

use serde::Deserialize;

use crate::attention::call::AttentionCall;
use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::{
    AttentionDescriptor, AttentionSettings, AttentionSizes, QueryMap,
};
use crate::attention::extent::AttentionExtent;
use crate::dropout::DropoutDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::rnn::MathType;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProblemJson {
    mha: MhaJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MhaJson {
    heads: i32,
    q_size: i32,
    k_size: Option<i32>,
    v_size: Option<i32>,
    q_proj_size: Option<i32>,
    k_proj_size: Option<i32>,
    v_proj_size: Option<i32>,
    o_proj_size: Option<i32>,
    #[serde(default)]
    biases: bool,
    scaler: Option<f64>,
    dtype: String,
    #[serde(default)]
    math: MathJson,
    #[serde(default)]
    query_map: QueryMapJson,
    batch: i32,
    #[serde(default = "one")]
    beams: i32,
    queries: i32,
    keys: i32,
    layout: Option<[AxisJson; 3]>,
    #[serde(default)]
    residuals: bool,
    step: Option<i32>,
    #[serde(default)]
    backward: bool,
    attn_dropout: Option<DropoutJson>,
    post_dropout: Option<DropoutJson>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct DropoutJson {
    probability: f64,
    #[serde(default)]
    seed: i64,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
enum MathJson {
    #[default]
    Default,
    Tf32,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum QueryMapJson {
    #[default]
    AllToOne,
    OneToOne,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum AxisJson {
    Batch,
    Beam,
    Time,
}

fn one() -> i32 {
    1
}

impl AttentionCall {
    /// Reads a problem document whose only key is `mha`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON; as [`AttentionDescriptor::set`] and
    /// [`AttentionCall::new`].
    pub fn from_json(text: &str) -> Result<AttentionCall> {
        let ProblemJson { mha } = serde_json::from_str(text)
            .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
        let descriptor = AttentionDescriptor::set(mha.settings()?)?;
        let extent = mha.extent(&descriptor);
        match (mha.backward, mha.step) {
            (true, Some(step)) => {
                let text = format!("mha: step {step} alone with gradients, which are of all steps");
                Err(Error::bad_param(text))
            }
            (true, None) => AttentionCall::with_gradients(&descriptor, extent),
            (false, step) => AttentionCall::new(&descriptor, extent, step.unwrap_or(-1)),
        }
    }
}

impl DropoutJson {
    fn descriptor(of: Option<DropoutJson>) -> Result<DropoutDescriptor> {
        let Some(DropoutJson { probability, seed }) = of else {
            return Ok(DropoutDescriptor::NONE);
        };
        let set = DropoutDescriptor::set(Real::new(probability), seed);
        set.map_err(|error| error.context("mha"))
    }
}

impl MhaJson {
    fn settings(&self) -> Result<AttentionSettings> {
        let data_type: DType = self.dtype.parse().map_err(|error: Error| error.context("mha"))?;
        // By default, heads get equal parts of a query.
        let equal = AttentionSettings::new(AttentionSizes {
            heads: self.heads,
            size: self.q_size,
            batch: self.batch,
            steps: self.queries,
        });
        let q_proj_size = self.q_proj_size.unwrap_or(equal.q_proj_size);
        let depth = if q_proj_size > 0 { q_proj_size } else { self.q_size };
        let scaler = self.scaler.unwrap_or(1.0 / f64::from(depth.max(1)).sqrt());
        Ok(AttentionSettings {
            query_map: match self.query_map {
                QueryMapJson::AllToOne => QueryMap::AllToOne,
                QueryMapJson::OneToOne => QueryMap::OneToOne,
            },
            proj_biases: self.biases,
            sm_scaler: Real::new(scaler),
            data_type,
            compute_prec: if data_type == DType::F64 { DType::F64 } else { DType::F32 },
            math_type: match self.math {
                MathJson::Default => MathType::Default,
                MathJson::Tf32 => MathType::TensorOpAllowConversion,
            },
            k_size: self.k_size.unwrap_or(self.q_size),
            v_size: self.v_size.unwrap_or(self.q_size),
            q_proj_size,
            k_proj_size: self.k_proj_size.unwrap_or(equal.k_proj_size),
            v_proj_size: self.v_proj_size.unwrap_or(equal.v_proj_size),
            o_proj_size: self.o_proj_size.unwrap_or(equal.o_proj_size),
            kv_max_seq_length: self.keys,
            attn_dropout: DropoutJson::descriptor(self.attn_dropout)?,
            post_dropout: DropoutJson::descriptor(self.post_dropout)?,
            max_beam_size: self.beams,
            ..equal
        })
    }

    fn extent(&self, descriptor: &AttentionDescriptor) -> AttentionExtent {
        let axis = |axis| match axis {
            AxisJson::Batch => SequenceAxis::Batch,
            AxisJson::Beam => SequenceAxis::Beam,
            AxisJson::Time => SequenceAxis::Time,
        };
        let most = descriptor.extent_max();
        AttentionExtent {
            order: self.layout.map_or(most.order, |layout| layout.map(axis)),
            residuals: self.residuals,
            one_step: self.step.is_some(),
            ..most
        }
    }
}
