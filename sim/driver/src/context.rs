//! Contexts, of which each thread has a stack. They share the device and its memory.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::cudaError_enum::*;

use crate::device::known;
use crate::machine::{CURRENT, MACHINE, PRIMARY, State, current_context, driver};
use crate::objects::Context;
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};
use crate::stream::PRIORITIES;

/// Flags that a context may be made with (`CUctx_flags`).
const FLAGS: u32 = 0x1ff;
/// The interface that contexts have (`cuCtxGetApiVersion`).
const API_VERSION: c_uint = 3020;
/// Limits that there are, by number, with what they are unless they were set (`CUlimit`): stack,
/// printf's buffer, malloc's heap, depth of synchronisation, pending launches, granularity of L2,
/// persisting L2.
const LIMITS: [u64; 7] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0];

/// Which of them is malloc's heap.
const HEAP_LIMIT: c_uint = 2;

/// Frees what belongs to a context.
fn clear(state: &mut State, context: u64) {
    state.allocations.free_of_context(&MACHINE.device, context);
    state.streams.remove_of_context(context);
}

fn create(context: Out<u64>, flags: c_uint, of: c_int) -> Outcome {
    known(of)?;
    if flags & !FLAGS != 0 || (flags & 7).count_ones() > 1 || context.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut state = MACHINE.ready()?;
    let handle = state.handle();
    state.contexts.insert(handle, Context { flags, ..Context::default() });
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
    context.put(handle)
}

/// Calls `f` with the current context.
fn with<T>(f: impl FnOnce(&mut Context) -> Outcome<T>) -> Outcome<T> {
    let mut state = MACHINE.current()?;
    f(state.context(current_context()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?)
}

driver! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, of: c_int) {
        known(of)?;
        context.put(PRIMARY)?;
        MACHINE.state().retained += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(of: c_int) {
        known(of)?;
        let mut state = MACHINE.state();
        state.retained = state.retained.checked_sub(1).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if state.retained == 0 {
            clear(&mut state, PRIMARY);
        }
        Ok(())
    }

    fn cuDevicePrimaryCtxReset_v2(of: c_int) {
        known(of)?;
        let mut state = MACHINE.state();
        clear(&mut state, PRIMARY);
        state.primary = Context::default();
        state.modules.clear();
        state.functions.clear();
        state.events.clear();
        state.graphs.clear();
        Ok(())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(of: c_int, flags: c_uint) {
        known(of)?;
        if flags & !FLAGS != 0 || (flags & 7).count_ones() > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        MACHINE.state().primary.flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(of: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        known(of)?;
        let state = MACHINE.state();
        flags.put(state.primary.flags)?;
        active.put(c_int::from(state.retained > 0))
    }

    fn cuCtxCreate_v2(context: Out<u64>, flags: c_uint, of: c_int) {
        create(context, flags, of)
    }

    fn cuCtxCreate_v3(context: Out<u64>, params: Host, count: c_int, flags: c_uint, of: c_int) {
        if count != 0 && !params.is_null() {
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, of)
    }

    fn cuCtxCreate_v4(context: Out<u64>, params: In<[u64; 3]>, flags: c_uint, of: c_int) {
        let plain = params.is_null() || params.get()?.iter().all(|word| *word == 0);
        if !plain {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        create(context, flags, of)
    }

    fn cuCtxDestroy_v2(context: u64) {
        let mut state = MACHINE.ready()?;
        state.contexts.remove(&context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        clear(&mut state, context);
        CURRENT.with_borrow_mut(|stack| {
            if stack.last() == Some(&context) {
                stack.pop();
            }
        });
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) {
        drop(MACHINE.initialised()?);
        context.put(current_context())
    }

    fn cuCtxSetCurrent(context: u64) {
        let mut state = MACHINE.initialised()?;
        // The primary context may be set before it is retained, and works from then on.
        if context != 0 && context != PRIMARY && state.context(context).is_none() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        MACHINE.initialised()?.context(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        CURRENT.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        drop(MACHINE.initialised()?);
        let popped = CURRENT.with_borrow_mut(Vec::pop).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        context.offer(popped);
        Ok(())
    }

    fn cuCtxGetDevice(of: Out<c_int>) {
        MACHINE.initialised()?.context(current_context()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        of.put(0)
    }

    fn cuCtxGetDevice_v2(of: Out<c_int>, context: u64) {
        let context = if context == 0 { current_context() } else { context };
        MACHINE.ready()?.context(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        of.put(0)
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) {
        let context = if context == 0 { current_context() } else { context };
        MACHINE.ready()?.context(context).ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
        id.put(context)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.put(with(|context| Ok(context.flags))?)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        if flags & !FLAGS != 0 || (flags & 7).count_ones() > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with(|context| {
            context.flags = flags;
            Ok(())
        })
    }

    fn cuCtxGetApiVersion(context: u64, version: Out<c_uint>) {
        let context = if context == 0 { current_context() } else { context };
        MACHINE.ready()?.context(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        version.put(API_VERSION)
    }

    fn cuCtxSynchronize() {
        MACHINE.current()?.streams.unsafe_call()
    }

    fn cuCtxSynchronize_v2(context: u64) {
        MACHINE.ready()?.context(context).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        MACHINE.ready()?.streams.unsafe_call()
    }

    fn cuCtxGetLimit(value: Out<usize>, which: c_uint) {
        let default = LIMITS.get(which as usize).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?;
        let set = with(|context| Ok(context.limits.get(&which).copied()))?;
        value.put(set.unwrap_or(*default) as usize)
    }

    fn cuCtxSetLimit(which: c_uint, value: usize) {
        LIMITS.get(which as usize).ok_or(CUDA_ERROR_UNSUPPORTED_LIMIT)?;
        if which == HEAP_LIMIT {
            drop(MACHINE.current()?);
            let set = MACHINE.device.set_heap_bytes(value as u64);
            set.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        }
        with(|context| {
            context.limits.insert(which, value as u64);
            Ok(())
        })
    }

    fn cuCtxGetCacheConfig(config: Out<c_uint>) {
        config.put(with(|context| Ok(context.cache_config))?)
    }

    fn cuCtxSetCacheConfig(config: c_uint) {
        if config > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with(|context| {
            context.cache_config = config;
            Ok(())
        })
    }

    fn cuCtxGetSharedMemConfig(config: Out<c_uint>) {
        config.put(with(|context| Ok(context.shared_config))?)
    }

    fn cuCtxSetSharedMemConfig(config: c_uint) {
        if config > 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        with(|context| {
            context.shared_config = config;
            Ok(())
        })
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        drop(MACHINE.current()?);
        least.offer(PRIORITIES.0);
        greatest.offer(PRIORITIES.1);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() {
        MACHINE.current().map(drop)
    }

    // One device has no peers.
    fn cuCtxEnablePeerAccess(peer: u64, flags: c_uint) {
        MACHINE.current()?.context(peer).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Err(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    }

    fn cuCtxDisablePeerAccess(peer: u64) {
        MACHINE.current()?.context(peer).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        Err(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)
    }
}
