//! Objects of the caller that live as long as graphs refer to them.

use std::ffi::c_uint;

use cudarc::driver::sys::cudaError_enum::*;

use crate::machine::{MACHINE, State, driver};
use crate::objects::UserObject;
use crate::outcome::Outcome;
use crate::pointer::{Call, Host, Out};
use crate::stream::HostFunction;

/// The only flag of an object: that nobody waits for its end.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// A graph takes references over from the caller.
const MOVE: u32 = 1;

/// Adds references of a graph, or of what is made of it.
pub fn share(state: &mut State, from: u64, to: u64) {
    let held = state.held.get(&from).cloned().unwrap_or_default();
    for &(object, count) in &held {
        if let Some(object) = state.user_objects.get_mut(&object) {
            object.references += count;
        }
    }
    state.held.insert(to, held);
}

/// Gives up what a graph refers to; returns what has to be called for it.
pub fn drop_all(state: &mut State, graph: u64) -> Vec<Call> {
    let held = state.held.remove(&graph).unwrap_or_default();
    let given_up = |(object, count)| give_up(state, object, count).ok().flatten();
    held.into_iter().filter_map(given_up).collect()
}

/// Gives up references; the last one returns what has to be called.
fn give_up(state: &mut State, object: u64, count: u64) -> Outcome<Option<Call>> {
    let known = state.user_objects.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    known.references = known.references.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if known.references > 0 {
        return Ok(None);
    }
    Ok(state.user_objects.remove(&object).map(|object| object.end))
}

/// Calls what ends an object, when nothing is locked.
fn release(object: u64, count: u64) -> Outcome {
    let end = give_up(&mut *MACHINE.ready()?, object, count)?;
    end.into_iter().for_each(Call::run);
    Ok(())
}

driver! {
    fn cuUserObjectCreate(
        object: Out<u64>,
        value: Host,
        end: HostFunction,
        references: c_uint,
        flags: c_uint,
    ) {
        if object.is_null() || end.is_none() || references == 0 || flags != NO_DESTRUCTOR_SYNC {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = MACHINE.ready()?;
        let handle = state.handle();
        let end = Call { function: end, value };
        state.user_objects.insert(handle, UserObject { end, references: references.into() });
        object.put(handle)
    }

    fn cuUserObjectRetain(object: u64, count: c_uint) {
        let mut state = MACHINE.ready()?;
        let known = state.user_objects.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        known.references += u64::from(count);
        Ok(())
    }

    fn cuUserObjectRelease(object: u64, count: c_uint) {
        release(object, count.into())
    }

    fn cuGraphRetainUserObject(graph: u64, object: u64, count: c_uint, flags: c_uint) {
        let (mut state, count) = (MACHINE.ready()?, u64::from(count));
        let graphs = state.graphs.contains_key(&graph) || state.streams.is_capture(graph);
        let known = state.user_objects.get_mut(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if !graphs || flags & !MOVE != 0 || count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags & MOVE == 0 {
            known.references += count;
        }
        state.held.entry(graph).or_default().push((object, count));
        Ok(())
    }

    fn cuGraphReleaseUserObject(graph: u64, object: u64, count: c_uint) {
        let (mut state, count) = (MACHINE.ready()?, u64::from(count));
        let held = state.held.get_mut(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let of = held.iter_mut().find(|(known, has)| *known == object && *has >= count);
        of.ok_or(CUDA_ERROR_INVALID_VALUE)?.1 -= count;
        drop(state);
        release(object, count)
    }
}
