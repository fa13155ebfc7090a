//! How a thread walks through the operands of a convolution of groups of one channel.

use serde::Serialize;

use crate::engine::access::ceil_div;
use crate::engine::convolution::problem::Problem;
use crate::error::{Error, Result};
use crate::graph::{ConvolutionMode, ConvolutionPass};

/// How the taps of an element of the result lie in the operand that is read through the window:
/// tap `t` of result `o` at `o * stride - padding + t * dilation`, along rows and columns. In a
/// `spread` walk, along the response of a strided gradient, they are the other way round: element
/// `o` that is read is part of the results at these places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Walk {
    /// Which of the operands is read through the window, and which is the filter.
    #[serde(skip)]
    pub(super) source: usize,
    #[serde(skip)]
    pub(super) filter: usize,
    #[serde(skip)]
    pub(super) spread: bool,
    /// Channels of a group that are summed over; of a filter's gradient one.
    #[serde(skip)]
    pub(super) summed: i64,
    /// Whether taps come in the reversed order of the filter's.
    pub(super) flipped: bool,
    pub(super) taps: [i64; 2],
    pub(super) strides: [i64; 2],
    pub(super) dilations: [i64; 2],
    paddings: [i64; 2],
    /// Extents of what is read and of the result, in whose place a filter's gradient has the
    /// response.
    read: [i64; 2],
    pub(super) result: [i64; 2],
}

/// How the taps follow each other that a row or a column which is read may meet: those from its
/// own number times `inverse` on, `period` apart. Others meet none of the result's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Meetings {
    period: i64,
    inverse: i64,
}

/// Above it, all taps are asked, one by one.
const PERIOD_MAX: i64 = 64;

/// By how much the cost model must see a setting ahead of the rules'. It does not see columns that
/// are waited for one after the other: of 5 x 5 and 7 x 7 taps it finds twice as fast what takes
/// twice as long by the machine code.
pub(super) const GAIN_MIN: f64 = 4.0;

/// Registers of an SM, and those that a thread may take beyond what is expected.
const REGISTERS_SM: i64 = 65536;
const REGISTERS_SPARE: i64 = 8;

/// Blocks of so many threads of which an SM has the registers, at least one. Where it is not told,
/// ptxas leaves some registers to memory for the sake of one block more.
pub(super) fn blocks_sm(registers: i64, threads: i64) -> i64 {
    (REGISTERS_SM / ((registers + REGISTERS_SPARE) * threads)).max(1)
}

impl Walk {
    /// # Errors
    /// `NotSupported` with the rule that a convolution breaks.
    pub(super) fn of(problem: &Problem<'_>) -> Result<Walk> {
        let refuse = |rule: String| Err(Error::not_supported(rule));
        let Problem { op, shape, window, .. } = problem;
        if shape.c != 1 || shape.groups == 1 {
            let (groups, c, k) = (shape.groups, shape.c, shape.k);
            return refuse(format!("{groups} groups of {c} and {k} channels are not depthwise"));
        }
        if shape.k == 0 {
            return refuse("a depthwise gradient adds up one channel at least".to_owned());
        }
        if shape.image.len() != 2 {
            return refuse(format!("{} spatial dimensions are more than two", shape.image.len()));
        }
        let two = |of: &[i64]| [of[0], of[1]];
        let [strides, dilations] = [&window.filter_strides, &window.dilations].map(|of| two(of));
        let (taps, padding) = (two(&shape.filter), two(&window.pre_paddings));
        let reversed = op.mode == ConvolutionMode::Convolution;
        let (image, response) = (two(&shape.image), two(&shape.response));
        let along_image = Walk {
            source: 0,
            filter: 1,
            spread: false,
            summed: 1,
            flipped: reversed,
            taps,
            strides,
            dilations,
            paddings: padding,
            read: image,
            result: response,
        };
        if op.pass != ConvolutionPass::BackwardData {
            return Ok(along_image);
        }
        let along_response = Walk {
            source: 1,
            filter: 0,
            summed: shape.k,
            read: response,
            result: image,
            ..along_image
        };
        if strides != [1, 1] {
            return Ok(Walk { spread: true, ..along_response });
        }
        let reach = |axis: usize| (taps[axis] - 1) * dilations[axis] - padding[axis];
        let paddings = [0, 1].map(reach);
        Ok(Walk { flipped: !reversed, paddings, ..along_response })
    }

