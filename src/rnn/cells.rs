//! The predefined cells, built from the same stages as user-defined ones.

use crate::error::{Error, Result};
use crate::expr::{Lines, Math, Mode, NanPropagation, Pointwise, Real};
use crate::graph::{Cell, RecurrentGemm, Stage};

/// A predefined cell (`mcdnnRNNMode_t`, section 6.1.2.8; oneDNN's RNN primitive).
///
/// Gates are in the order of the linLayerIDs: LSTM `i f g o` with candidate `g`, GRU `r z n` with
/// candidate `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CellKind {
    /// `h = max(x + r, 0)`; propagates NaN unless [`CellOptions::drop_nan`].
    Relu,
    /// `h = tanh(x + r)`.
    Tanh,
    /// `h = sigmoid(x + r)`.
    Sigmoid,
    /// `c = f c + i g`, `h = o tanh(c)` (Hochreiter and Schmidhuber 1997).
    Lstm,
    /// `n = tanh(x_n + r * (R_n h + b))`: reset gate after the GEMM, as in cuDNN, torch and mcDNN;
    /// oneDNN's LBR-GRU.
    Gru,
    /// `n = tanh(x_n + R_n (r * h) + b)`: reset gate before the GEMM, as in Cho et al. 2014, ONNX's
    /// default and oneDNN's vanilla GRU.
    GruResetBefore,
    /// [`CellKind::GruResetBefore`] with the update gate scaled by `1 - attention`, a row input
    /// (oneDNN; Zhou et al. 2019).
    Augru,
    /// [`CellKind::Gru`] with the same scaling.
    LbrAugru,
}

/// Options of a predefined cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CellOptions {
    /// Precision of the cell's programs.
    pub math: Math,
    /// LSTM: gates `i` and `f` read the old cell state, `o` the new one, through parameters `p_i`,
    /// `p_f`, `p_o` (Gers and Schmidhuber 2000).
    pub peephole: bool,
    /// LSTM: `h` is a projection of the cell's output (Sak et al. 2014).
    pub projected: bool,
    /// LSTM: clipping of the cell state.
    pub cell_clip: Option<CellClip>,
    /// ReLU: NaN becomes 0, as with CUDA's `fmaxf`; otherwise it propagates, as in torch.
    pub drop_nan: bool,
    /// ONNX's `clip`: gates are clamped to `[-gate_clip, gate_clip]` before their activation.
    pub gate_clip: Option<Real>,
    /// GRU: the update gate comes first, `z r n`, as in oneDNN and ONNX.
    pub update_first: bool,
    /// GRU whose reset gate acts after the GEMM: a parameter `b_n` is added to the candidate's
    /// before the reset. It is oneDNN's fourth bias, without a recurrent bias of the other gates.
    pub inner_bias: bool,
}

/// Clipping of an LSTM's cell state (`mcdnnRNNSetClip_v8`, section 6.2.1.42).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CellClip {
    /// Lower limit.
    pub min: Real,
    /// Upper limit.
    pub max: Real,
    /// Whether NaN propagates or becomes the lower limit.
    pub nan: NanPropagation,
    /// Where the clip is applied.
    pub point: ClipPoint,
}

impl CellClip {
    /// Checks the limits.
    ///
    /// # Errors
    /// `BadParam` where a limit is NaN or the lower one exceeds the upper one (section 6.2.1.42).
    pub fn validate(&self) -> Result<()> {
        let CellClip { min, max, .. } = self;
        match min.get() <= max.get() {
            true => Ok(()),
            false => Err(Error::bad_param(format!(
                "clip of the cell state: {min} to {max} is not a range"
            ))),
        }
    }
}

/// Point at which the cell state is clipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ClipPoint {
    /// On reads, by the next step and by the output activation; the stored state is not clipped.
    /// This is cuDNN's behaviour.
    #[default]
    Read,
    /// On writes, as TensorFlow's `cell_clip`.
    Stored,
}

impl CellKind {
    /// All kinds.
    pub const ALL: [CellKind; 8] = [
        CellKind::Relu,
        CellKind::Tanh,
        CellKind::Sigmoid,
        CellKind::Lstm,
        CellKind::Gru,
        CellKind::GruResetBefore,
        CellKind::Augru,
        CellKind::LbrAugru,
    ];

