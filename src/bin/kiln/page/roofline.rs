//! The roofline of one launch on one machine, drawn in instructions: Ding and Williams, "An
//! Instruction Roofline Model for GPUs" (2019).

use kiln::device::{Counters, Estimate};
use kiln::engine::Machine;

use crate::page::picture::escape;

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// A logarithmic axis over whole decades.
struct Axis {
    /// Exponents of its ends.
    from: f64,
    to: f64,
    /// Where they are drawn.
    start: f64,
    end: f64,
}

impl Axis {
    fn over(values: &[f64], start: f64, end: f64) -> Axis {
        let logarithms = values.iter().map(|value| value.log10());
        let from = logarithms.clone().fold(f64::INFINITY, f64::min).floor();
        let to = logarithms.fold(f64::NEG_INFINITY, f64::max).ceil();
        Axis { from, to: to.max(from + 1.0), start, end }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - self.from) / (self.to - self.from);
        self.start + share * (self.end - self.start)
    }

    fn low(&self) -> f64 {
        10f64.powf(self.from)
    }

    fn high(&self) -> f64 {
        10f64.powf(self.to)
    }

    /// Every decade.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.from as i32..=self.to as i32).map(|exponent| 10f64.powi(exponent))
    }
}

/// The plot as an `svg` element; `None` for a launch that moves or executes nothing.
pub fn svg(counters: &Counters, estimate: &Estimate, machine: &Machine) -> Option<String> {
    let (instructions, bytes) =
        (counters.total.warp_instructions as f64, counters.dram_bytes() as f64);
    let bound = estimate.binds().filter(|bound| bound.us > 0.0)?;
    if instructions == 0.0 || bytes == 0.0 {
        return None;
    }
    // Billions of warp instructions a second; warp instructions a byte.
    let peak = f64::from(machine.sm_count * machine.issue_rate) * machine.clock_hz / 1e9;
    let slope = machine.dram_bytes_second / 1e9;
    let (ridge, intensity) = (peak / slope, instructions / bytes);
    let reached = instructions / bound.us / 1e3;
    let x = Axis::over(
        &[ridge / 30.0, ridge * 30.0, intensity / 2.0, intensity * 2.0],
        LEFT,
        WIDTH - RIGHT,
    );
    let y = Axis::over(&[peak * 1.5, (x.low() * slope).min(reached / 2.0)], HEIGHT - BOTTOM, TOP);
    let mut svg = format!(
        "<svg class=\"roofline\" role=\"img\" aria-label=\"roofline\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\">"
    );
    for tick in x.ticks() {
        let at = x.at(tick);
        svg += &line("grid", at, y.start, at, y.end);
        svg += &text("middle", at, HEIGHT - BOTTOM + 16.0, &tick.to_string());
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        svg += &line("grid", x.start, at, x.end, at);
        svg += &text("end", LEFT - 6.0, at + 4.0, &tick.to_string());
    }
    let foot = (y.low() / slope).max(x.low());
    svg += &format!(
        "<path class=\"roof\" d=\"M{:.1} {:.1} L{:.1} {:.1} L{:.1} {:.1}\"/>",
        x.at(foot),
        y.at(foot * slope),
        x.at(ridge),
        y.at(peak),
        x.at(x.high()),
        y.at(peak)
    );
    svg += &text("end", WIDTH - RIGHT, y.at(peak) - 6.0, &format!("{} issue slots", machine.name));
    let (px, py) = (x.at(intensity), y.at(reached));
    svg += &line("drop", px, y.start, px, py);
    svg += &format!("<circle class=\"kernel\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"5\"/>");
    let label = format!("{:.3} us, {}", bound.us, bound.part);
    let fits = px + 7.0 * label.len() as f64 <= WIDTH - RIGHT;
    let (anchor, away) = if fits { ("start", 8.0) } else { ("end", -8.0) };
    svg += &text(anchor, px + away, py + 18.0, &label);
    let middle = (x.start + x.end) / 2.0;
    svg += &text("middle", middle, HEIGHT - 8.0, "warp instructions per byte of device memory");
    let rotated = (y.start + y.end) / 2.0;
    svg += &format!(
        "<text transform=\"translate(12 {rotated:.1}) rotate(-90)\" text-anchor=\"middle\">\
         billions per second</text>"
    );
    Some(svg + "</svg>")
}

fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> String {
    format!("<path class=\"{class}\" d=\"M{x1:.1} {y1:.1} L{x2:.1} {y2:.1}\"/>")
}

fn text(anchor: &str, x: f64, y: f64, text: &str) -> String {
    let text = escape(text);
    format!("<text text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>")
}
