//! JSON form of networks: problem documents whose only key is `rnn`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::dropout::DropoutJson;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::expr::{NanPropagation, Real};
use crate::frontend::FrontEnd;
use crate::graph::{Cell, Direction, JsonReal, MatmulMath, Quantization, RowLayout};
use crate::rnn::cells::{CellClip, CellKind, CellOptions, ClipPoint};
use crate::rnn::lower::{Extent, Network};
use crate::rnn::mode::{BiasMode, InputMode, Join, Stacking};
use crate::rnn::network::{Rnn, RnnCell};
use crate::rnn::role::{Optional, Role};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProblemJson {
    rnn: RnnJson,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RnnJson {
    cell: Value,
    input_size: i64,
    hidden_size: i64,
    projection_size: Option<i64>,
    layers: Option<i64>,
    direction: Option<String>,
    join: Option<String>,
    stacking: Option<String>,
    bias: Option<String>,
    input_mode: Option<String>,
    dtype: String,
    quantization: Option<Value>,
    math: Option<String>,
    #[serde(default)]
    fast_activations: bool,
    layout: Option<String>,
    fill: Option<JsonReal>,
    dropout: Option<DropoutJson>,
    #[serde(default)]
    peephole: bool,
    #[serde(default)]
    drop_nan: bool,
    cell_clip: Option<ClipJson>,
    gate_clip: Option<JsonReal>,
    batch: i64,
    steps: Option<i64>,
    rows: Option<i64>,
    #[serde(default)]
    tensors: Vec<String>,
    #[serde(default)]
    backward: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClipJson {
    min: JsonReal,
    max: JsonReal,
    #[serde(default)]
    propagate_nan: bool,
    point: Option<String>,
}

/// Returns the choice with this name, or the first if none is given.
fn choice<T: Copy>(
    key: &str,
    text: Option<&str>,
    all: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T> {
    let Some(text) = text else { return Ok(all[0]) };
    let found = all.iter().find(|known| name(**known) == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|known| name(*known)).collect();
        let names = names.join(", ");
        Error::bad_param(format!("rnn: key `{key}` is `{text}`, expected one of {names}"))
    })
}

/// Reads a problem document whose only key is `rnn`: a [`Network`], or with `backward` a
/// [`Training`].
///
/// # Errors
/// As [`Network::from_json`] and [`Rnn::training`].
pub(crate) fn problem_from_json(text: &str) -> Result<Arc<dyn FrontEnd>> {
    let (rnn, extent, with, backward) = parts(text)?;
    Ok(match backward {
        true => Arc::new(rnn.training(extent, Optional { reserve: true, ..with })?),
        false => Arc::new(rnn.network(extent, with)?),
    })
}

impl Network {
    /// Reads a problem document whose only key is `rnn`.
    ///
    /// # Errors
    /// `BadParam` with line and column for malformed JSON, with the key for an unknown value, for
    /// gradients, which are several graphs, and as [`Rnn::network`].
    pub fn from_json(text: &str) -> Result<Network> {
        match parts(text)? {
            (.., true) => Err(Error::bad_param("rnn: `backward` has several graphs, expected one")),
            (rnn, extent, with, false) => rnn.network(extent, with),
        }
    }
}

/// A document's network, extent and optional tensors, and whether gradients are computed.
fn parts(text: &str) -> Result<(Rnn, Extent, Optional, bool)> {
    let problem: ProblemJson = serde_json::from_str(text)
        .map_err(|error| Error::bad_param(format!("malformed problem: {error}")))?;
    let json = problem.rnn;
    let (extent, with) = (json.extent()?, json.optional()?);
    let rnn = json.network()?;
    rnn.validate()?;
    let one_state = rnn.build_cell().states.len() == 1;
    let others = [Role::StatesInitial, Role::StatesFinal, Role::History];
    if let Some(role) = others.into_iter().find(|role| one_state && with.has(*role)) {
        let (name, cell) = (role.name(), &rnn.build_cell().name);
        let text = format!("rnn: tensor `{name}`: cell {cell} has no state but `h`");
        return Err(Error::bad_param(text));
    }
    if json.backward && with.reserve {
        let text = "rnn: tensor `reserve` with `backward`, whose passes have their own";
        return Err(Error::bad_param(text));
    }
    Ok((rnn, extent, with, json.backward))
}

impl RnnJson {
    fn network(&self) -> Result<Rnn> {
        let dtype: DType = self.dtype.parse().map_err(|error: Error| error.context("rnn"))?;
        let maths = [MatmulMath::F32, MatmulMath::Tf32, MatmulMath::F64];
        let math = choice("math", self.math.as_deref(), &maths, MatmulMath::name)?;
        let directions = [Direction::Forward, Direction::Reverse, Direction::Both];
        let layouts = [RowLayout::SequenceMajor, RowLayout::BatchMajor, RowLayout::Packed];
        // Both biases are the default.
        let biases =
            [BiasMode::Double, BiasMode::None, BiasMode::SingleInput, BiasMode::SingleRecurrent];
        let rnn = Rnn {
            cell: self.cell(dtype)?,
            input_size: self.input_size,
            hidden_size: self.hidden_size,
            projection_size: self.projection_size,
            layers: self.layers.unwrap_or(1),
            direction: choice(
                "direction",
                self.direction.as_deref(),
                &directions,
                Direction::name,
            )?,
            join: choice("join", self.join.as_deref(), &Join::ALL, Join::name)?,
            stacking: choice("stacking", self.stacking.as_deref(), &Stacking::ALL, Stacking::name)?,
            bias: choice("bias", self.bias.as_deref(), &biases, BiasMode::name)?,
            input_mode: choice(
                "input_mode",
                self.input_mode.as_deref(),
                &InputMode::ALL,
                InputMode::name,
            )?,
            dtype,
            quantization: self
                .quantization
                .clone()
                .map(Quantization::from_json)
                .transpose()
                .map_err(|error| error.context("rnn"))?,
            tf32: math == MatmulMath::Tf32,
            fast_activations: self.fast_activations,
            layout: choice("layout", self.layout.as_deref(), &layouts, RowLayout::name)?,
            fill: self.fill.map_or(Real::new(0.0), |fill| Real::new(fill.0)),
            dropout: DropoutJson::descriptor(self.dropout, "rnn")?,
        };
        if self.math.is_some() && rnn.math() != math {
            let text = format!("rnn: math {} of data of {dtype}", math.name());
            return Err(Error::not_supported(text));
        }
        Ok(rnn)
    }

    fn cell(&self, dtype: DType) -> Result<RnnCell> {
        let Value::String(name) = &self.cell else {
            let clipped = self.cell_clip.is_some() || self.gate_clip.is_some();
            if self.peephole || self.drop_nan || clipped {
                let text = "rnn: options of a cell that is written out: its programs say them";
                return Err(Error::bad_param(text));
            }
            let math = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            return Ok(RnnCell::Own(Cell::from_json(self.cell.clone(), math)?.into()));
        };
        // cuDNN's GRU is what oneDNN calls LBR-GRU.
        let name = if name == "lbr_gru" { CellKind::Gru.name() } else { name };
        let kind = choice("cell", Some(name), &CellKind::ALL, CellKind::name)?;
        let clip = |clip: &ClipJson| {
            let points = [(ClipPoint::Read, "read"), (ClipPoint::Stored, "stored")];
            Ok(CellClip {
                min: Real::new(clip.min.0),
                max: Real::new(clip.max.0),
                nan: match clip.propagate_nan {
                    true => NanPropagation::Propagate,
                    false => NanPropagation::NotPropagate,
                },
                point: choice("point", clip.point.as_deref(), &points, |(_, name)| name)?.0,
            })
        };
        let options = CellOptions {
            peephole: self.peephole,
            cell_clip: self.cell_clip.as_ref().map(clip).transpose()?,
            drop_nan: self.drop_nan,
            gate_clip: self.gate_clip.map(|limit| Real::new(limit.0)),
            ..CellOptions::default()
        };
        Ok(RnnCell::Kind(kind, options))
    }

    fn extent(&self) -> Result<Extent> {
        let batch = self.batch;
        let rows = match (self.layout.as_deref(), self.steps, self.rows) {
            (Some("packed"), None, Some(rows)) => Some(rows),
            (Some("packed"), ..) => {
                let text = "rnn: a packed layout has the key `rows`, and no `steps`";
                return Err(Error::bad_param(text));
            }
            (_, Some(steps), None) => steps.checked_mul(batch),
            _ => {
                let text = "rnn: a layout that is not packed has the key `steps`, and no `rows`";
                return Err(Error::bad_param(text));
            }
        };
        let rows = rows.ok_or_else(|| Error::bad_param("rnn: steps times batch exceed 2^63"))?;
        Ok(Extent { batch, rows })
    }

    fn optional(&self) -> Result<Optional> {
        let mut with = Optional::default();
        for name in &self.tensors {
            let flag = with.flags().into_iter().find(|(role, _)| role.name() == name);
            match flag {
                Some((_, true)) => {
                    let text = format!("rnn: tensor `{name}` is listed twice");
                    return Err(Error::bad_param(text));
                }
                Some((_, flag)) => *flag = true,
                None => {
                    let known = Optional::default().flags().map(|(role, _)| role.name());
                    let known = known.join(", ");
                    let text = format!("rnn: tensor `{name}`, expected one of {known}");
                    return Err(Error::bad_param(text));
                }
            }
        }
        Ok(with)
    }
}

impl Optional {
    /// Each flag with the role it enables.
    fn flags(&mut self) -> [(Role, &mut bool); 8] {
        [
            (Role::HInitial, &mut self.h_initial),
            (Role::StatesInitial, &mut self.states_initial),
            (Role::Lengths, &mut self.lengths),
            (Role::Reset, &mut self.reset),
            (Role::HFinal, &mut self.h_final),
            (Role::StatesFinal, &mut self.states_final),
            (Role::History, &mut self.history),
            (Role::Reserve, &mut self.reserve),
        ]
    }
}