    /// Name in messages and problem files.
    pub fn name(self) -> &'static str {
        match self {
            CellKind::Relu => "relu",
            CellKind::Tanh => "tanh",
            CellKind::Sigmoid => "sigmoid",
            CellKind::Lstm => "lstm",
            CellKind::Gru => "gru",
            CellKind::GruResetBefore => "gru_reset_before",
            CellKind::Augru => "augru",
            CellKind::LbrAugru => "lbr_augru",
        }
    }

    /// Whether the cell has a state besides `h`.
    pub fn has_cell_state(self) -> bool {
        self == CellKind::Lstm
    }

    /// Number of gates with an input contribution.
    pub fn gates(self) -> usize {
        match self {
            CellKind::Relu | CellKind::Tanh | CellKind::Sigmoid => 1,
            CellKind::Lstm => 4,
            _ => 3,
        }
    }

    /// Builds the cell; options that do not apply to the kind are ignored.
    pub fn cell(self, options: &CellOptions) -> Cell {
        let writer = Writer { options: *options };
        let cell = match self {
            CellKind::Relu => writer.plain(self.name(), Mode::ReluFwd),
            CellKind::Tanh => writer.plain(self.name(), Mode::TanhFwd),
            CellKind::Sigmoid => writer.plain(self.name(), Mode::SigmoidFwd),
            CellKind::Lstm => writer.lstm(),
            CellKind::Gru => writer.gru(self.name(), false),
            CellKind::LbrAugru => writer.gru(self.name(), true),
            CellKind::GruResetBefore => writer.gru_reset_before(self.name(), false),
            CellKind::Augru => writer.gru_reset_before(self.name(), true),
        };
        cell.expect("the lines of a cell fit together")
    }
}

struct Writer {
    options: CellOptions,
}

impl Writer {
    fn lines(&self) -> Lines {
        Lines::new(self.options.math.dtype())
    }

    fn op(&self, mode: Mode) -> Pointwise {
        Pointwise::new(mode).math(self.options.math)
    }

    fn line(&self, lines: &mut Lines, name: &str, mode: Mode, operands: &[&str]) -> Result<()> {
        lines.line(name, self.op(mode), operands)
    }

    /// Emits the activation of a gate.
    fn gate(&self, lines: &mut Lines, name: &str, mode: Mode, sum: &str) -> Result<()> {
        let nan = match mode == Mode::ReluFwd && !self.options.drop_nan {
            true => NanPropagation::Propagate,
            false => NanPropagation::NotPropagate,
        };
        let activation = self.op(mode).nan(nan);
        let Some(limit) = self.options.gate_clip else {
            return lines.line(name, activation, &[sum]);
        };
        let limited = format!("{name}_limited");
        let clip = self.op(Mode::ReluFwd).relu(-limit.get(), limit.get(), 0.0);
        lines.line(&limited, clip.nan(NanPropagation::Propagate), &[sum])?;
        lines.line(name, activation, &[&limited])
    }

    /// Emits a gate with its pre-activation, such as `sigmoid(x + r)`.
    fn gate_of_sums(&self, lines: &mut Lines, name: &str, mode: Mode) -> Result<()> {
        let [sum, x, r] = [format!("{name}_sum"), format!("x_{name}"), format!("r_{name}")];
        self.line(lines, &sum, Mode::Add, &[&x, &r])?;
        self.gate(lines, name, mode, &sum)
    }

    fn limited(&self, lines: &mut Lines, name: &str, of: &str) -> Result<()> {
        let CellClip { min, max, nan, .. } = self.options.cell_clip.expect("the cell is clipped");
        lines.line(name, self.op(Mode::ReluFwd).relu(min.get(), max.get(), 0.0).nan(nan), &[of])
    }

    fn plain(&self, name: &str, mode: Mode) -> Result<Cell> {
        let mut lines = self.lines();
        self.line(&mut lines, "sum", Mode::Add, &["x_h", "r_h"])?;
        self.gate(&mut lines, "next_h", mode, "sum")?;
        let stage = stage(Some(("h", &["h"])), lines.finish(&["next_h"])?);
        Ok(cell(name, &["h"], &["h"], vec![stage]))
    }

    fn lstm(&self) -> Result<Cell> {
        let CellOptions { peephole, projected, cell_clip, .. } = self.options;
        let mut lines = self.lines();
        let at_read = cell_clip.is_some_and(|clip| clip.point == ClipPoint::Read);
        let old = match at_read {
            true => {
                self.limited(&mut lines, "c_read", "c")?;
                "c_read"
            }
            false => "c",
        };
        for gate in ["i", "f"] {
            self.peeping(&mut lines, gate, old)?;
        }
        self.gate_of_sums(&mut lines, "g", Mode::TanhFwd)?;
        self.line(&mut lines, "kept", Mode::Mul, &["f", old])?;
        self.line(&mut lines, "added", Mode::Mul, &["i", "g"])?;
        let new = match cell_clip.map(|clip| clip.point) {
            None => {
                self.line(&mut lines, "next_c", Mode::Add, &["kept", "added"])?;
                "next_c"
            }
            Some(ClipPoint::Read) => {
                self.line(&mut lines, "next_c", Mode::Add, &["kept", "added"])?;
                self.limited(&mut lines, "next_c_read", "next_c")?;
                "next_c_read"
            }
            Some(ClipPoint::Stored) => {
                self.line(&mut lines, "sum", Mode::Add, &["kept", "added"])?;
                self.limited(&mut lines, "next_c", "sum")?;
                "next_c"
            }
        };
        self.peeping(&mut lines, "o", new)?;
        self.line(&mut lines, "shown", Mode::TanhFwd, &[new])?;
        self.line(&mut lines, "next_h", Mode::Mul, &["o", "shown"])?;
        let program = lines.finish(&["next_h", "next_c"])?;
        let gates = ["i", "f", "g", "o"];
        let stages = vec![stage(Some(("h", &gates)), program)];
        let mut cell = cell("lstm", &gates, &["h", "c"], stages);
        if peephole {
            cell.parameters = ["p_i", "p_f", "p_o"].map(str::to_owned).to_vec();
        }
        Ok(Cell { projected, ..cell })
    }

