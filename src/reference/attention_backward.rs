//! Gradients of scaled dot-product attention, query by query.

use crate::dtype::DType;
use crate::expr::{InputKind, Program};
use crate::graph::{
    AttentionBackward, AttentionShape, MatmulMath, Op, ScoreInput, Softcap, score_inputs,
};
use crate::reference::approx::{Approx, Arithmetic};
use crate::reference::attention::Evaluation;
use crate::reference::index::{broadcast_position, count};
use crate::reference::{Expected, Operand, bound, matmul};
use crate::tensor::TensorDesc;

pub(super) fn evaluate(
    op: &AttentionBackward,
    operands: &[Operand<'_>],
    outputs: &[&TensorDesc],
) -> Vec<Expected> {
    let forward = Evaluation::of(&op.forward, operands);
    let slots = Op::AttentionBackward(op.clone()).slots();
    let place = |slot: &str| {
        let at = slots.inputs.iter().position(|name| *name == slot);
        at.map(|at| &operands[at])
    };
    let of = Gradients {
        op,
        shape: forward.shape,
        arithmetic: Arithmetic::new(op.forward.score_dtype()),
        o: place("o").expect("the operation has the slot"),
        lse: place("lse").expect("the operation has the slot"),
        d_o: place("do").expect("the operation has the slot"),
        dlse: place("dlse"),
        forward,
    };
    let [mut dq, mut dk, mut dv] =
        [0, 1, 2].map(|at| vec![Approx::anything(0.0); count(&operands[at].desc.dims)]);
    let mut sums: Vec<Sums<'_>> = Vec::new();
    for (_, operand) in op.optional() {
        sums.push(Sums::of(
            operand,
            &place(operand).expect("the attributes were checked").desc.dims,
        ));
    }
    let AttentionShape { batches, kv_heads, .. } = of.shape;
    for (batch, kv_head) in (0..batches).flat_map(|b| (0..kv_heads).map(move |h| (b, h))) {
        let group = of.shape.group();
        let rows: Vec<Row> = (kv_head * group..(kv_head + 1) * group)
            .flat_map(|head| (0..of.shape.queries).map(move |query| [batch, head, query]))
            .filter_map(|at| of.row(at))
            .collect();
        of.queries(&rows, &mut dq);
        of.keys([batch, kv_head], &rows, &mut dk, &mut dv);
        rows.iter().for_each(|row| sums.iter_mut().for_each(|sum| of.add(row, sum)));
    }
    let sums = sums.into_iter().map(|sum| sum.result(of.arithmetic));
    let results = [dq, dk, dv].into_iter().chain(sums).zip(outputs);
    results.map(|(values, tensor)| Expected::stored(values, tensor)).collect()
}

/// The contributions to the gradient of an operand that is broadcast.
struct Sums<'a> {
    operand: &'a str,
    dims: &'a [i64],
    terms: Vec<Vec<Approx>>,
}

impl<'a> Sums<'a> {
    fn of(operand: &'a str, dims: &'a [i64]) -> Sums<'a> {
        Sums { operand, dims, terms: vec![Vec::new(); count(dims)] }
    }

    fn result(self, arithmetic: Arithmetic) -> Vec<Approx> {
        self.terms.into_iter().map(|terms| arithmetic.sum(terms)).collect()
    }
}

/// A query of a sequence.
struct Row {
    at: [i64; 3],
    /// Row of `q`, `o` and `do`.
    query: usize,
    /// `sum(dO O) - dlse`.
    delta: Approx,
    lse: Approx,
    keys: Vec<Key>,
}

/// An unmasked key of a query.
struct Key {
    key: i64,
    /// Row of `k` and `v`.
    row: i64,
    /// P, with dropout.
    p: Approx,
    /// Gradients of the product `q k^T` and of the operands of the score, by slot.
    of_product: Approx,
    of_operands: Vec<(String, Approx)>,
}

struct Gradients<'a> {
    op: &'a AttentionBackward,
    shape: AttentionShape,
    arithmetic: Arithmetic,
    forward: Evaluation<'a>,
    o: &'a Operand<'a>,
    lse: &'a Operand<'a>,
    d_o: &'a Operand<'a>,
    dlse: Option<&'a Operand<'a>>,
}

