//! Conversion of weights from other frameworks to the layout of a weight space.

use crate::error::{Error, Result};
use crate::rnn::mode::BiasMode;
use crate::rnn::network::Rnn;
use crate::rnn::role::Role;
use crate::rnn::weights::{WeightKind, WeightSpace};

/// A tensor on the host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostTensor {
    /// Dimensions.
    pub dims: Vec<i64>,
    /// Elements in row-major order.
    pub values: Vec<f64>,
}

impl HostTensor {
    /// Returns a tensor with these dimensions and values.
    pub fn new(dims: &[i64], values: Vec<f64>) -> HostTensor {
        HostTensor { dims: dims.to_vec(), values }
    }

    /// Checks the dimensions and the number of values.
    pub(super) fn expect(&self, name: &str, dims: &[i64]) -> Result<()> {
        let count = dims.iter().product::<i64>() as usize;
        if self.dims != dims || self.values.len() != count {
            let (is, values) = (&self.dims, self.values.len());
            return Err(Error::bad_param(format!(
                "`{name}` is {is:?} with {values} values, expected {dims:?}"
            )));
        }
        Ok(())
    }

    /// Returns `count` elements from `first` on.
    fn part(&self, first: i64, count: i64) -> &[f64] {
        &self.values[first as usize..(first + count) as usize]
    }
}

/// Permutes blocks of `block` elements.
fn ordered(values: &[f64], order: &[usize], block: i64) -> Vec<f64> {
    let block = block as usize;
    order.iter().flat_map(|at| &values[at * block..(at + 1) * block]).copied().collect()
}

impl WeightSpace {
    /// Fills a weight space block by block.
    ///
    /// # Errors
    /// Errors of `block`.
    ///
    /// # Panics
    /// When `block` returns a wrong number of values.
    pub fn filled(
        &self,
        mut block: impl FnMut(usize, WeightKind) -> Result<Vec<f64>>,
    ) -> Result<Vec<f64>> {
        let mut space = vec![0.0; self.elements() as usize];
        for pseudo_layer in 0..self.pseudo_layers() {
            for kind in WeightKind::ALL {
                if let Some(at) = self.block(pseudo_layer, kind) {
                    let (first, count) = (at.offset as usize, (at.rows * at.columns) as usize);
                    let values = block(pseudo_layer, kind)?;
                    space[first..first + count].copy_from_slice(&values);
                }
            }
        }
        Ok(space)
    }
}

impl Rnn {
    /// Encodes the values of a weight space as bytes; of a quantised network, those of
    /// [`Role::Weights`] and behind them those of [`Role::WeightNumbers`].
    pub fn encode(&self, values: &[f64]) -> Vec<u8> {
        let integers = match self.quantization.and_then(|_| WeightSpace::new(self).ok()) {
            Some(space) => (space.elements_of(Role::Weights) as usize).min(values.len()),
            None => values.len(),
        };
        let (weights, numbers) = values.split_at(integers);
        let parts = [(weights, Role::Weights), (numbers, Role::WeightNumbers)];
        let encoded = parts.into_iter().flat_map(|(values, role)| {
            let dtype = self.weights_dtype(role);
            let size = dtype.bytes();
            let mut bytes = vec![0; values.len() * size];
            for (value, element) in values.iter().zip(bytes.chunks_exact_mut(size)) {
                dtype.write(*value, element);
            }
            bytes
        });
        encoded.collect()
    }

    /// Torch's name of a parameter: `weight_ih_l0`, `bias_hh_l1_reverse`.
    pub fn torch_name(&self, pseudo_layer: usize, kind: WeightKind) -> String {
        let directions = self.directions() as usize;
        let (layer, direction) = (pseudo_layer / directions, pseudo_layer % directions);
        let reverse = if direction == 1 { "_reverse" } else { "" };
        format!("{}_l{layer}{reverse}", kind.torch_name())
    }

