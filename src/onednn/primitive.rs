//! Primitives: steps on the caller's memory.

use std::collections::BTreeMap;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::attr::PrimitiveAttr;
use crate::onednn::constants::Constants;
use crate::onednn::description::RnnDesc;
use crate::onednn::integers::Integers;
use crate::onednn::lower::{self, Lowered};
use crate::onednn::memory::{FormatTag, MemoryDesc};
use crate::onednn::reorder::{self, Placed};
use crate::onednn::sizes::Sizes;
use crate::onednn::step::{Home, Step};
use crate::onednn::types;

/// A primitive with the descriptors of its arguments (`dnnl::primitive_desc`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Primitive {
    descs: BTreeMap<Arg, MemoryDesc>,
    steps: Vec<Step>,
    constants: Vec<u8>,
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
        let lowered = lower::lower(&resolved, &sizes)?;
        let mut descs = resolved.descs;
        if lowered.workspace_bytes > 0 {
            let bytes = lowered.workspace_bytes as i64;
            let desc = MemoryDesc::strided(&[bytes], DType::U8, &[1])?;
            descs.insert(Arg::Workspace, desc);
        }
        let Lowered { steps, constants, scratch_bytes, .. } = lowered;
        Ok(Primitive { descs, steps, constants, scratch_bytes })
    }

    /// A reorder: [`Arg::TO`] becomes [`Arg::FROM`] in another format or type. The attributes say
    /// what 8-bit integers beside floating-point numbers stand for: those of five dimensions are
    /// weights, others data. Integers round to nearest even and saturate; NaN is 0.
    ///
    /// # Errors
    /// `BadParam` for different dimensions, the format `any`, and attributes of numbers or that
    /// break a rule; `NotSupported` for other integers, and scales of a projection.
    pub fn reorder(from: &MemoryDesc, to: &MemoryDesc, attr: &PrimitiveAttr) -> Result<Primitive> {
        let error = |kind, rule: &str| {
            Error::with(kind, format!("onednn reorder of {from} to {to}: {rule}"))
        };
        let fail = |kind, rule: &str| Err(error(kind, rule));
        if from.dims() != to.dims() {
            return fail(ErrorKind::BadParam, "the dimensions differ");
        }
        if from.is_any() || to.is_any() {
            return fail(ErrorKind::BadParam, "a format is any");
        }
        let types = [from, to].map(MemoryDesc::dtype);
        let is_integer = |dtype: DType| matches!(dtype, DType::I8 | DType::U8);
        if let Some(other) = types.into_iter().find(|of| !of.is_float() && !is_integer(*of)) {
            let rule = format!("elements of {other}, expected floating-point or 8-bit ones");
            return fail(ErrorKind::NotSupported, &rule);
        }
        if *attr != PrimitiveAttr::default() && !types.into_iter().any(is_integer) {
            return fail(ErrorKind::BadParam, "quantization of neither u8 nor i8");
        }
        if attr.projection.is_some() {
            return fail(ErrorKind::NotSupported, "scales of a projection, which is not of 8 bits");
        }
        let mut constants = Constants::default();
        let integers = Integers::of_memory(from.dims(), attr, &mut constants)
            .map_err(|rule| error(ErrorKind::BadParam, &rule))?;
        // Pointwise operations have tensors of three dimensions at least.
        let of = |desc: &MemoryDesc, arg: Arg| Placed {
            tensor: desc.tensor(0, "", 3),
            home: Home::Argument(arg, 0),
        };
        let step = reorder::copy(of(from, Arg::FROM), of(to, Arg::TO), integers.as_ref())?;
        let descs = BTreeMap::from([(Arg::FROM, from.clone()), (Arg::TO, to.clone())]);
        let constants = constants.bytes();
        let scratch_bytes = constants.len() as u64;
        Ok(Primitive { descs, steps: vec![step], constants, scratch_bytes })
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

    /// What the primitive's own memory begins with.
    pub fn constants(&self) -> &[u8] {
        &self.constants
    }

    /// Bytes of the primitive's own memory, constants among them.
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
