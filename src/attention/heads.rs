//! Attention of all heads of a layer as one operation, and its gradients.

use crate::attention::layer::{AttentionLayer, AttentionStage};
use crate::attention::lowering::{Lowering, Stage};
use crate::attention::role::AttentionRole;
use crate::attention::weights::AttentionWeightKind;
use crate::dtype::DType;
use crate::error::Result;
use crate::graph::{Attention, AttentionBackward, Op};
use crate::tensor::TensorDesc;

/// Rows of all heads.
#[derive(Clone, Copy)]
struct Heads {
    heads: i64,
    rows: i64,
    elements: i64,
    /// Whether heads are outermost; otherwise they are interleaved within a row.
    apart: bool,
}

impl AttentionLayer {
    /// The operation of all heads.
    fn attention(&self) -> Attention {
        let AttentionLayer { descriptor, extent, .. } = self;
        let settings = descriptor.get();
        let dropout = settings.attn_dropout;
        Attention {
            scale: Some(settings.sm_scaler),
            intervals: true,
            query_lengths: extent.training,
            key_lengths: true,
            dropout: (extent.training && !dropout.is_none()).then(|| dropout.probability()),
            statistics: extent.training,
            ..Attention::new(descriptor.matmul_math())
        }
    }

    /// Queries of a sequence of keys: beam candidates that share keys are further queries.
    fn queries(&self) -> i64 {
        self.extent.beams / self.kv_beams() * self.extent.steps()
    }
}

impl Lowering<'_> {
    /// Attention of all heads.
    pub(super) fn attention(&self) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let inputs = self.operands(&mut stage);
        let outputs = self.results(&mut stage);
        stage.graph.operation_into(Op::Attention(self.layer.attention()), &inputs, &outputs);
        stage.finish()
    }

    /// Gradients of all heads, from that of their results.
    pub(super) fn attention_gradients(&self, results: AttentionRole) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let mut inputs = self.operands(&mut stage);
        inputs.extend(self.results(&mut stage));
        let d_o = self.of_heads(&mut stage, results, self.attended(), self.dtype());
        inputs.push(d_o);
        let outputs = self.layer.inputs().map(|input| {
            let heads = self.input_heads(input.projected);
            self.of_heads(&mut stage, input.projected_gradient, heads, self.dtype())
        });
        let backward = AttentionBackward::new(self.layer.attention());
        stage.graph.operation_into(Op::AttentionBackward(backward), &inputs, &outputs);
        stage.finish()
    }

    /// The operands of the operation, in the order of its slots.
    fn operands(&self, stage: &mut Stage) -> Vec<i64> {
        use AttentionRole::{
            KeptPositions, KeptSeeds, KeyBegin, KeyEnd, KeyLengths, ProjectedKeys,
            ProjectedQueries, ProjectedValues, QueryLengths,
        };
        let mut inputs: Vec<i64> = [ProjectedQueries, ProjectedKeys, ProjectedValues]
            .into_iter()
            .map(|role| self.of_heads(stage, role, self.input_heads(role), self.dtype()))
            .collect();
        let one = Heads { heads: 1, rows: 1, elements: 1, apart: false };
        let queries = Heads { rows: self.layer.queries(), ..one };
        let mut integers = vec![(KeyBegin, queries), (KeyEnd, queries)];
        integers.extend(self.layer.extent.training.then_some((QueryLengths, one)));
        integers.push((KeyLengths, one));
        for (role, heads) in integers {
            inputs.push(self.of_heads(stage, role, heads, DType::I32));
        }
        if self.layer.attention().dropout.is_some() {
            for role in [KeptSeeds, KeptPositions] {
                inputs.push(self.drawn(stage, role, 0));
            }
        }
        inputs
    }

    /// The results of the operation, in the order of its slots.
    fn results(&self, stage: &mut Stage) -> Vec<i64> {
        let AttentionLayer { descriptor, extent, .. } = self.layer;
        let attended = self.attended();
        let mut results =
            vec![self.of_heads(stage, AttentionRole::Attended, attended, self.dtype())];
        if extent.training {
            let rows = Heads { elements: 1, ..attended };
            let dtype = descriptor.math().dtype();
            results.push(self.of_heads(stage, AttentionRole::LogSumExp, rows, dtype));
        }
        results
    }

    /// Rows of the results.
    fn attended(&self) -> Heads {
        let AttentionLayer { descriptor, .. } = self.layer;
        Heads {
            heads: descriptor.heads(),
            rows: self.layer.queries(),
            elements: descriptor.width(),
            apart: false,
        }
    }

    /// Rows of a projected input, or of the copies of one that is not projected.
    fn input_heads(&self, role: AttentionRole) -> Heads {
        use AttentionRole::{ProjectedKeys, ProjectedQueries};
        use AttentionWeightKind::{KWeights, QWeights, VWeights};
        let AttentionLayer { descriptor, extent, .. } = self.layer;
        let (heads, rows, elements, kind) = match role {
            ProjectedQueries => {
                (descriptor.heads(), self.layer.queries(), descriptor.depth(), QWeights)
            }
            ProjectedKeys => (self.layer.kv_heads(), extent.keys, descriptor.depth(), KWeights),
            _ => (self.layer.kv_heads(), extent.keys, descriptor.width(), VWeights),
        };
        Heads { heads, rows, elements, apart: !self.layer.has(kind) }
    }

    /// Adds rows of all heads.
    fn of_heads(&self, stage: &mut Stage, role: AttentionRole, of: Heads, dtype: DType) -> i64 {
        let Heads { heads, rows, elements, apart } = of;
        let sequences = self.layer.extent.batch * self.layer.kv_beams();
        let dims = [sequences, heads, rows, elements];
        let strides = match apart {
            true => [rows * elements, sequences * rows * elements, elements, 1],
            false => [rows * heads * elements, elements, heads * elements, 1],
        };
        let tensor = TensorDesc::packed(0, role.name(), &dims, dtype);
        self.place(stage, role, 0, TensorDesc { strides: strides.to_vec(), ..tensor })
    }
}
