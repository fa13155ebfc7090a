//! The driver's state: one device, its contexts, and what handles stand for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cudarc::driver::sys::CUresult;
use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::{Device, DeviceConfig};

use crate::allocation::Allocations;
use crate::capture::Streams;
use crate::launch::Function;
use crate::objects::{Context, Event, Link, Loaded, Pool, UserObject};
use crate::outcome::Outcome;
use crate::settings::{Log, SETTINGS};
use crate::task::Task;

/// The primary context.
pub const PRIMARY: u64 = 0xc0;

thread_local! {
    /// The contexts that are current on this thread, the last one on top; 0 is none.
    pub static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The context that is current on this thread, or 0.
pub fn current_context() -> u64 {
    CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0))
}

pub struct State {
    last: u64,
    /// The process that has initialised the driver; one that it forks has not.
    pub initialised: Option<u32>,
    /// How often the primary context is retained.
    pub retained: u32,
    /// What the primary context will have, or has.
    pub primary: Context,
    pub contexts: HashMap<u64, Context>,
    /// What a kernel failed with: every call fails with it from then on.
    pub failed: Option<CUresult>,
    pub modules: HashMap<u64, Loaded>,
    pub functions: HashMap<u64, Function>,
    pub streams: Streams,
    pub events: HashMap<u64, Event>,
    pub graphs: HashMap<u64, Arc<Vec<Task>>>,
    /// Numbers that decide on nodes, with what they are at every launch.
    pub conditions: HashMap<u64, Option<u32>>,
    pub user_objects: HashMap<u64, UserObject>,
    /// Objects that graphs refer to, and how often.
    pub held: HashMap<u64, Vec<(u64, u64)>>,
    pub allocations: Allocations,
    pub pools: HashMap<u64, Pool>,
    pub links: HashMap<u64, Link>,
}

impl State {
    /// A handle that nothing has had before.
    pub fn handle(&mut self) -> u64 {
        self.last += 0x10;
        self.last
    }

    /// The context of a handle, if it is alive.
    pub fn context(&mut self, handle: u64) -> Option<&mut Context> {
        match handle {
            PRIMARY if self.retained > 0 => Some(&mut self.primary),
            _ => self.contexts.get_mut(&handle),
        }
    }
}

pub struct Machine {
    pub device: Device,
    state: Mutex<State>,
}

impl Machine {
    /// The state, whoever asks.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that a device which failed answers as well.
    pub fn initialised(&self) -> Outcome<MutexGuard<'_, State>> {
        let state = self.state();
        match state.initialised {
            Some(process) if process == std::process::id() => Ok(state),
            _ => Err(CUDA_ERROR_NOT_INITIALIZED),
        }
    }

    /// The state, for a call that needs no context.
    pub fn ready(&self) -> Outcome<MutexGuard<'_, State>> {
        let state = self.initialised()?;
        match state.failed {
            Some(code) => Err(code),
            None => Ok(state),
        }
    }

    /// The state, for a call that needs a current context on a device that works.
    pub fn current(&self) -> Outcome<MutexGuard<'_, State>> {
        let mut state = self.ready()?;
        state.context(current_context()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        Ok(state)
    }

    /// Runs what a stream is given, now, or keeps it while the stream is captured.
    pub fn submit(&self, stream: u64, task: Task) -> Outcome {
        let mut state = self.current()?;
        if let Some(capture) = state.streams.captured(stream)? {
            capture.nodes.push(task);
            return Ok(());
        }
        state.streams.uncaptured(stream)?;
        drop(state);
        self.run(&[task])
    }

    /// Records an event now; one that was destroyed meanwhile is not missed.
    fn record(&self, event: u64) -> Outcome {
        if let Some(event) = self.state().events.get_mut(&event) {
            event.recorded = Some(Instant::now());
        }
        Ok(())
    }

    /// Runs tasks one after another. Who submits them learns of a shape that does not fit; what a
    /// kernel does is learnt by who waits, or at once if launches block.
    pub fn run(&self, tasks: &[Task]) -> Outcome {
        for task in tasks {
            let ran = match task {
                Task::Record(event) => self.record(*event),
                Task::Conditional(conditional) => conditional.run(self),
                task => task.run(&self.device),
            };
            match ran {
                Ok(()) => {}
                Err(code) if task.at_once(code) => return Err(code),
                Err(code) => {
                    self.state().failed = Some(code);
                    let blocking = SETTINGS.as_ref().is_ok_and(|all| all.blocking);
                    return if blocking { Err(code) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }
}

/// The one machine.
pub static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let config = SETTINGS.as_ref().map_or_else(|_| DeviceConfig::default(), |all| all.device());
    Machine {
        device: Device::new(config),
        state: Mutex::new(State {
            last: 0x1000,
            initialised: None,
            retained: 0,
            primary: Context::default(),
            contexts: HashMap::new(),
            failed: None,
            modules: HashMap::new(),
            functions: HashMap::new(),
            streams: Streams::default(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            conditions: HashMap::new(),
            user_objects: HashMap::new(),
            held: HashMap::new(),
            allocations: Allocations::default(),
            pools: HashMap::new(),
            links: HashMap::new(),
        }),
    }
});

/// The code of a call, told if every call is to be.
pub fn finish(name: &str, outcome: Outcome) -> CUresult {
    let code = outcome.err().unwrap_or(CUDA_SUCCESS);
    if SETTINGS.as_ref().is_ok_and(|all| all.log == Log::Calls) {
        eprintln!("kiln-sim-driver: {name}: {code:?}");
    }
    code
}

/// Functions of the driver, whose bodies give nothing or a code.
macro_rules! driver {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> cudarc::driver::sys::CUresult {
            let body = || -> crate::outcome::Outcome { $body };
            crate::machine::finish(stringify!($name), body())
        }
    )*};
}
pub(crate) use driver;
