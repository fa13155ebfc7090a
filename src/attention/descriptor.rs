//! mcDNN's attention descriptor (`mcdnnSetAttnDescriptor`, section 6.2.1.43) with its checks.

use crate::attention::data::{SequenceAxis, SequenceDataDescriptor};
use crate::attention::extent::AttentionExtent;
use crate::attention::pass::AttentionPass;
use crate::dropout::DropoutDescriptor;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{Math, Real};
use crate::graph::MatmulMath;
use crate::rnn::MathType;

/// Mapping of the beam candidates of queries to keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QueryMap {
    /// `MCDNN_ATTN_QUERYMAP_ALL_TO_ONE`: all candidates share keys and values, whose beam extent is
    /// 1.
    #[default]
    AllToOne,
    /// `MCDNN_ATTN_QUERYMAP_ONE_TO_ONE`: each candidate has its own keys and values.
    OneToOne,
}

/// Arguments of `mcdnnSetAttnDescriptor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionSettings {
    /// Bit 0 of `attnMode`.
    pub query_map: QueryMap,
    /// `MCDNN_ATTN_ENABLE_PROJ_BIASES`: whether projections have biases.
    pub proj_biases: bool,
    /// Number of heads.
    pub num_heads: i32,
    /// Scale of the scores, at least 0.
    pub sm_scaler: Real,
    /// Type of weights, inputs and outputs: f16, f32, f64, or bf16, which the document does not
    /// list.
    pub data_type: DType,
    /// Math precision: f16 or f32 for f16, f32 for bf16 and f32, f64 for f64. f16 is computed in
    /// f32 either way.
    pub compute_prec: DType,
    /// Use of tensor cores.
    pub math_type: MathType,
    /// Dropout of the softmax in training.
    pub attn_dropout: DropoutDescriptor,
    /// Dropout of the output in training, before the residual is added.
    pub post_dropout: DropoutDescriptor,
    /// Elements of a query.
    pub q_size: i32,
    /// Elements of a key.
    pub k_size: i32,
    /// Elements of a value.
    pub v_size: i32,
    /// Elements of a projected query; 0 disables the projection.
    pub q_proj_size: i32,
    /// Elements of a projected key; 0 disables the projection.
    pub k_proj_size: i32,
    /// Elements of a projected value; 0 disables the projection.
    pub v_proj_size: i32,
    /// Elements of a projected output; 0 concatenates the heads' results.
    pub o_proj_size: i32,
    /// Maximum number of time steps of queries and outputs.
    pub qo_max_seq_length: i32,
    /// Maximum number of time steps of keys and values.
    pub kv_max_seq_length: i32,
    /// Maximum batch size.
    pub max_batch_size: i32,
    /// Maximum beam size.
    pub max_beam_size: i32,
}

/// The sizes of a layer whose queries, keys, values and results are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionSizes {
    /// Heads.
    pub heads: i32,
    /// Elements of a query, key, value or result.
    pub size: i32,
    /// The most sequences.
    pub batch: i32,
    /// The most steps of queries and of keys.
    pub steps: i32,
}

impl AttentionSettings {
    /// Heads that project f32 vectors of `size` elements to equal parts and back, with scale
    /// 1/sqrt(head dimension), without biases; keys have as many steps as queries.
    pub fn new(sizes: AttentionSizes) -> AttentionSettings {
        let AttentionSizes { heads, size, batch, steps } = sizes;
        let part = size / heads.max(1);
        AttentionSettings {
            query_map: QueryMap::AllToOne,
            proj_biases: false,
            num_heads: heads,
            sm_scaler: Real::new(1.0 / f64::from(part.max(1)).sqrt()),
            data_type: DType::F32,
            compute_prec: DType::F32,
            math_type: MathType::Default,
            attn_dropout: DropoutDescriptor::NONE,
            post_dropout: DropoutDescriptor::NONE,
            q_size: size,
            k_size: size,
            v_size: size,
            q_proj_size: part,
            k_proj_size: part,
            v_proj_size: part,
            o_proj_size: size,
            qo_max_seq_length: steps,
            kv_max_seq_length: steps,
            max_batch_size: batch,
            max_beam_size: 1,
        }
    }
}

/// A valid attention descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionDescriptor {
    settings: AttentionSettings,
}

fn bad<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("attention descriptor: {rule}")))
}

impl AttentionDescriptor {
    /// Validates the arguments.
    ///
    /// # Errors
    /// `BadParam` for a size, count or limit below 1, a negative projection, queries and keys of
    /// different projected sizes, a scale that is negative or not finite, a type that the
    /// document does not list, or a precision or math type incompatible with it.
    pub fn set(settings: AttentionSettings) -> Result<AttentionDescriptor> {
        settings.check_sizes()?;
        settings.check_numbers()?;
        settings.check_types()?;
        Ok(AttentionDescriptor { settings })
    }

