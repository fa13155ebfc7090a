//! Whether the context of a GPU still works, and which kernels were running when it ceased to.
//!
//! A kernel that faults takes its context with it: the call that waits for it and every later call
//! of the process return the same error, whatever they ask for. What is reported is that, with the
//! kernels that may be at fault, instead of what was asked for.
//!
//! Launches into a stream that is being captured run later, when another library replays the CUDA
//! graph, which it does not tell: of the last graphs, the kernels that they hold may always be at
//! fault.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use cudarc::driver::{DriverError, sys};

use crate::compile::variable;
use crate::error::{Error, Result};

/// Launches that are remembered. A kernel that faults is seldom followed by more before the next
/// call that waits.
const LAUNCHES: usize = 8;

/// CUDA graphs that are remembered: a program replays few at a time, such as one for each batch
/// size.
const GRAPHS: usize = 4;

/// Kernels of a CUDA graph that are remembered, the first ones: a fault's text must be readable.
const GRAPH_KERNELS: usize = 32;

/// The fault of a context.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// Name of the driver's code.
    code: String,
    /// Kernels not known to have ended when the fault was reported, the last one first.
    kernels: Vec<Arc<str>>,
    /// Whether older ones were running too.
    more: bool,
    /// CUDA graphs that may have been replayed, the last one first.
    graphs: Vec<CapturedGraph>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the device is lost: {}", self.code)?;
        match &self.kernels[..] {
            [] if self.graphs.is_empty() => f.write_str(", no kernel of Kiln's was running")?,
            [] => {}
            [kernel] => write!(f, " in `{kernel}`")?,
            [last, others @ ..] => {
                write!(f, " in one of `{last}`")?;
                for kernel in others {
                    write!(f, ", `{kernel}`")?;
                }
            }
        }
        if self.more {
            f.write_str(" or an earlier kernel")?;
        }
        for (at, graph) in self.graphs.iter().enumerate() {
            let or = if at == 0 && self.kernels.is_empty() { "" } else { " or" };
            write!(f, "{or} in a replay of {graph}")?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Launched {
    kernel: Arc<str>,
    stream: u64,
    number: u64,
}

/// The kernels that a CUDA graph has captured.
#[derive(Debug, Clone)]
struct CapturedGraph {
    /// The driver's id of the capture.
    capture: u64,
    /// In order; of the same kernel several times in a row, one.
    kernels: Vec<Arc<str>>,
    /// Whether it holds others after them.
    more: bool,
}

impl CapturedGraph {
    fn add(&mut self, kernel: &Arc<str>) {
        if self.kernels.last() == Some(kernel) {
            return;
        }
        match self.kernels.len() < GRAPH_KERNELS {
            true => self.kernels.push(kernel.clone()),
            false => self.more = true,
        }
    }
}

impl fmt::Display for CapturedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the CUDA graph of ")?;
        for (at, kernel) in self.kernels.iter().enumerate() {
            write!(f, "{}`{kernel}`", if at == 0 { "" } else { ", " })?;
        }
        f.write_str(if self.more { " and others" } else { "" })
    }
}

/// What is known of one context; shared by all that use it in this process.
#[derive(Debug, Default)]
pub(super) struct Health {
    fault: OnceLock<Fault>,
    recent: Mutex<Recent>,
    /// The last CUDA graphs that captured a kernel, the oldest first. They are not forgotten: when
    /// their owners destroy them is not known.
    graphs: Mutex<VecDeque<CapturedGraph>>,
}

#[derive(Debug, Default)]
struct Recent {
    /// Launches so far.
    count: u64,
    /// The last launches not known to have ended, the oldest first.
    launches: [Option<Launched>; LAUNCHES],
    /// Streams that nobody waits for by themselves, since other streams do.
    lanes: Vec<u64>,
}