impl Gradients<'_> {
    /// The gradients of a query's scores; `None` if no sequence has the query.
    fn row(&self, at: [i64; 3]) -> Option<Row> {
        let query = self.forward.query(at)?;
        if self.forward.is_behind(at) {
            let [delta, lse] = [0.0, f64::NEG_INFINITY].map(Approx::exact);
            return Some(Row { at, query, delta, lse, keys: Vec::new() });
        }
        let arithmetic = self.arithmetic;
        let (delta, lse) = (self.delta(query), self.lse.at(arithmetic, query));
        let scores = self.forward.scores(at);
        let keys = scores.iter().map(|score| {
            let row = self.forward.key([at[0], at[1], score.key]);
            let p = self.probability(score.score, lse);
            // If a mask is undecided within the error, P may be 0 or not.
            let p = match score.undecided {
                true => Approx { error: p.error.max(p.value), ..p },
                false => p,
            };
            let kept = self.forward.kept(at, score.key);
            let factor = arithmetic.operand(self.op.forward.dropout_scale(), 0.0);
            let dropped = |of: Approx| match kept {
                true => arithmetic.mul(of, factor),
                false => Approx::exact(0.0),
            };
            let dp = dropped(self.dot(self.d_o, query, row));
            let moved = arithmetic.sub(dp, delta);
            // A probability of 0 has no gradient, whatever it is multiplied with.
            let vanishes = p.value <= p.error;
            let ds = match p.value == 0.0 && p.error == 0.0 {
                true => Approx::exact(0.0),
                false if vanishes && arithmetic.may_be_infinite(moved) => Approx::anything(0.0),
                false => arithmetic.mul(p, moved),
            };
            let index = [at[0], at[1], at[2], score.key];
            let (of_product, of_operands) = self.led_back(index, ds);
            Key { key: score.key, row, p: dropped(p), of_product, of_operands }
        });
        let keys = keys.collect();
        Some(Row { at, query, delta, lse, keys })
    }

    fn delta(&self, query: usize) -> Approx {
        let (width, arithmetic) = (self.shape.width as usize, self.arithmetic);
        let terms = (query * width..(query + 1) * width)
            .map(|at| arithmetic.mul(self.d_o.at(arithmetic, at), self.o.at(arithmetic, at)));
        let sum = arithmetic.sum(terms);
        match self.dlse {
            None => sum,
            Some(dlse) => arithmetic.sub(sum, dlse.at(arithmetic, query)),
        }
    }

    /// Product of a row of `do` and one of `v`.
    fn dot(&self, d_o: &Operand<'_>, query: usize, row: i64) -> Approx {
        let width = self.shape.width as usize;
        let terms = (0..width).map(|at| (query * width + at, row as usize * width + at));
        matmul::dot(self.op.forward.math, d_o, &self.forward.operands[2], terms)
    }

    /// `exp(min(score - lse, 0))`: the exponent is a difference that is converted to base 2.
    fn probability(&self, score: Approx, lse: Approx) -> Approx {
        if lse.value == f64::NEG_INFINITY {
            return Approx::exact(0.0);
        }
        let (dtype, epsilon) = (self.op.forward.score_dtype(), self.arithmetic_epsilon());
        let exponent = score.value - lse.value;
        let exponent = if exponent > 0.0 { 0.0 } else { exponent };
        let value = exponent.exp();
        if value.is_nan() || score.error.is_nan() {
            let certain = score.is_certainly_nan() || lse.value.is_nan();
            return if certain { Approx::exact(f64::NAN) } else { Approx::anything(value) };
        }
        let reach = score.value.abs() + score.error + lse.value.abs();
        let moved =
            score.error + lse.error + 8.0 * epsilon * if reach.is_finite() { reach } else { 0.0 };
        // P lies in [0, 1] whatever its error.
        let most = (1.0 - value).max(value);
        let relative = moved.exp_m1() + 4.0 * epsilon;
        let least =
            if dtype == DType::F64 { dtype.smallest() } else { f64::from(f32::MIN_POSITIVE) };
        let error = match relative.is_finite() {
            true => (value * relative + least).min(most),
            // A masked score remains negligible.
            false => (exponent + moved).min(0.0).exp().min(most),
        };
        Approx { value, error }
    }

    fn arithmetic_epsilon(&self) -> f64 {
        self.op.forward.score_dtype().epsilon()
    }

    /// Leads the gradient of a modified score back to the product and the operands.
    fn led_back(&self, index: [i64; 4], ds: Approx) -> (Approx, Vec<(String, Approx)>) {
        let (op, arithmetic) = (&self.op.forward, self.arithmetic);
        let mut operands = Vec::new();
        let stages = self.forward.stages(index);
        let mut gradient = ds;
        if let Some(program) = op.score.as_deref() {
            let all = self.program(program, index, stages.modified, ds);
            gradient = all[0];
            let captured = all.into_iter().skip(1).enumerate();
            operands.extend(captured.map(|(at, of)| (format!("score_{at}"), of)));
        }
        let capped = |gradient: Approx, before: Approx, last: bool| match op.softcap {
            Some(softcap) if softcap.last == last => self.of_cap(gradient, before, softcap),
            _ => gradient,
        };
        gradient = capped(gradient, stages.biased, true);
        if op.bias {
            operands.push(("bias".to_owned(), gradient));
        }
        if op.slopes {
            let distance = Approx::exact((index[3] - index[2]) as f64);
            operands.push(("slopes".to_owned(), arithmetic.mul(gradient, distance)));
        }
        gradient = capped(gradient, stages.scaled, false);
        let scale = arithmetic.operand(op.scale_of(self.shape.depth), 0.0);
        (arithmetic.mul(gradient, scale), operands)
    }

    /// `gradient (1 - tanh(before / cap)^2)`.
    fn of_cap(&self, gradient: Approx, before: Approx, softcap: Softcap) -> Approx {
        let tanh = self.forward.tanh_of(before, softcap.cap.get());
        let own = 4.0 * self.arithmetic_epsilon();
        let moved = (2.0 * tanh.value.abs() + tanh.error) * tanh.error;
        let slope = Approx { value: 1.0 - tanh.value * tanh.value, error: (moved + own).min(1.0) };
        match before.error.is_nan() || before.value.is_nan() {
            true => Approx { error: f64::NAN, ..gradient },
            false => self.arithmetic.mul(gradient, slope),
        }
    }

    /// Gradients of the inputs of a score program that are elements: of the score, and of captured
    /// tensors in order, 0 where they are no floats.
    fn program(
        &self,
        program: &Program,
        index: [i64; 4],
        score: Approx,
        ds: Approx,
    ) -> Vec<Approx> {
        let elements: Vec<usize> = program
            .inputs()
            .iter()
            .enumerate()
            .filter(|(_, input)| matches!(input.kind, InputKind::Element(_)))
            .map(|(at, _)| at)
            .collect();
        let backward = program.vjp(&elements).expect("the program was checked");
        let input = |of: ScoreInput| self.forward.program_input("score", of, index, score);
        let mut inputs: Vec<Approx> = score_inputs(program).into_iter().map(input).collect();
        inputs.push(ds);
        bound::program(&backward, &inputs, self.forward.activations())
    }

    /// Error of rounding P or the gradient of a score to the type of an MMA's operand.
    fn rounded(&self, of: Approx) -> Approx {
        let types = [&self.forward.operands[0], &self.forward.operands[1]];
        let types = types.map(|operand| operand.desc.dtype);
        let all = [types[1], self.forward.operands[2].desc.dtype, self.d_o.desc.dtype];
        let same = all.iter().all(|dtype| *dtype == types[0]);
        let (epsilon, dtype) = match self.op.forward.math {
            MatmulMath::F64 => return of,
            _ if same && types[0].bytes() == 2 => (types[0].epsilon(), types[0]),
            MatmulMath::Tf32 => (matmul::TF32_EPSILON, DType::F32),
            _ => return of,
        };
        let reach = of.value.abs() + of.error;
        if !dtype.round(reach).is_finite() {
            return Approx::anything(of.value);
        }
        match of.value == 0.0 && of.error == 0.0 {
            true => of,
            false => Approx { error: of.error + reach * epsilon + dtype.smallest(), ..of },
        }
    }

    /// As [`Gradients::rounded`] for what an implementation scales before or after it is rounded.
    fn rounded_scaled(&self, of: Approx) -> Approx {
        let scale = self.op.forward.scale_of(self.shape.depth).abs();
        if scale == 0.0 || of.value == 0.0 && of.error == 0.0 {
            return of;
        }
        let before = self.rounded(Approx { value: of.value / scale, error: of.error / scale });
        let after = self.rounded(of);
        Approx { error: after.error.max(before.error * scale), ..of }
    }

    fn queries(&self, rows: &[Row], dq: &mut [Approx]) {
        let (depth, arithmetic) = (self.shape.depth as usize, self.arithmetic);
        let k = &self.forward.operands[1];
        for row in rows {
            let ds: Vec<Approx> =
                row.keys.iter().map(|key| self.rounded_scaled(key.of_product)).collect();
            for column in 0..depth {
                let terms = row
                    .keys
                    .iter()
                    .zip(&ds)
                    .map(|(key, ds)| self.term(*ds, k, key.row as usize * depth + column));
                dq[row.query * depth + column] = arithmetic.sum(terms);
            }
        }
    }

    fn keys(&self, at: [i64; 2], rows: &[Row], dk: &mut [Approx], dv: &mut [Approx]) {
        let AttentionShape { keys, depth, width, .. } = self.shape;
        let (depth, width) = (depth as usize, width as usize);
        let mut by_key: Vec<Vec<(usize, Approx, Approx)>> = vec![Vec::new(); keys as usize];
        for row in rows {
            for key in &row.keys {
                let (p, ds) = (self.rounded(key.p), self.rounded_scaled(key.of_product));
                by_key[key.key as usize].push((row.query, p, ds));
            }
        }
        let q = &self.forward.operands[0];
        for (key, terms) in by_key.iter().enumerate() {
            let head = at[1] * self.shape.group().max(1);
            let Some(row) = self.forward.key_row([at[0], head, key as i64]) else { continue };
            for column in 0..depth {
                let terms =
                    terms.iter().map(|(query, _, ds)| self.term(*ds, q, query * depth + column));
                dk[row * depth + column] = self.arithmetic.sum(terms);
            }
            for column in 0..width {
                let terms = terms
                    .iter()
                    .map(|(query, p, _)| self.term(*p, self.d_o, query * width + column));
                dv[row * width + column] = self.arithmetic.sum(terms);
            }
        }
    }

    /// Product of P or the gradient of a score with an element.
    fn term(&self, of: Approx, operand: &Operand<'_>, at: usize) -> Approx {
        let element = operand.at(self.arithmetic, at);
        let element =
            if self.op.forward.math == MatmulMath::Tf32 { matmul::tf32(element) } else { element };
        self.arithmetic.mul(of, element)
    }

    /// Adds what a query contributes to the gradient of an operand.
    fn add(&self, row: &Row, sums: &mut Sums<'_>) {
        let [batch, head, query] = row.at;
        let mut add = |key: i64, of: Approx| {
            let at = broadcast_position(&[batch, head, query, key], sums.dims);
            sums.terms[at].push(of);
        };
        if sums.operand == "sinks" {
            let sink = self.forward.element("sinks", &[0, head, 0, 0]);
            let sink = sink.expect("the operation has the slot");
            if row.lse.value != f64::NEG_INFINITY {
                let p = self.probability(sink, row.lse);
                add(0, self.arithmetic.mul(p.neg(), row.delta));
            }
            return;
        }
        for key in &row.keys {
            let own = key.of_operands.iter().find(|(slot, _)| slot == sums.operand);
            add(key.key, own.expect("the score has the operand").1);
        }
    }
}