    /// The arguments (`mcdnnGetAttnDescriptor`, section 6.2.1.14).
    pub fn get(&self) -> &AttentionSettings {
        &self.settings
    }

    /// Number of heads.
    pub fn heads(&self) -> i64 {
        i64::from(self.settings.num_heads)
    }

    /// Head dimension of queries and keys.
    pub fn depth(&self) -> i64 {
        self.settings.depth(self.settings.q_proj_size, self.settings.q_size)
    }

    /// Head dimension of values and results.
    pub fn width(&self) -> i64 {
        self.settings.depth(self.settings.v_proj_size, self.settings.v_size)
    }

    /// Elements of an output vector.
    pub fn output_size(&self) -> i64 {
        match self.settings.o_proj_size {
            0 => self.heads() * self.width(),
            size => i64::from(size),
        }
    }

    /// Precision of the GEMMs.
    pub(super) fn matmul_math(&self) -> MatmulMath {
        match (self.settings.data_type, self.settings.math_type) {
            (DType::F64, _) => MatmulMath::F64,
            (DType::F32, MathType::TensorOpAllowConversion) => MatmulMath::Tf32,
            _ => MatmulMath::F32,
        }
    }

    /// Precision of everything but GEMMs.
    pub(super) fn math(&self) -> Math {
        Math::of(self.settings.data_type)
    }

    /// Beam extent of keys, given that of queries.
    pub(super) fn kv_beams(&self, beams: i64) -> i64 {
        match self.settings.query_map {
            QueryMap::AllToOne => 1,
            QueryMap::OneToOne => beams,
        }
    }

    /// The largest extent.
    pub fn extent_max(&self) -> AttentionExtent {
        let settings = &self.settings;
        AttentionExtent {
            batch: i64::from(settings.max_batch_size),
            beams: i64::from(settings.max_beam_size),
            queries: i64::from(settings.qo_max_seq_length),
            keys: i64::from(settings.kv_max_seq_length),
            ..AttentionExtent::default()
        }
    }

    /// The extent of a call on data as described (section 6.2.1.35): all steps, without residuals,
    /// for inference.
    ///
    /// # Errors
    /// `BadParam` where a descriptor has the wrong type or vector size or exceeds a limit, or where
    /// they differ in layout, batch or, as far as they must agree, beam, time extent and lengths.
    pub fn extent(
        &self,
        q: &SequenceDataDescriptor,
        k: &SequenceDataDescriptor,
        v: &SequenceDataDescriptor,
        o: &SequenceDataDescriptor,
    ) -> Result<AttentionExtent> {
        self.extent_of(AttentionPass::Forward, [q, k, v, o])
    }

    /// As [`AttentionDescriptor::extent`], of a pass, which errors name: for training if it is a
    /// backward pass. `q`, `k`, `v` and `o` describe the gradients as well.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::extent`].
    pub fn extent_of(
        &self,
        pass: AttentionPass,
        [q, k, v, o]: [&SequenceDataDescriptor; 4],
    ) -> Result<AttentionExtent> {
        use SequenceAxis::{Batch, Beam, Time};
        let settings = &self.settings;
        let sizes = [settings.q_size, settings.k_size, settings.v_size].map(i64::from);
        let described = [
            ("q", q, sizes[0], settings.qo_max_seq_length),
            ("k", k, sizes[1], settings.kv_max_seq_length),
            ("v", v, sizes[2], settings.kv_max_seq_length),
            ("o", o, self.output_size(), settings.qo_max_seq_length),
        ];
        for (name, data, size, time_max) in described {
            self.check_alone(pass, name, data, size, time_max)?;
            if data.order() != q.order() {
                return disagree(pass, "layout", (name, data), ("q", q));
            }
            if data.extent(Batch) != q.extent(Batch) {
                return disagree(pass, "batch extent", (name, data), ("q", q));
            }
        }
        for (name, data, other_name, other) in [("o", o, "q", q), ("v", v, "k", k)] {
            for axis in [Beam, Time] {
                if data.extent(axis) != other.extent(axis) {
                    let what = format!("{} extent", axis.name());
                    return disagree(pass, &what, (name, data), (other_name, other));
                }
            }
            if data.get().seq_lengths != other.get().seq_lengths {
                return disagree(pass, "lengths", (name, data), (other_name, other));
            }
        }
        let (beams, wanted) = (k.extent(Beam), self.kv_beams(q.extent(Beam)));
        if beams != wanted {
            let map = settings.query_map;
            return refuse_call(
                pass,
                format!(
                    "beams of keys are {beams} wide, those of queries {}: {map:?} wants {wanted}",
                    q.extent(Beam)
                ),
            );
        }
        Ok(AttentionExtent {
            batch: q.extent(Batch),
            beams: q.extent(Beam),
            queries: q.extent(Time),
            keys: k.extent(Time),
            order: q.order(),
            training: pass != AttentionPass::Forward,
            ..AttentionExtent::default()
        })
    }