    /// Emits a sigmoid gate with an optional peephole connection.
    fn peeping(&self, lines: &mut Lines, gate: &str, state: &str) -> Result<()> {
        if !self.options.peephole {
            return self.gate_of_sums(lines, gate, Mode::SigmoidFwd);
        }
        let [sum, seen, all] = ["sum", "seen", "all"].map(|part| format!("{gate}_{part}"));
        let sources = [format!("x_{gate}"), format!("r_{gate}")];
        self.line(lines, &sum, Mode::Add, &[&sources[0], &sources[1]])?;
        self.line(lines, &seen, Mode::Mul, &[&format!("p_{gate}"), state])?;
        self.line(lines, &all, Mode::Add, &[&sum, &seen])?;
        self.gate(lines, gate, Mode::SigmoidFwd, &all)
    }

    /// Emits `n + z (h - n)`, with `z` scaled by the attention input if `attended`.
    fn updated(&self, lines: &mut Lines, attended: bool) -> Result<()> {
        let z = match attended {
            true => {
                self.line(lines, "z_off", Mode::Mul, &["attention", "z"])?;
                self.line(lines, "z_left", Mode::Sub, &["z", "z_off"])?;
                "z_left"
            }
            false => "z",
        };
        self.line(lines, "apart", Mode::Sub, &["h", "n"])?;
        self.line(lines, "kept", Mode::Mul, &[z, "apart"])?;
        self.line(lines, "next_h", Mode::Add, &["n", "kept"])
    }

    /// The gates of a GRU besides the candidate, in order.
    fn outer_gates(&self) -> [&'static str; 2] {
        if self.options.update_first { ["z", "r"] } else { ["r", "z"] }
    }

    fn gru(&self, name: &str, attended: bool) -> Result<Cell> {
        let mut lines = self.lines();
        self.gate_of_sums(&mut lines, "r", Mode::SigmoidFwd)?;
        self.gate_of_sums(&mut lines, "z", Mode::SigmoidFwd)?;
        let inner = match self.options.inner_bias {
            true => {
                self.line(&mut lines, "inner", Mode::Add, &["r_n", "b_n"])?;
                "inner"
            }
            false => "r_n",
        };
        self.line(&mut lines, "reset", Mode::Mul, &["r", inner])?;
        self.line(&mut lines, "n_sum", Mode::Add, &["x_n", "reset"])?;
        self.gate(&mut lines, "n", Mode::TanhFwd, "n_sum")?;
        self.updated(&mut lines, attended)?;
        let [first, second] = self.outer_gates();
        let gates = [first, second, "n"];
        let stage = stage(Some(("h", &gates)), lines.finish(&["next_h"])?);
        let mut cell = gru_cell(name, &gates, attended, vec![stage]);
        cell.parameters.extend(self.options.inner_bias.then(|| "b_n".to_owned()));
        Ok(cell)
    }

    fn gru_reset_before(&self, name: &str, attended: bool) -> Result<Cell> {
        let mut first = self.lines();
        self.gate_of_sums(&mut first, "r", Mode::SigmoidFwd)?;
        self.gate_of_sums(&mut first, "z", Mode::SigmoidFwd)?;
        self.line(&mut first, "reset", Mode::Mul, &["r", "h"])?;
        let mut second = self.lines();
        self.gate_of_sums(&mut second, "n", Mode::TanhFwd)?;
        self.updated(&mut second, attended)?;
        let outer = self.outer_gates();
        let stages = vec![
            stage(Some(("h", &outer)), first.finish(&["z", "reset"])?),
            stage(Some(("reset", &["n"])), second.finish(&["next_h"])?),
        ];
        Ok(gru_cell(name, &[outer[0], outer[1], "n"], attended, stages))
    }
}

fn stage(gemm: Option<(&str, &[&str])>, program: crate::expr::Program) -> Stage {
    let gemm = gemm.map(|(operand, gates)| RecurrentGemm::new(operand, gates));
    Stage { gemm, statistics: Vec::new(), program }
}

fn cell(name: &str, gates: &[&str], states: &[&str], stages: Vec<Stage>) -> Cell {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Cell {
        name: name.to_owned(),
        gates: owned(gates),
        states: owned(states),
        parameters: Vec::new(),
        row_inputs: Vec::new(),
        unit_inputs: Vec::new(),
        stages,
        projected: false,
    }
}

fn gru_cell(name: &str, gates: &[&str], attended: bool, stages: Vec<Stage>) -> Cell {
    let row_inputs = if attended { vec!["attention".to_owned()] } else { Vec::new() };
    Cell { row_inputs, ..cell(name, gates, &["h"], stages) }
}
