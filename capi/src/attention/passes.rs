//! Passes of a layer (section 6.2.1.35, and as cuDNN 8 has them).

use kiln::layers::{
    AttentionBackwardData, AttentionBackwardWeights, AttentionForward, WeightGradientMode,
};

use crate::attention::data::SeqData;
use crate::attention::descriptor::Attention;
use crate::attention::layers::{memory, sized};
use crate::declare::functions;
use crate::handle::Handle;
use crate::kept::UNKNOWN;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, InArray};
use crate::values::WgradMode;

functions! { FUNCTIONS:
    /// The forward pass (6.2.1.35), of one time step or, with a negative currIdx, of all; with a
    /// reserve space it is one of training. Windows are in memory of the host, lengths in that of
    /// the device; with NULL, lengths are those of the descriptors.
    fn mcdnnMultiHeadAttnForward(
        handle: Ref<Handle>,
        attnDesc: Ref<Attention>,
        currIdx: i32,
        loWinIdx: InArray<i32>,
        hiWinIdx: InArray<i32>,
        devSeqLengthsQO: InArray<i32>,
        devSeqLengthsKV: InArray<i32>,
        qDesc: Ref<SeqData>,
        queries: Data,
        residuals: Data,
        kDesc: Ref<SeqData>,
        keys: Data,
        vDesc: Ref<SeqData>,
        values: Data,
        oDesc: Ref<SeqData>,
        out: DataMut,
        weightSizeInBytes: usize,
        weights: Data,
        workSpaceSizeInBytes: usize,
        workSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
    ) {
        let handle = handle.get("handle")?;
        let all = [(qDesc, "qDesc"), (kDesc, "kDesc"), (vDesc, "vDesc"), (oDesc, "oDesc")];
        handle.with_said(attnDesc, all, |said| {
            let steps = said.vectors[0].extent(kiln::attention::SequenceAxis::Time) as usize;
            let low = loWinIdx.seen(steps, "loWinIdx")?;
            let high = hiWinIdx.seen(steps, "hiWinIdx")?;
            let queries = memory(queries.address(), "queries")?;
            let keys = memory(keys.address(), "keys")?;
            let values = memory(values.address(), "values")?;
            let out = memory(out.address(), "out")?;
            // A layer without projections has no weights.
            let weights = sized(weights.address(), weightSizeInBytes);
            let extent = said.extent()?;
            handle.layer(said, |layer, kiln, stream, vectors| {
                let [q_desc, k_desc, v_desc, o_desc] = vectors;
                let seq_lengths_qo = layer.lengths(kiln, devSeqLengthsQO.address(), q_desc)?;
                let seq_lengths_kv = layer.lengths(kiln, devSeqLengthsKV.address(), k_desc)?;
                Ok(layer.built.forward_within(stream, extent, &AttentionForward {
                    curr_idx: currIdx,
                    lo_win_idx: &low,
                    hi_win_idx: &high,
                    seq_lengths_qo,
                    seq_lengths_kv,
                    q_desc,
                    queries,
                    residuals: sized(residuals.address(), UNKNOWN as usize),
                    k_desc,
                    keys,
                    v_desc,
                    values,
                    o_desc,
                    out,
                    weights: weights.unwrap_or(queries),
                    workspace: sized(workSpace.address(), workSpaceSizeInBytes),
                    reserve: sized(reserveSpace.address(), reserveSpaceSizeInBytes),
                })?)
            })
        })
    }

    /// The backward pass of the data, after a forward pass in training with the same reserve space
    /// on the same device: the gradients of queries, keys and values. Windows are those of the
    /// forward pass and may be NULL.
    fn mcdnnMultiHeadAttnBackwardData(
        handle: Ref<Handle>,
        attnDesc: Ref<Attention>,
        loWinIdx: InArray<i32>,
        hiWinIdx: InArray<i32>,
        devSeqLengthsDQDO: InArray<i32>,
        devSeqLengthsDKDV: InArray<i32>,
        doDesc: Ref<SeqData>,
        dout: Data,
        dqDesc: Ref<SeqData>,
        dqueries: DataMut,
        queries: Data,
        dkDesc: Ref<SeqData>,
        dkeys: DataMut,
        keys: Data,
        dvDesc: Ref<SeqData>,
        dvalues: DataMut,
        values: Data,
        weightSizeInBytes: usize,
        weights: Data,
        workSpaceSizeInBytes: usize,
        workSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
    ) {
        let _ = (loWinIdx, hiWinIdx, queries, keys, values);
        let handle = handle.get("handle")?;
        let all = [(dqDesc, "dqDesc"), (dkDesc, "dkDesc"), (dvDesc, "dvDesc"), (doDesc, "doDesc")];
        handle.with_said(attnDesc, all, |said| {
            let dout = memory(dout.address(), "dout")?;
            let dqueries = memory(dqueries.address(), "dqueries")?;
            let dkeys = memory(dkeys.address(), "dkeys")?;
            let dvalues = memory(dvalues.address(), "dvalues")?;
            memory(reserveSpace.address(), "reserveSpace")?;
            let weights = sized(weights.address(), weightSizeInBytes);
            let reserve = sized(reserveSpace.address(), reserveSpaceSizeInBytes);
            handle.layer(said, |layer, kiln, stream, vectors| {
                let [q_desc, k_desc, v_desc, o_desc] = vectors;
                let seq_lengths_qo = layer.lengths(kiln, devSeqLengthsDQDO.address(), q_desc)?;
                let seq_lengths_kv = layer.lengths(kiln, devSeqLengthsDKDV.address(), k_desc)?;
                Ok(layer.built.backward_data(stream, &AttentionBackwardData {
                    seq_lengths_qo,
                    seq_lengths_kv,
                    o_desc,
                    dout,
                    q_desc,
                    dqueries,
                    k_desc,
                    dkeys,
                    v_desc,
                    dvalues,
                    weights: weights.unwrap_or(dout),
                    workspace: sized(workSpace.address(), workSpaceSizeInBytes),
                    reserve: reserve.unwrap_or(dout),
                })?)
            })
        })
    }

    /// The backward pass of the weights, after that of the data with the same reserve space on the
    /// same device.
    fn mcdnnMultiHeadAttnBackwardWeights(
        handle: Ref<Handle>,
        attnDesc: Ref<Attention>,
        addGrad: WgradMode,
        qDesc: Ref<SeqData>,
        queries: Data,
        kDesc: Ref<SeqData>,
        keys: Data,
        vDesc: Ref<SeqData>,
        values: Data,
        doDesc: Ref<SeqData>,
        dout: Data,
        weightSizeInBytes: usize,
        weights: Data,
        dweights: DataMut,
        workSpaceSizeInBytes: usize,
        workSpace: DataMut,
        reserveSpaceSizeInBytes: usize,
        reserveSpace: DataMut,
    ) {
        let _ = (dout, weights);
        let handle = handle.get("handle")?;
        let mode = match addGrad.known("addGrad")? {
            WgradMode::SET => WeightGradientMode::Set,
            _ => WeightGradientMode::Add,
        };
        let all = [(qDesc, "qDesc"), (kDesc, "kDesc"), (vDesc, "vDesc"), (doDesc, "doDesc")];
        handle.with_said(attnDesc, all, |said| {
            let queries = memory(queries.address(), "queries")?;
            let keys = memory(keys.address(), "keys")?;
            let values = memory(values.address(), "values")?;
            memory(dweights.address(), "dweights")?;
            memory(reserveSpace.address(), "reserveSpace")?;
            let dweights = sized(dweights.address(), weightSizeInBytes);
            let reserve = sized(reserveSpace.address(), reserveSpaceSizeInBytes);
            handle.layer(said, |layer, kiln, stream, vectors| {
                let [q_desc, k_desc, v_desc, o_desc] = vectors;
                let seq_lengths_qo = layer.lengths(kiln, 0, q_desc)?;
                let seq_lengths_kv = layer.lengths(kiln, 0, k_desc)?;
                Ok(layer.built.backward_weights(stream, &AttentionBackwardWeights {
                    mode,
                    seq_lengths_qo,
                    seq_lengths_kv,
                    q_desc,
                    queries,
                    k_desc,
                    keys,
                    v_desc,
                    values,
                    o_desc,
                    dweights: dweights.unwrap_or(queries),
                    workspace: sized(workSpace.address(), workSpaceSizeInBytes),
                    reserve: reserve.unwrap_or(queries),
                })?)
            })
        })
    }
}
