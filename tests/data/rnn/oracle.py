"""Recurrent networks in float64 with plain loops: what every cell and option means.

Written from the documents (mcDNN chapter 6, oneDNN's RNN primitive, ONNX's operators), not from
Kiln's code, and compared with torch, onnxruntime and oneDNN. Needs numpy.

Gates, the row blocks of W, R, bW, bR, stand in the order of mcDNN's linLayerIDs, which is torch's:
    RNN   (h)
    LSTM  (i, f, g, o)   g = candidate
    GRUs  (r, z, n)      r = reset, z = update, n = candidate
"""

import numpy as np

GATES = {"relu": 1, "tanh": 1, "sigmoid": 1, "lstm": 4,
         "gru": 3, "gru_reset_before": 3, "augru": 3, "lbr_augru": 3}


def sigmoid(x):
    """The logistic function, evaluated without overflow for either sign of x."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def clip(v, bounds):
    return v if bounds is None else np.minimum(np.maximum(v, bounds[0]), bounds[1])


def lstm_step(gx, gr, h, c, p, cell_clip, clip_point, lim):
    """The LSTM of Gers and Schmidhuber (2000), Sak et al. (2014): (h, c) after a step.

    A clip at "read" limits the state where it is read and never where it is stored; at "stored" it
    limits what is stored, returned and read.
    """
    H = c.shape[1]
    peep = p.get("P")
    c_in = clip(c, cell_clip) if clip_point == "read" else c
    zi, zf, zg, zo = (gx[:, k * H:(k + 1) * H] + gr[:, k * H:(k + 1) * H] for k in range(4))
    if peep is not None:
        zi, zf = zi + peep[0] * c_in, zf + peep[1] * c_in
    i, f, g = sigmoid(lim(zi)), sigmoid(lim(zf)), np.tanh(lim(zg))
    c_new = f * c_in + i * g
    c_out = clip(c_new, cell_clip)
    if clip_point == "stored":
        c_new = c_out
    if peep is not None:
        zo = zo + peep[2] * c_out
    h_new = sigmoid(lim(zo)) * np.tanh(c_out)
    if p.get("proj") is not None:
        h_new = h_new @ p["proj"].T
    return h_new, c_new


def cell_step(cell, gx, h, c, p, attention, cell_clip, clip_point, gate_clip):
    """One step of one cell for a batch.

    gx [B, G*H] is W x + bW, h [B, O] and c [B, H] the states before; p holds R [G*H, O], bR [G*H],
    optionally P [3, H] (peepholes i, f, o) and proj [O, H]. attention [B] is AUGRU's. gate_clip t
    limits what every gate is before its activation to [-t, t] (ONNX).
    """
    R, bR = p["R"], p["bR"]
    H = R.shape[0] // GATES[cell]
    lim = (lambda v: v) if gate_clip is None else (lambda v: np.clip(v, -gate_clip, gate_clip))
    block = lambda a, g: a[:, g * H:(g + 1) * H]
    gr = h @ R.T + bR
    if GATES[cell] == 1:
        act = {"relu": lambda v: np.maximum(v, 0.0), "tanh": np.tanh, "sigmoid": sigmoid}[cell]
        return act(lim(gx + gr)), None
    if cell == "lstm":
        return lstm_step(gx, gr, h, c, p, cell_clip, clip_point, lim)
    r = sigmoid(lim(block(gx, 0) + block(gr, 0)))
    z = sigmoid(lim(block(gx, 1) + block(gr, 1)))
    if cell in ("gru", "lbr_augru"):  # the reset gate acts on the product and its bias
        n = np.tanh(lim(block(gx, 2) + r * block(gr, 2)))
    else:  # it acts on what the product is taken of
        n = np.tanh(lim(block(gx, 2) + (r * h) @ R[2 * H:].T + bR[2 * H:]))
    if attention is not None:
        z = (1.0 - attention.reshape(-1, 1)) * z
    return (1.0 - z) * n + z * h, None


class Network:
    """A stack of layers. params[layer][direction] holds W, R, bW, bR and what `cell_step` names.

    direction is "forward", "reverse" or "both"; of both, join ("concat" or "sum") says how they
    become one and stacking whether every layer reads both ("joined": mcDNN, cuDNN, torch) or each
    direction is a stack of its own ("separate": oneDNN). bias is "none", "single_input",
    "single_recurrent" or "double"; with input_mode "skip" the first layer gives x to every gate.
    """

    def __init__(self, cell, params, direction="forward", join="concat", stacking="joined",
                 bias="double", input_mode="linear", cell_clip=None, clip_point="read",
                 gate_clip=None, fill=0.0):
        self.cell, self.params, self.direction = cell, params, direction
        self.join, self.stacking, self.input_mode = join, stacking, input_mode
        self.use_w = bias in ("single_input", "double")
        self.use_r = bias in ("single_recurrent", "double")
        self.cell_clip, self.clip_point, self.gate_clip = cell_clip, clip_point, gate_clip
        self.fill = fill

    def forward(self, x, h_0=None, c_0=None, lengths=None, attention=None, reset=None):
        """x [T, B, I], h_0 [L*D, B, O], c_0 [L*D, B, H], lengths [B], attention [T, B],
        reset [T, B]: where true, the states are 0 before the step.

        Returns output [T, B, O*D] (or O for a sum), h_n, c_n (after each row's last step) and
        history [L*D, T, B, H], the cell state after every step; the last two for LSTM only.
        """
        T, B, _ = x.shape
        self.lengths = np.full(B, T) if lengths is None else np.asarray(lengths)
        self.h_0, self.c_0, self.attention, self.reset = h_0, c_0, attention, reset
        self.h_n, self.c_n, self.history = {}, {}, {}
        reverse = {"forward": [False], "reverse": [True], "both": [False, True]}[self.direction]
        if self.stacking == "joined":
            top = x
            for layer in range(len(self.params)):
                results = [self.run(layer, d, back, top) for d, back in enumerate(reverse)]
                top = self.joined(results)
        else:
            results = []
            for d, back in enumerate(reverse):
                top = x
                for layer in range(len(self.params)):
                    top = self.run(layer, d, back, top)
                results.append(top)
            top = self.joined(results)
        out = top.copy()
        for b in range(B):
            out[self.lengths[b]:, b] = self.fill
        stack = lambda states: np.stack([states[k] for k in sorted(states)])
        given = {"output": out, "h_n": stack(self.h_n)}
        if self.cell == "lstm":
            given |= {"c_n": stack(self.c_n), "history": stack(self.history)}
        return given

    def joined(self, results):
        if self.join == "sum":
            return results[0] + results[1]
        return np.concatenate(results, axis=2)

    def run(self, layer, d, back, inp):
        """A layer in one direction: [T, B, I] -> [T, B, O]."""
        p = dict(self.params[layer][d])
        gates = p["R"].shape[0]
        p["bW"] = p["bW"] if self.use_w else np.zeros(gates)
        p["bR"] = p["bR"] if self.use_r else np.zeros(gates)
        H, O = gates // GATES[self.cell], p["R"].shape[1]
        T, B, _ = inp.shape
        k = layer * len(self.params[layer]) + d
        h = np.zeros((B, O)) if self.h_0 is None else self.h_0[k].copy()
        c = np.zeros((B, H)) if self.c_0 is None else self.c_0[k].copy()
        if layer == 0 and self.input_mode == "skip":
            gx = np.tile(inp, (1, 1, GATES[self.cell])) + p["bW"]
        else:
            gx = inp @ p["W"].T + p["bW"]
        out, history = np.zeros((T, B, O)), np.full((T, B, H), self.fill)
        for s in range(int(self.lengths.max())):
            live = np.nonzero(s < self.lengths)[0]
            t = self.lengths[live] - 1 - s if back else np.full(len(live), s)
            if self.reset is not None:
                off = live[self.reset[t, live]]
                h[off], c[off] = 0.0, 0.0
            a = None if self.attention is None else self.attention[t, live]
            new = cell_step(self.cell, gx[t, live], h[live], c[live], p, a, self.cell_clip,
                            self.clip_point, self.gate_clip)
            h[live] = new[0]
            if new[1] is not None:
                c[live] = new[1]
            out[t, live], history[t, live] = h[live], c[live]
        self.h_n[k], self.c_n[k], self.history[k] = h, c, history
        return out


def positions(T, lengths, layout):
    """The row of (t, b) in a buffer of vectors, -1 where there is none (section 6.2.1.47)."""
    B = len(lengths)
    at = np.full((T, B), -1)
    t, b = np.arange(T)[:, None], np.arange(B)[None, :]
    if layout == "sequence_major":
        at[:] = t * B + b
    elif layout == "batch_major":
        at[:] = b * T + t
    else:
        row = 0
        for step in range(T):
            running = int(np.sum(np.asarray(lengths) > step))
            at[step, :running] = row + np.arange(running)
            row += running
    return at


def pack(dense, lengths, layout, fill=0.0):
    """[T, B, V] -> rows in a layout."""
    at = positions(dense.shape[0], lengths, layout)
    rows = np.full((at.max() + 1, dense.shape[2]), fill)
    for t, b in np.argwhere(at >= 0):
        rows[at[t, b]] = dense[t, b]
    return rows


def unpack(rows, T, lengths, layout):
    """Rows in a layout -> [T, B, V]; 0 where there is none."""
    at = positions(T, lengths, layout)
    dense = np.zeros((T, len(lengths), rows.shape[1]))
    for t, b in np.argwhere(at >= 0):
        dense[t, b] = rows[at[t, b]]
    return dense
