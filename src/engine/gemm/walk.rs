//! Walking through a window along K: a thread knows where its rows begin and which of their taps
//! are inside, and steps from tap to tap by additions (`gemm/walk.cuh`).

use serde::Serialize;

use crate::engine::access::ceil_div;
use crate::engine::gemm::axes::stride;
use crate::engine::gemm::window::{Along, Inside, Window, coordinates};
use crate::tensor::TensorDesc;

/// Bits of the mask of taps.
const BITS: i64 = 32;

/// How an operand's K is walked through.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Walk {
    /// The coordinates of a tap, the innermost last.
    taps: Vec<Tap>,
    /// The name of the extent of channels.
    channels: String,
    channel_of: String,
    /// Whether a K step may end among a tap's channels, and whether it has whole taps.
    has_rest: bool,
    has_whole: bool,
    /// The dimensions along which a row may lie outside the tensor whatever the tap.
    still: Vec<Inside>,
    /// The number of a tap among the bits of the mask.
    bit: String,
    /// Elements from a row's first to those of a tap and a channel.
    reach: String,
    /// Whether neighbours are rows, so that a thread's chunks differ in channels: what is inside is
    /// the same for all taps.
    along_rows: bool,
    /// Whether extents of taps are a phase's.
    takes_batch: bool,
}

/// A coordinate of a tap.
#[derive(Debug, Clone, Serialize)]
struct Tap {
    name: String,
    /// The name of its extent, the most of all phases, and what says a phase's own.
    extent: String,
    most: i64,
    own: Option<String>,
    /// The coordinate of an element of K.
    of_k: String,
    /// How many positions along a dimension of the tensor it moves, and the dimension's extent
    /// where it may leave it.
    moved: Option<Moved>,
    leaves: Option<String>,
    /// Whether a K step passes over its end more than once.
    repeats: bool,
    /// The coordinate that counts how often its end is passed.
    outer: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Moved {
    dimension: String,
    /// The name of the step; none where it is 1.
    step: Option<String>,
}

impl Walk {
    /// The walk through a window of a tensor whose neighbours are channels along K, or rows, with
    /// K steps of `cta_k` and vectors of so many neighbours; `None` where taps are too many for a
    /// mask, a vector is not all of one tap, or a K step of neighbouring rows has channels of
    /// several.
    pub(super) fn of(
        window: &Window,
        (tensor, name): (&TensorDesc, &str),
        k_major: bool,
        [cta_k, vector]: [i64; 2],
    ) -> Option<Walk> {
        let extents = window.ks();
        let (channels, outer) = extents.split_last()?;
        let last = outer.len();
        if channels.most <= 0 || outer.is_empty() {
            return None;
        }
        // The outermost counts on where K has ended; others of extent 1 count nothing.
        let counted: Vec<usize> = (0..last).filter(|at| *at == 0 || outer[*at].most != 1).collect();
        let inner = counted[1..].iter().map(|at| outer[*at].most).fold(1, i64::saturating_mul);
        let whole = cta_k / channels.most;
        let beyond = ceil_div(cta_k, channels.most) + 1;
        let fits = match k_major {
            true => {
                channels.most % vector == 0
                    && outer[0].most.saturating_add(beyond).saturating_mul(inner) <= BITS
            }
            false => channels.most % cta_k == 0 && !window.is_padded(),
        };
        if !fits {
            return None;
        }
        let names: Vec<String> = counted.iter().map(|at| format!("TAPS{at}")).collect();
        let of_k = coordinates("k", &extents.iter().map(|of| of.name.clone()).collect::<Vec<_>>());
        let (mut taps, mut reach) = (Vec::new(), Vec::new());
        let mut still: Vec<Option<Inside>> =
            (0..window.dims.len()).map(|axis| window.inside(axis)).collect();
        let mut moving = Vec::new();
        // The outer coordinates of taps count what the inner ones pass on.
        let mut repeats = whole > 0;
        for (place, at) in counted.iter().enumerate().rev() {
            let extent = names[place].clone();
            let outer_at = place.checked_sub(1).map(|place| counted[place]);
            let own = outer[*at].is_own.then(|| outer[*at].name.clone());
            repeats &= own.is_some() || whole + 1 > outer[*at].most;
            let tap = format!("tap{at}");
            let (mut moved, mut leaves) = (None, None);
            if let Some((axis, step)) = window.step(Along::K(*at))? {
                let step = (step != 1).then(|| format!("K_STEP{axis}"));
                let elements = match stride(tensor, axis) {
                    0 | 1 => None,
                    _ => Some(format!("{name}_layout::D{axis}")),
                };
                let factors = [Some(tap.clone()), step.clone(), elements];
                if stride(tensor, axis) != 0 {
                    reach.push(factors.into_iter().flatten().collect::<Vec<_>>().join(" * "));
                }
                // A dimension that two taps move is inside for some pairs of them only.
                if moving.contains(&axis) {
                    return None;
                }
                moving.push(axis);
                leaves = still[axis].take().map(|inside| inside.extent);
                moved = Some(Moved { dimension: format!("d{axis}"), step });
            }
            let (of_k, most) = (of_k[*at].clone(), outer[*at].most);
            let outer = outer_at.map(|at| format!("tap{at}"));
            taps.push(Tap { name: tap, extent, most, own, of_k, moved, leaves, repeats, outer });
        }
        taps.reverse();
        reach.reverse();
        let (axis, _) = window.step(Along::K(last))??;
        reach.push(match stride(tensor, axis) {
            1 => "channel".to_owned(),
            _ => format!("channel * {name}_layout::D{axis}"),
        });
        let takes_batch = taps.iter().skip(1).any(|tap| tap.own.is_some());
        let bit = taps.iter().skip(1).fold(taps[0].name.clone(), |bit, tap| {
            let outer = if bit.contains(' ') { format!("({bit})") } else { bit };
            format!("{outer} * {} + {}", tap.extent, tap.name)
        });
        Some(Walk {
            taps,
            channels: channels.name.clone(),
            channel_of: of_k[last].clone(),
            has_rest: cta_k % channels.most != 0,
            has_whole: whole > 0,
            still: still.into_iter().flatten().collect(),
            bit,
            reach: reach.join(" + "),
            along_rows: !k_major,
            takes_batch,
        })
    }
}