    /// The taps that rows and columns meet, in a walk that is not spread.
    pub(super) fn meetings(&self) -> Option<[Meetings; 2]> {
        let along = |axis: usize| {
            let (stride, dilation) = (self.strides[axis], self.dilations[axis]);
            // Where both have a divisor in common there is none.
            let inverse = (1..=stride)
                .take_while(|_| stride <= PERIOD_MAX)
                .find(|factor| (dilation % stride * factor - 1) % stride == 0);
            match inverse {
                Some(inverse) => Meetings { period: stride, inverse },
                None => Meetings { period: 1, inverse: 1 },
            }
        };
        (!self.spread).then(|| [0, 1].map(along))
    }

    /// Rows that a row meets: of the result, or of what is read in a spread walk.
    pub(super) fn ages(&self) -> i64 {
        self.met(0)
    }

    fn met(&self, axis: usize) -> i64 {
        (self.taps[axis] - 1) * self.dilations[axis] / self.strides[axis] + 1
    }

    /// Columns that a strip of so many neighbours reads.
    pub(super) fn span(&self, strip: i64) -> i64 {
        match self.spread {
            true => strip + self.met(1) - 1,
            false => {
                let columns = (strip - 1).saturating_mul(self.strides[1]);
                columns.saturating_add((self.taps[1] - 1) * self.dilations[1] + 1)
            }
        }
    }

    /// Rows that are read at each step of a walk.
    pub(super) fn rows_step(&self) -> i64 {
        if self.spread { 1 } else { self.strides[0] }
    }

    /// Rows that a thread reads on its way along so many rows of the result, on average: those of
    /// the padding are passed over.
    pub(super) fn rows_read(&self, rows: i64) -> f64 {
        let (rows, around) = (rows as f64, (self.ages() - 1) as f64);
        if self.spread {
            return rows + around;
        }
        let (height, stride) = (self.walked()[0] as f64, self.strides[0] as f64);
        let threads = (height / rows).ceil().max(1.0);
        // Rows between two threads are read by both.
        let once = (self.read[0] as f64).min((height + around) * stride);
        let all = once + (threads - 1.0) * around * stride;
        (all / threads).min((rows + around) * stride)
    }

    /// Results of a row of a strip at each step of a walk, and of a column of it.
    fn spreads(&self) -> [i64; 2] {
        if self.spread { self.strides } else { [1, 1] }
    }

    /// Sums that a thread has at a time for one channel.
    pub(super) fn sums(&self, strip: i64) -> i64 {
        let [rows, columns] = self.spreads();
        self.ages() * rows * strip * columns
    }

    /// Rows and columns in which threads walk and have strips.
    pub(super) fn walked(&self) -> [i64; 2] {
        let extent = |axis: usize| match self.spread {
            true => {
                let lead = self.paddings[axis] % self.strides[axis];
                ceil_div(self.result[axis].saturating_add(lead), self.strides[axis])
            }
            false => self.result[axis],
        };
        [0, 1].map(extent)
    }

    /// Whether some of these columns belong to no tap.
    pub(super) fn has_gaps(&self, strip: i64) -> bool {
        let met = |column: i64| {
            (0..self.taps[1]).any(|tap| {
                let distance = column - tap * self.dilations[1];
                distance >= 0
                    && distance % self.strides[1] == 0
                    && distance / self.strides[1] < strip
            })
        };
        (0..self.span(strip)).any(|column| !met(column))
    }
}
