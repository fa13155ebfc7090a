//! What a pass costs: building it, the host's part and the device's.

use std::time::{Duration, Instant};

use kiln::device::Stream;
use kiln::plan::Origin;
use kiln::{DType, Error, ErrorKind, Kiln};
use serde_json::{Value, json};

use crate::problem::shown;
use crate::terminal::say_json;

/// Bytes of a tensor: noise in [-1/4, 1/4) of a floating-point type, since power and with it clocks
/// depend on what is computed; zeros of any other, which are in range everywhere.
pub fn noise(dtype: DType, bytes: u64) -> Vec<u8> {
    const PERIOD: usize = 4099;
    let mut block = vec![0; PERIOD * dtype.bytes()];
    if dtype.is_float() {
        let elements = block.chunks_exact_mut(dtype.bytes());
        for (index, element) in elements.enumerate() {
            let value = (index * 1031 % PERIOD) as f64 / PERIOD as f64;
            dtype.write(value / 2.0 - 0.25, element);
        }
    }
    let mut repeated = block.repeat((bytes as usize).div_ceil(block.len()));
    repeated.truncate(bytes as usize);
    repeated
}

/// What a pass costs.
pub struct Cost {
    /// The call alone, on the host.
    pub host: Duration,
    /// The device's work.
    pub pass: Duration,
}

/// What was measured of anything.
pub struct Measured<'a> {
    pub kiln: &'a Kiln,
    pub origin: Origin,
    /// Until it could run.
    pub build: Duration,
    /// The time of building it once more, from the caches of the process.
    pub again: Duration,
    pub cost: Cost,
}

impl Measured<'_> {
    /// `own` are more members of the JSON object; text says what it is made of, and its rate.
    pub fn print(&self, as_json: bool, own: Value, made_of: Vec<String>, rate: &str) {
        let Measured { kiln, origin, build, again, cost: Cost { host, pass } } = self;
        let device = kiln.device().target();
        if as_json {
            let mut document = json!({
                "device": device.to_string(),
                "origin": origin.to_string(),
                "build_ms": build.as_secs_f64() * 1e3,
                "found_ms": again.as_secs_f64() * 1e3,
                "host_us": host.as_secs_f64() * 1e6,
                "pass_us": pass.as_secs_f64() * 1e6,
            });
            for (name, value) in own.as_object().into_iter().flatten() {
                document[name] = value.clone();
            }
            say_json(&document);
            return;
        }
        say!("device  {device}");
        made_of.iter().for_each(|line| say!("{line}"));
        say!("build   {} ({origin}), again {}", shown(*build), shown(*again));
        // The simulator works within the call.
        if kiln.device().kind() != "sim" {
            say!("host    {} ns a call, median", host.as_nanos());
        }
        // The null device takes no time.
        if !pass.is_zero() {
            say!("pass    {}, {rate}, median", shown(*pass));
        }
    }
}

/// Batches are at least this long: what two events and the first launch cost is lost in it.
const BATCH: Duration = Duration::from_millis(2);
const BATCH_PASSES_MAX: usize = 256;

/// Medians over so many batches of passes between two events, after one that warms up.
pub fn cost(
    stream: &Stream,
    samples: usize,
    mut pass: impl FnMut() -> kiln::Result<()>,
) -> kiln::Result<Cost> {
    if samples == 0 {
        return Err(Error::with(ErrorKind::BadParam, "--samples is 0"));
    }
    let mut batch = |passes: usize| {
        let before = stream.record()?;
        let start = Instant::now();
        (0..passes).try_for_each(|_| pass())?;
        let host = start.elapsed();
        let elapsed_ms = stream.record()?.elapsed_ms(&before)?;
        kiln::Result::Ok([host, Duration::from_secs_f64(elapsed_ms / 1e3)])
    };
    batch(1)?;
    let one = batch(1)?[1].max(Duration::from_nanos(1));
    let passes = BATCH.div_duration_f64(one).ceil().clamp(1.0, BATCH_PASSES_MAX as f64) as usize;
    batch(passes)?;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..samples {
        for (times, of_batch) in times.iter_mut().zip(batch(passes)?) {
            times.push(of_batch / passes as u32);
        }
    }
    let [host, pass] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2]
    });
    Ok(Cost { host, pass })
}