    /// Builds the weight space from the parameters of a `torch.nn.RNN`, `LSTM` or `GRU`, by name;
    /// the gate order is the same. Cells that torch does not have use the same naming; cell
    /// parameters, such as the peepholes `i f o`, are `parameters_l0` `[parameters, hidden]`.
    ///
    /// # Errors
    /// As [`Rnn::validate`]; `BadParam` for a parameter that is missing or has the wrong shape.
    pub fn from_torch(
        &self,
        mut parameter: impl FnMut(&str) -> Option<HostTensor>,
    ) -> Result<Vec<f64>> {
        let space = WeightSpace::new(self)?;
        space.filled(|pseudo_layer, kind| {
            let name = self.torch_name(pseudo_layer, kind);
            let tensor = parameter(&name)
                .ok_or_else(|| Error::bad_param(format!("weights `{name}` are missing")))?;
            let block = space.block(pseudo_layer, kind).expect("asked for what there is");
            match kind.is_vector() {
                true => tensor.expect(&name, &[block.rows])?,
                false => tensor.expect(&name, &[block.rows, block.columns])?,
            }
            Ok(tensor.values)
        })
    }

    /// Selects the gate order for the cell's number of gates, from the orders for three and four.
    fn gate_order(&self, orders: [&'static [usize]; 2]) -> Result<&'static [usize]> {
        match self.build_cell().gates.len() {
            1 => Ok(&[0]),
            3 => Ok(orders[0]),
            4 => Ok(orders[1]),
            count => Err(Error::not_supported(format!("weights of a cell of {count} gates"))),
        }
    }

    /// Builds the weight space from the tensors of an ONNX `RNN`, `LSTM` or `GRU`: one layer, gates
    /// `i o f c` and `z r h`, peepholes `i o f`. `b` is present if the network has both biases, `p`
    /// if it has peepholes.
    ///
    /// # Errors
    /// As [`Rnn::from_torch`]; `NotSupported` for more than one layer.
    pub fn from_onnx(
        &self,
        w: &HostTensor,
        r: &HostTensor,
        b: Option<&HostTensor>,
        p: Option<&HostTensor>,
    ) -> Result<Vec<f64>> {
        let space = WeightSpace::new(self)?;
        if self.layers != 1 {
            let layers = self.layers;
            return Err(Error::not_supported(format!("ONNX weights of {layers} layers")));
        }
        let order = self.gate_order([&[1, 0, 2], &[0, 2, 3, 1]])?;
        let (directions, hidden, input) = (self.directions(), self.hidden_size, self.input_size);
        let rows = order.len() as i64 * hidden;
        w.expect("W", &[directions, rows, input])?;
        r.expect("R", &[directions, rows, hidden])?;
        given("B", b, self.bias == BiasMode::Double, &[directions, 2 * rows])?;
        let peephole = !self.build_cell().parameters.is_empty();
        given("P", p, peephole, &[directions, 3 * hidden])?;
        space.filled(|direction, kind| {
            let at = direction as i64;
            let part = |of: Option<&HostTensor>, first: i64, columns: i64, order: &[usize]| {
                let count = order.len() as i64 * hidden * columns;
                let tensor = of.expect("asked for what there is");
                Ok(ordered(tensor.part(first, count), order, hidden * columns))
            };
            match kind {
                WeightKind::Input => part(Some(w), at * rows * input, input, order),
                WeightKind::Recurrent => part(Some(r), at * rows * hidden, hidden, order),
                WeightKind::InputBias => part(b, at * 2 * rows, 1, order),
                WeightKind::RecurrentBias => part(b, (at * 2 + 1) * rows, 1, order),
                WeightKind::Parameters => part(p, at * 3 * hidden, 1, &[0, 2, 1]),
                WeightKind::Projection => Err(Error::not_supported("ONNX has no projection")),
                WeightKind::InputScales | WeightKind::RecurrentScales => {
                    Err(Error::not_supported("ONNX has no quantised weights"))
                }
            }
        })
    }

    /// Builds the weight space from the weights of a oneDNN primitive in the layouts `ldigo`
    /// (`layer`, `iter`), `ldgo` (`bias`, `peephole`) and `ldio` (`projection`): gates `i f c o`
    /// and `u r o`, one bias per gate. Cells whose reset gate acts on the recurrent GEMM have a
    /// fourth bias, within the reset: their network has both biases, every other one
    /// [`BiasMode::SingleInput`].
    ///
    /// # Errors
    /// As [`Rnn::from_torch`]; `NotSupported` for layers with different input sizes.
    pub fn from_onednn(&self, weights: &OneDnnWeights) -> Result<Vec<f64>> {
        let space = WeightSpace::new(self)?;
        let (layers, directions) = (self.layers, self.directions());
        let (hidden, state, input) = (self.hidden_size, self.state_size(), self.input_size);
        if (1..layers).any(|layer| self.layer_input_size(layer) != input) {
            return Err(Error::not_supported("oneDNN weights of layers of different input sizes"));
        }
        let order = self.gate_order([&[1, 0, 2], &[0, 1, 2, 3]])?;
        let gates = order.len() as i64;
        let OneDnnWeights { layer, iter, bias, peephole, projection } = weights;
        layer.expect("weights_layer", &[layers, directions, input, gates, hidden])?;
        iter.expect("weights_iter", &[layers, directions, state, gates, hidden])?;
        // With both biases, the recurrent one is 0 except for the candidate's.
        let biases = if self.bias == BiasMode::Double { gates + 1 } else { gates };
        let has_bias = self.bias != BiasMode::None;
        given("bias", bias.as_ref(), has_bias, &[layers, directions, biases, hidden])?;
        let peeps = !self.build_cell().parameters.is_empty();
        given("weights_peephole", peephole.as_ref(), peeps, &[layers, directions, 3, hidden])?;
        let projected = self.projection_size.is_some();
        let dims = [layers, directions, hidden, state];
        given("weights_projection", projection.as_ref(), projected, &dims)?;
        if self.bias == BiasMode::SingleRecurrent || (biases > gates && gates != 3) {
            return Err(Error::not_supported(format!("oneDNN weights with {:?} bias", self.bias)));
        }
        space.filled(|pseudo_layer, kind| {
            let at = pseudo_layer as i64;
            let part = |of: &Option<HostTensor>, count: i64| {
                of.as_ref().expect("asked for what there is").part(at * count, count).to_vec()
            };
            let rows = |of: &HostTensor, columns: i64| {
                let count = columns * gates * hidden;
                ordered(&transposed(of.part(at * count, count), columns), order, hidden * columns)
            };
            Ok(match kind {
                WeightKind::Input => rows(layer, input),
                WeightKind::Recurrent => rows(iter, state),
                WeightKind::Projection => transposed(&part(projection, hidden * state), hidden),
                WeightKind::Parameters => part(peephole, 3 * hidden),
                WeightKind::InputBias => ordered(&part(bias, biases * hidden), order, hidden),
                WeightKind::RecurrentBias => {
                    let inner = part(bias, biases * hidden).split_off((gates * hidden) as usize);
                    let outer = vec![0.0; ((gates - 1) * hidden) as usize];
                    [outer, inner].concat()
                }
                WeightKind::InputScales | WeightKind::RecurrentScales => {
                    let text = "oneDNN weights of a quantised network: quantise those in f32";
                    return Err(Error::not_supported(text));
                }
            })
        })
    }
}

/// Weights in oneDNN's layout.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OneDnnWeights {
    /// `[layers, directions, input, gates, hidden]`.
    pub layer: HostTensor,
    /// `[layers, directions, state, gates, hidden]`.
    pub iter: HostTensor,
    /// `[layers, directions, gates, hidden]`; one more gate with the inner bias.
    pub bias: Option<HostTensor>,
    /// `[layers, directions, 3, hidden]`, in the order `i f o`.
    pub peephole: Option<HostTensor>,
    /// `[layers, directions, hidden, state]`.
    pub projection: Option<HostTensor>,
}

/// Checks an optional tensor.
fn given(name: &str, tensor: Option<&HostTensor>, wanted: bool, dims: &[i64]) -> Result<()> {
    match (tensor, wanted) {
        (Some(tensor), true) => tensor.expect(name, dims),
        (None, false) => Ok(()),
        (Some(_), false) => Err(Error::bad_param(format!("the network has no weights `{name}`"))),
        (None, true) => Err(Error::bad_param(format!("weights `{name}` are missing"))),
    }
}

/// Transposes a matrix with `rows` rows.
fn transposed(values: &[f64], rows: i64) -> Vec<f64> {
    let rows = rows as usize;
    let columns = values.len() / rows;
    let element = |at: usize| values[at % rows * columns + at / rows];
    (0..values.len()).map(element).collect()
}
