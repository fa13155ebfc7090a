//! The sizes of an operation, with the rules that its descriptors keep.

use crate::error::{ErrorKind, Result};
use crate::onednn::argument::{Arg, Tensor};
use crate::onednn::description::{PropKind, RnnDesc, RnnDirection};

/// Extents that the tensors of an operation have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    /// Time steps `T`.
    pub(super) steps: i64,
    /// Sequences `N`.
    pub(super) batch: i64,
    /// Layers `L`.
    pub(super) layers: i64,
    /// Directions `D`.
    pub(super) directions: i64,
    /// Channels of an input `SLC`.
    pub(super) input: i64,
    /// Hidden units `DHC`.
    pub(super) hidden: i64,
    /// Channels of `h`, `DIC`: hidden units or what a projection makes of them.
    pub(super) output: i64,
}

impl Sizes {
    /// Those of an operation.
    ///
    /// # Errors
    /// `BadParam` for a tensor that is missing or that the cell does not have, and for dimensions
    /// that break a rule; `NotSupported` for states whose channels differ in a single step.
    pub(super) fn of(of: &RnnDesc) -> Result<Sizes> {
        Rules(of).sizes()
    }
}

struct Rules<'a>(&'a RnnDesc);

impl Rules<'_> {
    fn fail<T>(&self, rule: &str) -> Result<T> {
        Err(self.0.error(ErrorKind::BadParam, rule))
    }

    /// The dimensions of a tensor that must be there.
    fn dims<const N: usize>(&self, tensor: Tensor) -> Result<[i64; N]> {
        let name = tensor.name();
        let Some(desc) = self.0.desc(tensor) else {
            return self.fail(&format!("{name} is missing"));
        };
        let dims = desc.dims();
        match dims.try_into() {
            Ok(dims) => Ok(dims),
            Err(_) => self.fail(&format!("{name} is {dims:?}, expected {N} dimensions")),
        }
    }

    /// A rule: what a number is, what it must be, and why.
    fn rule(&self, what: &str, is: i64, wanted: i64, why: &str) -> Result<()> {
        match is == wanted {
            true => Ok(()),
            false => self.fail(&format!("{what} is {is}, expected {wanted} ({why})")),
        }
    }

    fn sizes(&self) -> Result<Sizes> {
        let of = self.0;
        let (cell, direction) = (of.cell, of.direction);
        for tensor in Tensor::ALL.into_iter().filter(|tensor| of.has(*tensor)) {
            if !cell.has(tensor) {
                return self.fail(&format!("{} of cell {}", tensor.name(), cell.name()));
            }
        }
        if cell.has(Tensor::AugruAttention) {
            self.dims::<3>(Tensor::AugruAttention)?;
        }
        let [steps, batch, input] = self.dims(Tensor::SrcLayer)?;
        let [layers, directions, rows, gates, hidden] = self.dims(Tensor::WeightsLayer)?;
        let [_, _, state, _, _] = self.dims::<5>(Tensor::WeightsIter)?;
        let [_, _, width] = self.dims(Tensor::DstLayer)?;
        let way = direction.name();
        self.rule("directions(weights_layer)", directions, direction.count(), way)?;
        self.rule("gates(weights_layer)", gates, cell.gates(), cell.name())?;
        self.rule("channels(weights_layer)", rows, input, "channels(src_layer)")?;
        let output = match of.has(Tensor::WeightsProjection) {
            true => self.dims::<4>(Tensor::WeightsProjection)?[3],
            false => hidden,
        };
        let (joined, why) = match direction {
            RnnDirection::BidirectionalConcat => (2 * output, "2 channels(dst_iter)"),
            _ => (output, "channels(dst_iter)"),
        };
        self.rule("channels(dst_layer)", width, joined, why)?;
        if steps > 1 {
            let why = format!("channels(dst_iter), T = {steps}");
            self.rule("channels(src_iter)", state, output, &why)?;
        }
        if layers > 1 {
            let why = format!("channels of a layer's outputs, L = {layers}");
            self.rule("channels(src_layer)", input, output, &why)?;
        }
        let sizes = Sizes { steps, batch, layers, directions, input, hidden, output };
        self.tensors(&sizes, state, width)?;
        self.gradients()?;
        match state == output {
            true => Ok(sizes),
            false => {
                let rule = format!("channels(src_iter) {state} beside channels(dst_iter) {output}");
                Err(of.error(ErrorKind::NotSupported, &rule))
            }
        }
    }

    /// Checks the dimensions of all tensors.
    fn tensors(&self, sizes: &Sizes, state: i64, width: i64) -> Result<()> {
        let Sizes { steps, batch, layers, directions, input, hidden, output } = *sizes;
        let cell = self.0.cell;
        let of_stack = |dims: &[i64]| [&[layers, directions], dims].concat();
        for tensor in Tensor::ALL {
            let Some(desc) = self.0.desc(tensor) else { continue };
            let wanted = match tensor {
                Tensor::SrcLayer => vec![steps, batch, input],
                Tensor::DstLayer => vec![steps, batch, width],
                Tensor::AugruAttention => vec![steps, batch, 1],
                Tensor::SrcIter => of_stack(&[batch, state]),
                Tensor::DstIter => of_stack(&[batch, output]),
                Tensor::SrcIterC | Tensor::DstIterC => of_stack(&[batch, hidden]),
                Tensor::WeightsLayer => of_stack(&[input, cell.gates(), hidden]),
                Tensor::WeightsIter => of_stack(&[state, cell.gates(), hidden]),
                Tensor::WeightsPeephole => of_stack(&[3, hidden]),
                Tensor::WeightsProjection => of_stack(&[hidden, output]),
                Tensor::Bias => of_stack(&[cell.biases(), hidden]),
            };
            if desc.dims() != wanted {
                let (name, dims) = (tensor.name(), desc.dims());
                return self.fail(&format!("{name} is {dims:?}, expected {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Checks that a backward pass has the gradients of all tensors, and another pass none.
    fn gradients(&self) -> Result<()> {
        let of = self.0;
        for tensor in Tensor::ALL {
            let own = of.descs.get(&Arg::Diff(tensor));
            let name = Arg::Diff(tensor).name();
            match (own, of.desc(tensor).filter(|_| of.prop_kind == PropKind::Backward)) {
                (None, Some(_)) => return self.fail(&format!("{name} is missing")),
                (Some(_), None) => return self.fail(&format!("{name} is not expected")),
                (Some(own), Some(desc)) if own.dims() != desc.dims() => {
                    let (is, wanted) = (own.dims(), desc.dims());
                    return self.fail(&format!("{name} is {is:?}, expected {wanted:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
