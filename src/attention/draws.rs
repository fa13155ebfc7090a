//! The random numbers of a layer's dropouts: where each pass of training draws them, and what the
//! reserve space keeps of it.

use crate::attention::layer::{AttentionLayer, AttentionStage, DROPOUTS};
use crate::attention::lowering::{Lowering, Stage};
use crate::attention::role::AttentionRole;
use crate::dropout::DropoutDescriptor;
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Math, Mode, Pointwise};
use crate::graph::Rng;
use crate::tensor::TensorDesc;

impl AttentionLayer {
    /// The dropout of the outputs, if the call has one.
    pub(super) fn post_dropout(&self) -> Option<DropoutDescriptor> {
        let dropout = self.descriptor.get().post_dropout;
        (self.extent.training && !dropout.is_none()).then_some(dropout)
    }
}

impl Lowering<'_> {
    /// Keeps the seeds and positions of the call, for the backward passes to draw the same numbers,
    /// and moves the positions on: the next call draws others.
    pub(super) fn draws(&self) -> Result<[AttentionStage; 3]> {
        use AttentionRole::{DropoutPositions, DropoutSeeds, KeptPositions, KeptSeeds};
        let seeds = self.kept(DropoutSeeds, KeptSeeds)?;
        let positions = self.kept(DropoutPositions, KeptPositions)?;
        // A graph of its own, which reads what was kept: nothing is read where it is written.
        Ok([seeds, positions, self.advance()?])
    }

    fn kept(&self, from: AttentionRole, to: AttentionRole) -> Result<AttentionStage> {
        let mut stage = Stage::default();
        let [from, to] = [from, to].map(|role| self.of_dropouts(&mut stage, role));
        stage.graph.pointwise_into(Pointwise::new(Mode::Identity), &[from], to);
        stage.finish()
    }

    fn advance(&self) -> Result<AttentionStage> {
        use AttentionRole::{DropoutPositions, KeptPositions};
        let mut stage = Stage::default();
        let [from, to] =
            [KeptPositions, DropoutPositions].map(|role| self.of_dropouts(&mut stage, role));
        let role = AttentionRole::DropoutCount;
        let count = TensorDesc::packed(0, role.name(), &[1], DType::I32);
        let count = TensorDesc { by_value: true, ..count };
        let count = self.place(&mut stage, role, 0, count);
        let add = Pointwise::new(Mode::Add).math(Math::I32);
        stage.graph.pointwise_into(add, &[from, count], to);
        stage.finish()
    }

    /// What the outputs of a call, or their gradient, are multiplied with, and how: vectors are in
    /// the order batch, beam, time, so that an element's number does not depend on the caller's
    /// layout.
    pub(super) fn keep(
        &self,
        stage: &mut Stage,
        dims: &[i64],
        dropout: DropoutDescriptor,
    ) -> Result<(Pointwise, i64)> {
        let inputs = [AttentionRole::KeptSeeds, AttentionRole::KeptPositions]
            .map(|role| self.drawn(stage, role, 1));
        let keep = Rng::bernoulli(dropout.kept()).seed(None);
        let keep = stage.graph.rng(keep, &inputs, dims)?;
        let math = self.layer.descriptor.math();
        Ok((Pointwise::new(Mode::Mul).math(math).alphas(dropout.scale(), 1.0), keep))
    }

    /// Adds the seed or the position of one of the dropouts.
    pub(super) fn drawn(&self, stage: &mut Stage, role: AttentionRole, at: i64) -> i64 {
        let name = if role == AttentionRole::KeptSeeds { "seed" } else { "offset" };
        let tensor = TensorDesc::packed(0, name, &[1; 4], dtype_of(role));
        self.place(stage, role, at, tensor)
    }

    fn of_dropouts(&self, stage: &mut Stage, role: AttentionRole) -> i64 {
        let tensor = TensorDesc::packed(0, role.name(), &[DROPOUTS], dtype_of(role));
        self.place(stage, role, 0, tensor)
    }
}

/// The type of seeds or positions.
fn dtype_of(role: AttentionRole) -> DType {
    match role {
        AttentionRole::DropoutSeeds | AttentionRole::KeptSeeds => DType::I64,
        _ => DType::I32,
    }
}