    fn check_alone(
        &self,
        pass: AttentionPass,
        name: &str,
        data: &SequenceDataDescriptor,
        size: i64,
        time_max: i32,
    ) -> Result<()> {
        use SequenceAxis::{Batch, Beam, Time, Vector};
        let settings = &self.settings;
        let (dtype, wanted) = (data.get().data_type, settings.data_type);
        if dtype != wanted {
            return refuse_call(pass, format!("{name} is of {dtype}, the layer of {wanted}"));
        }
        let elements = data.extent(Vector);
        if elements != size {
            return refuse_call(
                pass,
                format!("vectors of {name} have {elements} elements, expected {size}"),
            );
        }
        let limits =
            [(Time, time_max), (Batch, settings.max_batch_size), (Beam, settings.max_beam_size)];
        for (axis, most) in limits {
            let (extent, axis) = (data.extent(axis), axis.name());
            if extent > i64::from(most) {
                return refuse_call(
                    pass,
                    format!("the {axis} extent of {name} is {extent}, the layer's limit {most}"),
                );
            }
        }
        Ok(())
    }
}

fn refuse_call<T>(pass: AttentionPass, rule: String) -> Result<T> {
    Err(Error::bad_param(format!("{}: {rule}", pass.name())))
}

fn disagree<T>(
    pass: AttentionPass,
    what: &str,
    (name, data): (&str, &SequenceDataDescriptor),
    (other_name, other): (&str, &SequenceDataDescriptor),
) -> Result<T> {
    let shown = |of: &SequenceDataDescriptor| match what {
        "layout" => format!("{:?}", of.order().map(SequenceAxis::name)),
        "lengths" => format!("{:?}", of.get().seq_lengths),
        _ => {
            let axis = SequenceAxis::ALL.into_iter().find(|axis| what.starts_with(axis.name()));
            format!("{}", of.extent(axis.expect("an extent is named by its axis")))
        }
    };
    refuse_call(
        pass,
        format!(
            "the {what} of {name}, {}, differs from that of {other_name}, {}",
            shown(data),
            shown(other)
        ),
    )
}

impl AttentionSettings {
    /// Elements of a vector after an optional projection.
    fn depth(&self, projected: i32, size: i32) -> i64 {
        i64::from(if projected > 0 { projected } else { size })
    }

    fn check_sizes(&self) -> Result<()> {
        let sizes = [
            ("number of heads", self.num_heads),
            ("query size", self.q_size),
            ("key size", self.k_size),
            ("value size", self.v_size),
            ("maximal length of queries", self.qo_max_seq_length),
            ("maximal length of keys", self.kv_max_seq_length),
            ("maximal batch size", self.max_batch_size),
            ("maximal beam size", self.max_beam_size),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size < 1) {
            return bad(format!("the {name} is {size}, expected at least 1"));
        }
        let projections = [
            ("queries", self.q_proj_size),
            ("keys", self.k_proj_size),
            ("values", self.v_proj_size),
            ("outputs", self.o_proj_size),
        ];
        if let Some((name, size)) = projections.into_iter().find(|(_, size)| *size < 0) {
            return bad(format!("the projection of {name} is {size}, expected at least 0"));
        }
        let queries = self.depth(self.q_proj_size, self.q_size);
        let keys = self.depth(self.k_proj_size, self.k_size);
        match queries == keys {
            true => Ok(()),
            false => {
                bad(format!("after their projections queries have {queries} elements, keys {keys}"))
            }
        }
    }

    fn check_numbers(&self) -> Result<()> {
        let scaler = self.sm_scaler.get();
        if !(scaler >= 0.0 && scaler.is_finite()) {
            return bad(format!("the softmax scaler is {scaler}, expected at least 0"));
        }
        Ok(())
    }

    fn check_types(&self) -> Result<()> {
        use MathType::{Default, TensorOp, TensorOpAllowConversion};
        let data = self.data_type;
        let (precisions, types): (&[DType], &[MathType]) = match data {
            DType::F16 => {
                (&[DType::F16, DType::F32], &[Default, TensorOp, TensorOpAllowConversion])
            }
            DType::Bf16 => (&[DType::F32], &[Default, TensorOp, TensorOpAllowConversion]),
            DType::F32 => (&[DType::F32], &[Default, TensorOpAllowConversion]),
            DType::F64 => (&[DType::F64], &[Default]),
            other => return bad(format!("data of {other}, expected f16, bf16, f32 or f64")),
        };
        if !precisions.contains(&self.compute_prec) {
            return bad(format!("precision {} of data of {data}", self.compute_prec));
        }
        if !types.contains(&self.math_type) {
            return bad(format!("math type {:?} of data of {data}", self.math_type));
        }
        Ok(())
    }
}