impl Health {
    /// The health of a GPU's primary context, which is one in a process; known until the last
    /// device that uses it is closed.
    pub(super) fn of_gpu(index: u32) -> Arc<Health> {
        static KNOWN: Mutex<BTreeMap<u32, Weak<Health>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = known.entry(index).or_default();
        slot.upgrade().unwrap_or_else(|| {
            let health = Arc::new(Health::default());
            *slot = Arc::downgrade(&health);
            health
        })
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graphs(&self) -> MutexGuard<'_, VecDeque<CapturedGraph>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a launch, before it is made.
    pub(super) fn launching(&self, kernel: &Arc<str>, stream: u64) {
        let mut recent = self.recent();
        recent.count += 1;
        let number = recent.count;
        let launches = &mut recent.launches;
        // An empty place if there is one, else that of the oldest.
        let at = launches.iter().position(Option::is_none).unwrap_or(0);
        launches[at..].rotate_left(1);
        launches[LAUNCHES - 1] = Some(Launched { kernel: kernel.clone(), stream, number });
    }

    /// Remembers a launch that a capture turns into a node of a CUDA graph.
    pub(super) fn capturing(&self, kernel: &Arc<str>, capture: u64) {
        let mut graphs = self.graphs();
        if let Some(graph) = graphs.iter_mut().find(|graph| graph.capture == capture) {
            return graph.add(kernel);
        }
        if graphs.len() == GRAPHS {
            graphs.pop_front();
        }
        let kernels = vec![kernel.clone()];
        graphs.push_back(CapturedGraph { capture, kernels, more: false });
    }

    /// The number of launches so far, to be given to [`Health::ended`].
    pub(super) fn launched(&self) -> u64 {
        self.recent().count
    }

    /// Remembers a stream that other streams wait for.
    pub(super) fn add_lane(&self, stream: u64) {
        self.recent().lanes.push(stream);
    }

    /// Forgets a stream that is destroyed.
    pub(super) fn remove_lane(&self, stream: u64) {
        self.recent().lanes.retain(|lane| *lane != stream);
    }

    /// Forgets the launches of a stream that have ended, and of its lanes, which may be any: the
    /// first so many.
    pub(super) fn ended(&self, stream: u64, count: u64) {
        let Recent { launches, lanes, .. } = &mut *self.recent();
        for slot in launches {
            let has_ended = |of: &Launched| of.stream == stream || lanes.contains(&of.stream);
            if slot.as_ref().is_some_and(|of| has_ended(of) && of.number <= count) {
                *slot = None;
            }
        }
    }

    /// Refuses what is attempted after a fault: the driver would, with the error of the fault.
    ///
    /// # Errors
    /// `DeviceLost`.
    pub(super) fn check(&self, attempt: &str) -> Result<()> {
        match self.fault.get() {
            Some(fault) => Err(lost(attempt, fault)),
            None => Ok(()),
        }
    }

    /// The error of a call that failed.
    pub(super) fn failed(&self, attempt: &str, error: DriverError) -> Error {
        if is_sticky(error.0) {
            let code = name(error);
            self.fault.get_or_init(|| self.fault_now(code, None));
        }
        self.error(attempt, error)
    }

    /// The error of a launch that failed. If launches block (`CUDA_LAUNCH_BLOCKING=1`), what it
    /// reports happened in this kernel.
    pub(super) fn failed_to_launch(&self, kernel: &Arc<str>, error: DriverError) -> Error {
        if is_sticky(error.0) {
            let code = name(error);
            let blocks = variable("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value == "1");
            let own = blocks.then_some(kernel);
            self.fault.get_or_init(|| self.fault_now(code, own));
        }
        self.error(&format!("launch `{kernel}`"), error)
    }

    fn fault_now(&self, code: String, kernel: Option<&Arc<str>>) -> Fault {
        if let Some(kernel) = kernel {
            return Fault { code, kernels: vec![kernel.clone()], more: false, graphs: Vec::new() };
        }
        let recent = self.recent();
        let launches = recent.launches.iter().rev().flatten();
        let mut kernels: Vec<Arc<str>> = Vec::new();
        for launched in launches {
            if !kernels.contains(&launched.kernel) {
                kernels.push(launched.kernel.clone());
            }
        }
        let more = recent.count > LAUNCHES as u64 && recent.launches.iter().all(Option::is_some);
        let graphs = self.graphs().iter().rev().cloned().collect();
        Fault { code, kernels, more, graphs }
    }

    fn error(&self, attempt: &str, error: DriverError) -> Error {
        let text = || format!("failed to {attempt}: {}", name(error));
        let failed = match (self.fault.get(), error.0) {
            (Some(fault), _) => lost(attempt, fault),
            (None, sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY) => Error::out_of_memory(text()),
            (None, _) => Error::driver(text()),
        };
        failed.caused_by(error)
    }
}

fn lost(attempt: &str, fault: &Fault) -> Error {
    Error::device_lost(format!("failed to {attempt}: {fault}"))
}

/// Name of a driver's code.
pub(super) fn name(error: DriverError) -> String {
    let known = error.error_name().map(|name| name.to_string_lossy().into_owned());
    known.unwrap_or_else(|_| format!("{:?}", error.0))
}

/// Whether a code means that the context is lost: of each of these *CUDA Driver API* says that it
/// leaves the process in an inconsistent state, in which all work returns the same error.
fn is_sticky(code: sys::CUresult) -> bool {
    use sys::cudaError_enum::*;
    matches!(
        code,
        CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_EXTERNAL_DEVICE
            | CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const ILLEGAL: DriverError = DriverError(sys::cudaError_enum::CUDA_ERROR_ILLEGAL_ADDRESS);

    fn kernels() -> [Arc<str>; 3] {
        ["a", "b", "c"].map(Arc::from)
    }

    #[test]
    fn kernels_that_have_ended_are_not_at_fault() {
        let (health, [a, b, c]) = (Health::default(), kernels());
        health.launching(&a, 1);
        health.launching(&b, 2);
        let so_far = health.launched();
        health.launching(&c, 1);
        health.ended(1, so_far);
        let fault = health.fault_now("CODE".to_owned(), None);
        assert_eq!(fault.to_string(), "the device is lost: CODE in one of `c`, `b`");
        health.ended(2, health.launched());
        let fault = health.fault_now("CODE".to_owned(), None);
        assert_eq!(fault.to_string(), "the device is lost: CODE in `c`");
        health.ended(1, health.launched());
        let fault = health.fault_now("CODE".to_owned(), None);
        let text = "the device is lost: CODE, no kernel of Kiln's was running";
        assert_eq!(fault.to_string(), text);
    }

    #[test]
    fn the_last_launches_are_remembered() {
        let (health, [a, b, c]) = (Health::default(), kernels());
        for _ in 0..LAUNCHES {
            health.launching(&a, 0);
        }
        let fault = health.fault_now("CODE".to_owned(), None);
        assert_eq!(fault.to_string(), "the device is lost: CODE in `a`");
        for kernel in [&b, &c] {
            health.launching(kernel, 0);
        }
        let fault = health.fault_now("CODE".to_owned(), None);
        let text = "the device is lost: CODE in one of `c`, `b`, `a` or an earlier kernel";
        assert_eq!(fault.to_string(), text);
    }

    #[test]
    fn kernels_of_cuda_graphs_are_remembered_in_order() {
        let (health, [a, b, c]) = (Health::default(), kernels());
        for kernel in [&a, &b, &b, &a] {
            health.capturing(kernel, 7);
        }
        let said = || health.fault_now("CODE".to_owned(), None).to_string();
        let graph = "in a replay of the CUDA graph of `a`, `b`, `a`";
        assert_eq!(said(), format!("the device is lost: CODE {graph}"));
        // What a wait ends is not what another library replays.
        health.launching(&c, 1);
        assert_eq!(said(), format!("the device is lost: CODE in `c` or {graph}"));
        health.ended(1, health.launched());
        health.capturing(&c, 8);
        let other = "in a replay of the CUDA graph of `c`";
        assert_eq!(said(), format!("the device is lost: CODE {other} or {graph}"));
        for at in 0..GRAPH_KERNELS {
            health.capturing([&a, &b][at % 2], 8);
        }
        assert!(said().contains(" and others or "), "{}", said());
        for capture in 9..9 + GRAPHS as u64 {
            health.capturing(&b, capture);
        }
        assert!(!said().contains("`a`"), "{}", said());
    }

    #[test]
    fn only_a_sticky_code_loses_the_device_and_the_first_one_stays() {
        let (health, [a, ..]) = (Health::default(), kernels());
        assert!(is_sticky(ILLEGAL.0));
        assert!(!is_sticky(sys::cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(health.check("x").is_ok());
        health.fault.set(health.fault_now("CODE".to_owned(), Some(&a))).expect("set once");
        let error = health.error("copy to the GPU", ILLEGAL);
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
        let text = "failed to copy to the GPU: the device is lost: CODE in `a`";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn one_gpu_has_one_health_while_it_is_open() {
        let first = Health::of_gpu(u32::MAX);
        assert!(Arc::ptr_eq(&first, &Health::of_gpu(u32::MAX)));
        first.fault.set(first.fault_now("CODE".to_owned(), None)).expect("set once");
        drop(first);
        assert!(Health::of_gpu(u32::MAX).check("x").is_ok());
    }
}
