//! Normalisations as data: the parameters of `tests/cases/norms.toml`, which the README beside it
//! lists.

use kiln::expr::Math;
use kiln::graph::{
    BnBackwardWeights, BnFinalize, GenStats, NormBackward, NormForward, NormMode, Op, Phase,
};
use kiln::{DType, OperationGraph, TensorDesc};
use serde::Deserialize;

use crate::columns::channels_last;
use crate::harness::Values;
use crate::norm;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormData {
    operation: Operation,
    /// Of norms; others are those of a batch norm.
    mode: Option<Mode>,
    /// Of a group norm.
    #[serde(default)]
    groups: i64,
    dtype: DType,
    /// Of the data: batch, channels, and what is normalised.
    dims: Vec<i64>,
    /// Whether statistics are read from tensors, in the place of computing them.
    #[serde(default)]
    inference: bool,
    #[serde(default)]
    statistics: bool,
    #[serde(default)]
    running: bool,
    #[serde(default = "yes")]
    bias: bool,
    #[serde(default)]
    lay: Lay,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Operation {
    NormForward,
    NormBackward,
    GenStats,
    BnFinalize,
    BnBackwardWeights,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Layer,
    Rms,
    Instance,
    Batch,
    Group,
}

/// How data lie in memory.
#[derive(Deserialize, Clone, Copy, Default, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Lay {
    #[default]
    Packed,
    ChannelsLast,
    /// Gaps behind rows, which are aligned to one element.
    OddRows,
    /// Packed, aligned to one element.
    Misaligned,
}

fn yes() -> bool {
    true
}

impl NormData {
    fn mode(&self) -> NormMode {
        match self.mode {
            Some(Mode::Layer) => NormMode::Layer,
            Some(Mode::Rms) => NormMode::Rms,
            Some(Mode::Instance) => NormMode::Instance,
            Some(Mode::Group) => NormMode::Group(self.groups),
            Some(Mode::Batch) | None => NormMode::Batch,
        }
    }

    fn operation(&self) -> Op {
        let NormData { statistics, running, bias, .. } = *self;
        let math = if self.dtype == DType::F64 { Math::F64 } else { Math::F32 };
        let phase = if self.inference { Phase::Inference } else { Phase::Training };
        let mode = self.mode();
        match self.operation {
            Operation::NormForward => {
                let op = NormForward::new(mode, phase);
                Op::NormForward(NormForward { math, bias, statistics, running, ..op })
            }
            Operation::NormBackward => {
                let op = NormBackward::new(mode);
                Op::NormBackward(NormBackward { math, bias, statistics, ..op })
            }
            Operation::GenStats => Op::GenStats(GenStats { math }),
            Operation::BnFinalize => {
                Op::BnFinalize(BnFinalize { math, running, ..BnFinalize::new(phase) })
            }
            Operation::BnBackwardWeights => Op::BnBackwardWeights(BnBackwardWeights { math }),
        }
    }

    fn built(&self) -> (OperationGraph, Values) {
        let dims = |slot: &str| norm::dims(self.mode(), &self.dims, slot);
        norm::graph(self.operation(), self.dtype, dims)
    }

    pub fn graph(&self) -> OperationGraph {
        let (graph, _) = self.built();
        match self.lay {
            Lay::Packed => graph,
            Lay::ChannelsLast => channels_last(&graph),
            Lay::OddRows | Lay::Misaligned => {
                let tensors = graph.tensors().iter().map(|tensor| self.placed(tensor)).collect();
                OperationGraph::new(tensors, graph.operations().to_vec()).expect("it is valid")
            }
        }
    }

    /// A tensor of the data's dimensions where it is to lie.
    fn placed(&self, tensor: &TensorDesc) -> TensorDesc {
        if tensor.dims != self.dims {
            return tensor.clone();
        }
        let mut strides = tensor.strides.clone();
        if let (Lay::OddRows, [outer @ .., _]) = (self.lay, &mut strides[..]) {
            let columns = self.dims[self.dims.len() - 1];
            let row = (columns + 2) | 1;
            outer.iter_mut().for_each(|stride| *stride = *stride / columns.max(1) * row);
        }
        TensorDesc { strides, alignment: tensor.dtype.bytes(), ..tensor.clone() }
    }

    pub fn inputs(&self) -> Values {
        self.built().1
    }
}
