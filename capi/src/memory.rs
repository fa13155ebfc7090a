//! Device memory for programs that do without CUDA.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use kiln::device::Buffer;

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, Out};
use crate::status::{Outcome, bad};

/// Buffers by address.
#[derive(Default)]
pub struct Memory(Mutex<BTreeMap<u64, Buffer>>);

impl Memory {
    /// The buffer that holds so many bytes at an address of this name, and where in it.
    fn find(&self, address: u64, bytes: usize, name: &str) -> Outcome<(Buffer, u64)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let below = all.range(..=address).next_back();
        let found = below.filter(|(start, buffer)| {
            address - **start <= buffer.bytes().saturating_sub(bytes as u64)
                && bytes as u64 <= buffer.bytes()
        });
        match found {
            Some((start, buffer)) => Ok((buffer.clone(), address - start)),
            None => bad(format!("{name} ({address:#x}) has no {bytes} bytes of mcdnnKilnMalloc's")),
        }
    }
}

functions! { FUNCTIONS:
    /// Allocates device memory, which is not initialised.
    fn mcdnnKilnMalloc(handle: Ref<Handle>, address: Out<DataMut>, bytes: usize) {
        let handle = handle.get("handle")?;
        let place = address.required("address")?;
        let buffer = handle.gpu().kiln.device().alloc(bytes as u64)?;
        place.put(DataMut::of(buffer.address()));
        let mut all = handle.gpu().memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(buffer.address(), buffer);
        Ok(())
    }

    /// Frees memory of mcdnnKilnMalloc once what is queued has been done; NULL is none.
    fn mcdnnKilnFree(handle: Ref<Handle>, address: DataMut) {
        let handle = handle.get("handle")?;
        let address = address.address();
        let mut all = handle.gpu().memory.0.lock().unwrap_or_else(PoisonError::into_inner);
        match address == 0 || all.remove(&address).is_some() {
            true => Ok(()),
            false => bad(format!("address ({address:#x}) is not of mcdnnKilnMalloc")),
        }
    }

    /// Copies to memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits.
    fn mcdnnKilnMemcpyHtoD(handle: Ref<Handle>, to: DataMut, from: Data, bytes: usize) {
        let handle = handle.get("handle")?;
        let (buffer, offset) = handle.gpu().memory.find(to.address(), bytes, "to")?;
        let host = from.host::<u8>().all(bytes, "from")?;
        Ok(buffer.write_on(&handle.stream(), offset, &host)?)
    }

    /// Copies from memory of mcdnnKilnMalloc, after what is queued on the handle's stream; waits.
    fn mcdnnKilnMemcpyDtoH(handle: Ref<Handle>, to: DataMut, from: Data, bytes: usize) {
        let handle = handle.get("handle")?;
        let (buffer, offset) = handle.gpu().memory.find(from.address(), bytes, "from")?;
        let place = to.host::<u8>().required(bytes, "to")?;
        handle.stream().synchronize()?;
        let mut host = vec![0; bytes];
        buffer.read(offset, &mut host)?;
        place.put(host);
        Ok(())
    }

    /// Waits for what is queued on the handle's stream.
    fn mcdnnKilnSynchronize(handle: Ref<Handle>) {
        Ok(handle.get("handle")?.stream().synchronize()?)
    }
}
