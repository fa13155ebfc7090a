//! Parallel compilation.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, mpsc};

use tracing::dispatcher;

use crate::codegen::KernelSource;
use crate::compile::{Compiler, Image};
use crate::error::Result;

/// Maximum number of parallel compilations: NVRTC uses a few hundred megabytes for each.
const WORKERS_MAX: usize = 8;

/// Compiles all sources on up to eight threads; results are in the order of the sources.
///
/// `finished` is called on the calling thread after each compilation, with the index of the source.
pub fn compile_all(
    compiler: &Compiler,
    sources: &[KernelSource],
    finished: impl FnMut(usize, &Result<Image>),
) -> Vec<Result<Image>> {
    at_once(sources.len(), |position| compiler.compile(&sources[position]), finished)
}

/// Computes `work` for indices below `count` on up to eight threads, including the calling one, and
/// returns the results in order. `finished` is called on the calling thread after each.
pub(crate) fn at_once<R: Send>(
    count: usize,
    work: impl Fn(usize) -> R + Sync,
    mut finished: impl FnMut(usize, &R),
) -> Vec<R> {
    // available_parallelism reads files.
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    let workers = CORES.min(WORKERS_MAX).min(count);
    let next = AtomicUsize::new(0);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < count);
    let (send, receive) = mpsc::channel();
    let mut results: Vec<Option<R>> = Vec::new();
    results.resize_with(count, || None);
    let mut keep = |(position, result): (usize, R)| {
        finished(position, &result);
        results[position] = Some(result);
    };
    std::thread::scope(|scope| {
        for _ in 1..workers {
            let (send, take, work) = (send.clone(), &take, &work);
            // Workers inherit this thread's tracing subscriber.
            let listener = dispatcher::get_default(Clone::clone);
            scope.spawn(move || {
                let _heard = dispatcher::set_default(&listener);
                while let Some(position) = take() {
                    if send.send((position, work(position))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        while let Some(position) = take() {
            keep((position, work(position)));
            receive.try_iter().for_each(&mut keep);
        }
        receive.into_iter().for_each(&mut keep);
    });
    results.into_iter().map(|result| result.expect("every position was worked on")).collect()
}
