//! Activations of recurrent networks, of which the documents do not say how they are computed.

use crate::declare::functions;
use crate::object::Ref;
use crate::rnn::descriptor::RnnNetwork;

functions! { FUNCTIONS:
    /// Makes sigmoid and tanh of a network that mcdnnSetRNNDescriptor_v8 has described one
    /// instruction each, whose results are off by up to 2^-11, or with 0 what they were. A network
    /// of double has none. mcdnnSetRNNDescriptor_v8 makes them what they were again.
    fn mcdnnKilnSetRNNFastActivations(rnnDesc: Ref<RnnNetwork>, fast: i32) {
        let rnn = rnnDesc.get("rnnDesc")?;
        let record = rnn.v8()?;
        rnn.0.set(record.with_fast_activations(fast != 0)?);
        Ok(())
    }
}
