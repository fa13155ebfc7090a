//! Primitives: steps on the caller's memory.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::description::RnnDesc;
use crate::onednn::lower;
use crate::onednn::memory::{FormatTag, MemoryDesc};
use crate::onednn::reorder;
use crate::onednn::sizes::Sizes;
use crate::onednn::step::{Home, Step};
use crate::onednn::types;

/// A primitive with the descriptors of its arguments (`dnnl::primitive_desc`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Primitive {
    descs: BTreeMap<Arg, MemoryDesc>,
    steps: Vec<Step>,
    scratch_bytes: u64,
}

impl Primitive {
    /// The primitive of an RNN operation.
    ///
    /// # Errors
    /// `BadParam` for descriptors that break a rule, which the message states; `NotSupported` for
    /// combinations that there are no engines for; as
    /// [`Rnn::network`](crate::rnn::Rnn::network) and
    /// [`OperationGraph::vjp`](crate::graph::OperationGraph::vjp).
    pub fn rnn(of: &RnnDesc) -> Result<Primitive> {
        let sizes = Sizes::of(of)?;
        types::check(of)?;
        let resolved = RnnDesc { descs: resolved(&of.descs)?, ..of.clone() };
        let data = resolved.descs[&Arg::Of(Tensor::SrcLayer)].dtype();
        if !data.is_float() {
            let rule = format!("8-bit integers are not lowered: src_layer of {data}");
            return Err(of.error(ErrorKind::NotSupported, &rule));
        }
        let lowered = lower::lower(&resolved, &sizes)?;
        let mut descs = resolved.descs;
        if lowered.workspace_bytes > 0 {
            let bytes = lowered.workspace_bytes as i64;
            let desc = MemoryDesc::strided(&[bytes], DType::U8, &[1])?;
            descs.insert(Arg::Workspace, desc);
        }
        let (steps, scratch_bytes) = (lowered.steps, lowered.scratch_bytes);
        Ok(Primitive { descs, steps, scratch_bytes })
    }

    /// A reorder: [`Arg::TO`] becomes [`Arg::FROM`] in another format or type.
    ///
    /// # Errors
    /// `BadParam` for different dimensions, and the format `any`; `NotSupported` for integers.
    pub fn reorder(from: &MemoryDesc, to: &MemoryDesc) -> Result<Primitive> {
        let fail = |kind, rule: &str| {
            Err(Error::with(kind, format!("onednn reorder of {from} to {to}: {rule}")))
        };
        if from.dims() != to.dims() {
            return fail(ErrorKind::BadParam, "the dimensions differ");
        }
        if from.is_any() || to.is_any() {
            return fail(ErrorKind::BadParam, "a format is any");
        }
        if !from.dtype().is_float() || !to.dtype().is_float() {
            return fail(ErrorKind::NotSupported, "only floating-point elements are reordered");
        }
        // Pointwise operations have tensors of three dimensions at least.
        let of = |desc: &MemoryDesc, uid, name| desc.tensor(uid, name, 3);
        let graph = reorder::copy(of(from, 1, "from"), of(to, 2, "to"))?;
        let homes = vec![(1, Home::Argument(Arg::FROM, 0)), (2, Home::Argument(Arg::TO, 0))];
        let descs = BTreeMap::from([(Arg::FROM, from.clone()), (Arg::TO, to.clone())]);
        Ok(Primitive { descs, steps: vec![Step { graph, homes }], scratch_bytes: 0 })
    }

    /// The arguments and their descriptors, of which no format is `any`.
    pub fn descs(&self) -> &BTreeMap<Arg, MemoryDesc> {
        &self.descs
    }

    /// The descriptor of an argument, if the primitive has it (`query_md`).
    pub fn desc(&self, arg: Arg) -> Option<&MemoryDesc> {
        self.descs.get(&arg)
    }

    /// What it runs, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Bytes of the primitive's own memory.
    pub fn scratch_bytes(&self) -> u64 {
        self.scratch_bytes
    }
}

/// Descriptors with the formats that the primitive prefers instead of `any`: those whose memory
/// the engines read as it is.
fn resolved(descs: &BTreeMap<Arg, MemoryDesc>) -> Result<BTreeMap<Arg, MemoryDesc>> {
    let resolve = |(arg, desc): (&Arg, &MemoryDesc)| {
        let (Arg::Of(tensor) | Arg::Diff(tensor)) = arg else { return Ok((*arg, desc.clone())) };
        let tag = match tensor {
            Tensor::SrcLayer | Tensor::DstLayer | Tensor::AugruAttention => FormatTag::Tnc,
            Tensor::SrcIter | Tensor::SrcIterC | Tensor::DstIter | Tensor::DstIterC => {
                FormatTag::Ldnc
            }
            Tensor::WeightsLayer | Tensor::WeightsIter => FormatTag::Ldgoi,
            Tensor::WeightsProjection => FormatTag::Ldoi,
            Tensor::WeightsPeephole | Tensor::Bias => FormatTag::Ldgo,
        };
        match desc.is_any() {
            true => Ok((*arg, MemoryDesc::new(desc.dims(), desc.dtype(), tag)?)),
            false => Ok((*arg, desc.clone())),
        }
    };
    descs.iter().map(resolve).collect()
}
