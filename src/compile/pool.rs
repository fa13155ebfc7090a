//! Compiling many sources at once.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tracing::dispatcher;

use crate::codegen::KernelSource;
use crate::compile::{Compiler, Image};
use crate::error::Result;

/// NVRTC holds a few hundred megabytes per compilation in flight.
const WORKERS_MAX: usize = 8;

/// Compiles all sources on up to eight threads; results come in the order of the sources.
///
/// `finished` is called on the calling thread after each compilation, with the source's position.
pub fn compile_all(
    compiler: &Compiler,
    sources: &[KernelSource],
    mut finished: impl FnMut(usize, &Result<Image>),
) -> Vec<Result<Image>> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = cores.min(WORKERS_MAX).min(sources.len());
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    let mut results: Vec<Option<Result<Image>>> = Vec::new();
    results.resize_with(sources.len(), || None);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (send, next) = (send.clone(), &next);
            // What listens on this thread hears the workers too.
            let listener = dispatcher::get_default(Clone::clone);
            scope.spawn(move || {
                let _heard = dispatcher::set_default(&listener);
                while let Some(position) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < sources.len())
                {
                    let result = compiler.compile(&sources[position]);
                    if send.send((position, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (position, result) in receive {
            finished(position, &result);
            results[position] = Some(result);
        }
    });
    results.into_iter().map(|result| result.expect("every source was compiled")).collect()
}
