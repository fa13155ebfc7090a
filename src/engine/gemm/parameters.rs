//! The variables that all templates of the engine share: tensors, operands, the epilogue.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::dtype::DType;
use crate::engine::access::access_bytes;
use crate::engine::gemm::axes::{Coordinate, View};
use crate::engine::gemm::exits::{Exit, Kept};
use crate::engine::gemm::partials::Parts;
use crate::engine::gemm::problem::{Operand, Part, Problem};
use crate::engine::gemm::tiling::{Tiling, partial_columns};
use crate::engine::program::{GraphProgram, Source};
use crate::engine::reduce::{finished, op_name};
use crate::engine::signature::{Indent, Width, ctype, kernel_parameter, list, merged, names};
use crate::expr::{EmittedProgram, Identifiers};

/// How an operand comes into shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// The type of the elements in shared memory.
    pub(super) dtype: DType,
    /// Elements that a thread moves at once.
    pub(super) vector: i64,
    /// Whether they pass through registers, or are copied as they are.
    pub(super) staged: bool,
}

/// A problem with the names of its tensors.
pub(super) struct Context<'a> {
    pub(super) problem: &'a Problem<'a>,
    pub(super) tiling: Tiling,
    names: Vec<String>,
    identifiers: Identifiers,
    partials: String,
}

/// One part's program as text, with what feeds it.
struct Emitted {
    text: EmittedProgram,
    /// The program's outputs in the text.
    outputs: Vec<String>,
    parameters: String,
    arguments: Vec<String>,
}

impl<'a> Context<'a> {
    pub(super) fn new(problem: &'a Problem<'a>, tiling: Tiling) -> Context<'a> {
        let mut identifiers = Identifiers::new();
        let names = names(problem.graph, &mut identifiers);
        let partials = identifiers.fresh("partials");
        Context { problem, tiling, names, identifiers, partials }
    }

    /// The type of the sums.
    pub(super) fn sum(&self) -> DType {
        self.problem.matmul.math.dtype()
    }

    /// What every kernel of a problem is rendered with; `passed` are the tensors it takes, behind
    /// which it takes the memory for parts.
    pub(super) fn shared(&self, passed: &[usize], parts: Parts) -> Json {
        let Problem { graph, m, n, k, batches, .. } = self.problem;
        let tiling = &self.tiling;
        let mut tensors: Vec<Json> = passed
            .iter()
            .map(|at| {
                let declaration = kernel_parameter(*graph, *at, &self.names[*at]);
                json!({"declaration": declaration, "text": self.text(*at)})
            })
            .collect();
        if parts.sums {
            let declaration = format!("{}* {}", ctype(self.sum()), self.partials);
            tensors.push(json!({"declaration": declaration, "text": "split-K partials"}));
        }
        let reductions = &self.problem.exits[parts.exits];
        for Exit { op, result, .. } in reductions {
            let name = &self.names[*result];
            let declaration = format!("{}* {name}_parts", ctype(op.math.dtype()));
            tensors
                .push(json!({"declaration": declaration, "text": format!("partials of `{name}`")}));
        }
        let reduces_across = reductions.iter().any(|exit| exit.kept == Kept::Columns);
        let reductions: BTreeSet<&str> = reductions.iter().map(|exit| op_name(exit.op)).collect();
        let masks = ["rows", "columns", "k"].into_iter().zip(["M", "N", "K"]);
        let given = masks.zip(self.problem.overrides);
        let limits = given.filter_map(|((function, extent), at)| {
            let at = at.filter(|at| passed.contains(at))?;
            let view = self.problem.epilogue.axes.view(&graph.tensors[at]);
            let offset = offset(&view.terms(["0", "0"], None), |term| term.stride.to_string());
            let (name, function) = (&self.names[at], format!("{function}_of"));
            let value = match graph.tensors[at].by_value {
                true => format!("int(t.{name})"),
                false => format!("t.{name}[{offset}]"),
            };
            let own = if extent == "M" { self.rows() } else { extent };
            let limit =
                json!({"name": name, "function": function, "dimension": extent, "extent": own});
            Some(with(limit, "value", json!(value)))
        });
        json!({
            "index_type": tiling.index_type(self.problem),
            "m": m,
            "dynamic_m": tiling.dynamic_m,
            "rows": self.rows(),
            "n": n,
            "k": k,
            "batches": batches,
            "batch_count": self.problem.batch_count(),
            "divisions": divisions(batches.len()),
            "tensors": tensors,
            "limits": limits.collect::<Vec<_>>(),
            "limits_depth": self.problem.overrides[2].is_some(),
            "sum": ctype(self.sum()),
            "split_k": tiling.split_k,
            "twin": self.problem.twin.is_some(),
            "reductions": reductions,
            "reduces_across": reduces_across,
            "partials": self.partials,
            "partial_columns": partial_columns(self.problem),
        })
    }

    /// The number of rows as kernels know it.
    fn rows(&self) -> &'static str {
        if self.tiling.dynamic_m { "batch.M" } else { "M" }
    }

    /// A tensor in words; its dimensions only where the kernel is for them.
    pub(super) fn text(&self, at: usize) -> String {
        let tensor = &self.problem.graph.tensors[at];
        match self.tiling.dynamic_m {
            true => format!("{}: {}", tensor.name, tensor.dtype),
            false => tensor.to_string(),
        }
    }

    /// The operations, one per line; nothing for a bare product.
    pub(super) fn listing(&self) -> Vec<String> {
        let Problem { graph, a, b, c, twin, .. } = self.problem;
        let text = |part: &Part| part.program.program.to_string();
        let operation = graph.operations.iter().find(|operation| operation.outputs == [*c as i64]);
        let op = &operation.expect("the product is of the graph").op;
        let product = |[a, b]: [usize; 2], c: usize| {
            let [x, y] = [a, b].map(|operand| &graph.tensors[operand].name);
            format!("{}: {} = {op}({x}, {y})\n", self.shown(c), graph.tensors[c].dtype)
        };
        let first = product([a.tensor, b.tensor], *c);
        let second = twin.map(|twin| product([a.tensor, twin.b], twin.c)).unwrap_or_default();
        let operands = [a.tensor, b.tensor].into_iter().chain(twin.map(|twin| twin.b));
        let shapes: String = operands.map(|at| format!("{}\n", self.text(at))).collect();
        let text = [shapes, text(&a.part), text(&b.part), first, second].concat();
        text.lines().map(str::to_owned).chain(self.following()).collect()
    }

    /// A tensor's name, or a name for an unnamed GEMM result.
    fn shown(&self, at: usize) -> String {
        match self.problem.graph.tensors[at].name.as_str() {
            "" if at == self.problem.c => "product".to_owned(),
            "" => "product2".to_owned(),
            name => name.to_owned(),
        }
    }

    /// The epilogue, one operation per line.
    pub(super) fn following(&self) -> Vec<String> {
        let GraphProgram { program, sources, .. } = &self.problem.epilogue.program;
        let mut program = program.clone();
        for (input, source) in sources.iter().enumerate() {
            if let Source::Tensor(at) = source {
                program = program.renamed(input, &self.shown(*at));
            }
        }
        let text = program.to_string();
        let exits = self.problem.exits.iter().map(|exit| self.reduction(exit));
        text.lines().map(str::to_owned).chain(exits).collect()
    }

    /// A reduction in words.
    pub(super) fn reduction(&self, Exit { op, operand, result, .. }: &Exit) -> String {
        let [operand, result] = [operand, result].map(|at| &self.problem.graph.tensors[*at]);
        format!("{}: {} = {op}({})", result.name, result.dtype, operand.name)
    }

    /// The variables of an operand.
    pub(super) fn operand(&self, of: &Operand, tile: Tile, is_a: bool) -> Json {
        let (graph, program) = (self.problem.graph, &of.part.program);
        let emitted = self.emit(&of.part, &|source, register| match source {
            Source::Tensor(at) if graph.tensors[*at].by_value => {
                format!("{register}(t.{})", self.names[*at])
            }
            Source::Tensor(at) => {
                let scalar = inner(&of.part.axes.view(&graph.tensors[*at]), of.depth_packed) == 0;
                format!("{}_in[i].get({})", self.names[*at], if scalar { "0" } else { "j" })
            }
            Source::Coordinate(axis) => {
                let at = axis.and_then(|axis| of.part.axes.coordinate(axis));
                format!("{register}({})", coordinate(at, ["at_row", "at_k"]))
            }
        });
        let dtype = graph.tensors[of.tensor].dtype;
        let result_type = emitted.text.outputs[0].ctype;
        // The store to the tile rounds to its type.
        let (result, value_type) = match of.is_plain() || dtype == tile.dtype {
            true => ("value".to_owned(), result_type),
            false => (format!("widen(Narrow<{}>::from(value))", ctype(dtype)), dtype.register()),
        };
        let mut arguments = emitted.arguments;
        arguments.push("value".to_owned());
        let stored = of.part.inputs().filter(|at| !graph.tensors[*at].by_value);
        let matrix = Matrix {
            part: &of.part,
            extents: [of.extent, self.problem.k],
            along_columns: of.depth_packed,
            vector: tile.vector,
            is_m: is_a,
        };
        let tensors: Vec<Json> = stored
            .map(|at| self.tensor(at, &matrix))
            .map(|tensor| {
                let valid = if tensor["inner"] == 0 { "valid[i] > 0" } else { "valid[i]" };
                with(tensor, "load_valid", json!(valid))
            })
            .collect();
        let counted = |source: &Source| matches!(source, Source::Coordinate(Some(_)));
        let twin = self.problem.twin.filter(|_| !is_a);
        let columns = if twin.is_some() { "2 * CTA_N" } else { "CTA_N" };
        json!({
            "title": format!(
                "{}: {}, and its path into shared memory.",
                if is_a { "A" } else { "B" },
                self.text(of.tensor),
            ),
            "type": if is_a { "A" } else { "B" },
            "element": ctype(tile.dtype),
            "cta_rows": if is_a { "CTA_M" } else { columns },
            "extent": if is_a { "M" } else { "N" },
            "is_dynamic": is_a && self.tiling.dynamic_m,
            "depth_packed": of.depth_packed,
            "vector": tile.vector,
            "staged": tile.staged,
            "variable": if is_a { "a" } else { "b" },
            "first": if is_a { "coord.row" } else { "coord.column" },
            "tensor": self.names[of.tensor],
            "twinned": twin.is_some(),
            "twin": twin.map(|twin| self.names[twin.b].clone()),
            "tensors": tensors,
            "has_coordinates": program.sources.iter().any(counted),
            "chain_parameters": emitted.parameters,
            "chain_arguments": list(&arguments, Indent(25), Width(70)),
            "lines": emitted.text.lines,
            "functions": emitted.text.functions,
            "value_type": value_type,
            "result_type": result_type,
            "result": result,
        })
    }

    /// The variables of the epilogue, `vector` elements of a row at a time.
    pub(super) fn epilogue(&self, vector: i64) -> Json {
        let Problem { graph, epilogue, m, n, overrides, .. } = self.problem;
        let emitted = self.emit(epilogue, &|source, register| match source {
            Source::Tensor(at) if self.problem.is_product(*at) => self.product(*at),
            Source::Tensor(at) if graph.tensors[*at].by_value => {
                format!("{register}(t.{})", self.names[*at])
            }
            Source::Tensor(at) => {
                let scalar = epilogue.axes.view(&graph.tensors[*at]).column == 0;
                format!("{}_in.get({})", self.names[*at], if scalar { "0" } else { "j" })
            }
            Source::Coordinate(axis) => {
                let at = axis.and_then(|axis| epilogue.axes.coordinate(axis));
                format!("{register}({})", coordinate(at, ["row", "column + j"]))
            }
        });
        let matrix =
            Matrix { part: epilogue, extents: [*m, *n], along_columns: true, vector, is_m: true };
        let tensor = |at: usize| self.tensor(at, &matrix);
        let is_loaded = |at: &usize| !self.problem.is_product(*at) && !graph.tensors[*at].by_value;
        let loaded: Vec<Json> = epilogue
            .inputs()
            .filter(is_loaded)
            .map(|at| {
                let tensor = tensor(at);
                let valid = if tensor["inner"] == 0 { "1" } else { "valid" };
                with(tensor, "load_valid", json!(valid))
            })
            .collect();
        let loads_valid = loaded.iter().any(|tensor| tensor["load_valid"] == "valid");
        let mut arguments = emitted.arguments;
        arguments.extend(emitted.outputs.iter().map(|name| format!("{name}_value[j]")));
        let types = emitted.text.outputs.iter().map(|output| output.ctype);
        let values: Vec<(&String, &str)> = emitted.outputs.iter().zip(types).collect();
        let outputs: Vec<Json> = self.problem.outputs().map(tensor).collect();
        let exits: Vec<Json> = self
            .problem
            .exits
            .iter()
            .map(|exit| {
                let tensors = &epilogue.program.outputs;
                let at = tensors.iter().position(|at| *at == exit.operand);
                let (value, value_type) = values[at.expect("what is reduced is an output")];
                let term = self.term(exit, value, value_type);
                with(self.exit(exit), "term", json!(term))
            })
            .collect();
        let values: Vec<Json> =
            values.iter().map(|(name, ctype)| json!({"name": name, "ctype": ctype})).collect();
        let limit = |slot: usize, function: &str, extent: &str| match overrides[slot] {
            Some(_) => format!("{function}(t, batch)"),
            None => extent.to_owned(),
        };
        json!({
            "vector": vector,
            "stores": true,
            "tensors": loaded.iter().chain(&outputs).collect::<Vec<_>>(),
            "loaded": loaded,
            "loads_valid": loads_valid,
            "outputs": outputs,
            "values": values,
            "exits": exits,
            "chain_parameters": emitted.parameters,
            "chain_arguments": list(&arguments, Indent(18), Width(78)),
            "lines": emitted.text.lines,
            "functions": emitted.text.functions,
            "has_tail": n % vector != 0,
            "masked": overrides[0].is_some() || overrides[1].is_some(),
            "rows": limit(0, "rows_of", self.rows()),
            "columns": limit(1, "columns_of", "N"),
        })
    }

    /// What a reduction takes in next: a value of its operand's type, in its own precision.
    fn term(&self, exit: &Exit, value: &str, value_type: &str) -> String {
        let dtype = self.problem.graph.tensors[exit.operand].dtype;
        let (own, value) = (exit.op.math.dtype().register(), format!("{value}_value[j]"));
        let exact = matches!(dtype, DType::F32 | DType::F64) && dtype.register() == value_type;
        let (rounded, register) = match exact {
            true => (value, value_type),
            false => (format!("widen(Narrow<{}>::from({value}))", ctype(dtype)), dtype.register()),
        };
        if register == own { rounded } else { format!("{own}({rounded})") }
    }

    /// The variables of a reduction.
    fn exit(&self, exit: &Exit) -> Json {
        let dtype = exit.op.math.dtype();
        let kept = match exit.kept {
            Kept::Rows => "rows",
            Kept::Columns => "columns",
            Kept::Neither => "neither",
        };
        json!({
            "name": self.names[exit.result],
            "op": op_name(exit.op),
            "ctype": ctype(dtype),
            "kept": kept,
            "place": if exit.kept == Kept::Columns { "[j]" } else { "" },
        })
    }

    /// The variables of the kernel that joins the parts of a reduction.
    pub(super) fn joined(&self, at: usize) -> Json {
        let Problem { graph, m, n, epilogue, exits, .. } = self.problem;
        let exit = &exits[at];
        let Exit { kept, keeps_batches, .. } = *exit;
        let matrix = Matrix {
            part: epilogue,
            extents: [*m, *n],
            along_columns: true,
            vector: 1,
            is_m: true,
        };
        let rows = (kept != Kept::Rows).then_some("rows");
        let columns = (kept != Kept::Columns).then_some("N");
        let batches = (!keeps_batches).then_some("BATCHES");
        let reduced = rows.into_iter().chain(columns).chain(batches).collect::<Vec<_>>();
        let count = format!("Part(1ll * {})", reduced.join(" * "));
        let finish = finished(exit.op.op, "all", &count).unwrap_or("all".to_owned());
        let exit = merged(
            self.exit(exit),
            json!({
                "tensors": [self.tensor(exit.result, &matrix)],
                "keeps_batches": keeps_batches,
                "stored": ctype(graph.tensors[exit.result].dtype),
                "finish": finish,
            }),
        );
        json!({"exit": exit, "listing": [self.reduction(&exits[at])]})
    }

    /// An element of the product as the epilogue sees it: rounded to the product's type, unless
    /// it is only stored.
    fn product(&self, at: usize) -> String {
        let Problem { graph, epilogue, c, .. } = self.problem;
        let (sum, dtype) = (if at == *c { "sum" } else { "other" }, graph.tensors[at].dtype);
        let program = &epilogue.program;
        let input = program.sources.iter().position(|source| *source == Source::Tensor(at));
        let read = input.is_some_and(|input| {
            let value = crate::expr::Value::Input(input);
            program.program.instructions().iter().any(|line| line.operands.contains(&value))
        });
        let same_register = dtype.register() == self.sum().register();
        match dtype == self.sum() || (!read && same_register) {
            true => sum.to_owned(),
            false => format!("widen(Narrow<{}>::from({sum}))", ctype(dtype)),
        }
    }

    fn emit(&self, part: &Part, argument: &dyn Fn(&Source, &str) -> String) -> Emitted {
        let graph = self.problem.graph;
        let mut identifiers = self.identifiers.clone();
        let program = &part.program;
        let mut name = |source: &Source| match source {
            Source::Tensor(at) if self.problem.is_product(*at) => identifiers.fresh("product"),
            Source::Tensor(at) => self.names[*at].clone(),
            Source::Coordinate(_) => identifiers.fresh("index"),
        };
        let inputs: Vec<String> = program.sources.iter().map(&mut name).collect();
        let output = |at: &usize| match graph.is_written(*at) && !graph.tensors[*at].is_virtual {
            true => self.names[*at].clone(),
            false => identifiers.fresh("result"),
        };
        let outputs: Vec<String> = program.outputs.iter().map(output).collect();
        let text = program.program.emit(&inputs, &outputs, &mut identifiers);
        let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
        for input in (0..inputs.len()).filter(|input| program.reads(*input)) {
            let register = text.input_types[input];
            parameters.push(format!("const {register} {}", inputs[input]));
            arguments.push(argument(&program.sources[input], register));
        }
        let results = outputs.iter().zip(&text.outputs);
        parameters.extend(results.map(|(name, output)| format!("{}& {name}", output.ctype)));
        let parameters = list(&parameters, Indent(8), Width(56));
        Emitted { text, outputs, parameters, arguments }
    }

    /// A tensor's place in memory and how vectors of it are moved.
    fn tensor(&self, at: usize, of: &Matrix<'_>) -> Json {
        let (tensor, name) = (&self.problem.graph.tensors[at], &self.names[at]);
        let Matrix { part, extents, along_columns, vector, .. } = *of;
        let view = part.axes.view(tensor);
        let inner = inner(&view, along_columns);
        let access = access_of(self.problem, at, &view, extents, along_columns, vector);
        let rows = (of.is_m && self.tiling.dynamic_m).then_some(self.problem.m);
        let terms = view.terms(["row", "column"], rows);
        let strides: Vec<Json> = terms
            .iter()
            .filter(|term| term.stride > 1)
            .map(|Term { constant, stride, .. }| json!({"name": constant, "value": stride}))
            .collect();
        let ctype = ctype(tensor.dtype);
        let constant = if along_columns { "COLUMN" } else { "ROW" };
        let (verb, stride) = match inner {
            0 => (format!("<int(sizeof({ctype}))>"), String::new()),
            1 => (format!("<{name}_layout::ACCESS>"), String::new()),
            _ => ("_strided".to_owned(), format!("{name}_layout::{constant}, ")),
        };
        json!({
            "name": name,
            "text": self.text(at),
            "ctype": ctype,
            "inner": inner,
            "access_bytes": access,
            "strides": strides,
            "offset": offset(&terms, |term| term.constant.clone()),
            "fragment": if inner == 0 { "1" } else { "VECTOR" },
            "load": format!("load{verb}"),
            "load_stride": stride,
            "store": format!("store{verb}"),
            "store_stride": stride,
        })
    }
}

/// How vectors of a part's tensors are moved.
struct Matrix<'a> {
    part: &'a Part,
    /// Rows and columns.
    extents: [i64; 2],
    /// Or else along rows.
    along_columns: bool,
    /// Elements moved at once.
    vector: i64,
    /// Whether its rows are those of the product.
    is_m: bool,
}

/// A coordinate times a stride, in an offset.
struct Term {
    coordinate: String,
    stride: i64,
    /// The name of the stride.
    constant: String,
}

impl View {
    /// The outermost first. Where `rows` are counted at run time and a batch is so many rows, its
    /// stride is that of a row.
    fn terms(&self, [row, column]: [&str; 2], rows: Option<i64>) -> Vec<Term> {
        let batch = |(at, stride): (usize, &i64)| {
            let rows = rows.filter(|rows| *rows > 0 && self.row != 0 && stride % rows == 0);
            let (coordinate, stride) = match rows {
                Some(rows) => (format!("batch.i{at} * batch.M"), stride / rows),
                None => (format!("batch.i{at}"), *stride),
            };
            Term { coordinate, stride, constant: format!("BATCH{at}") }
        };
        let inner = |coordinate: &str, stride: i64, constant: &str| Term {
            coordinate: coordinate.to_owned(),
            stride,
            constant: constant.to_owned(),
        };
        let matrix = [inner(row, self.row, "ROW"), inner(column, self.column, "COLUMN")];
        self.batches.iter().enumerate().map(batch).chain(matrix).collect()
    }
}

/// Bytes of one access to a tensor of a part, for `vector` elements along columns or rows.
pub(super) fn access_of(
    problem: &Problem<'_>,
    at: usize,
    view: &View,
    extents: [i64; 2],
    along_columns: bool,
    vector: i64,
) -> i64 {
    let tensor = &problem.graph.tensors[at];
    let (outer_stride, outer_extent) = match along_columns {
        true => (view.row, extents[0]),
        false => (view.column, extents[1]),
    };
    let strides: Vec<i64> = view.batches.iter().copied().chain([outer_stride]).collect();
    let extents: Vec<i64> = problem.batches.iter().copied().chain([outer_extent]).collect();
    match inner(view, along_columns) {
        1 => access_bytes(tensor, &strides, &extents, vector),
        _ => tensor.dtype.bytes() as i64,
    }
}

fn inner(view: &View, along_columns: bool) -> i64 {
    if along_columns { view.column } else { view.row }
}

fn coordinate(at: Option<Coordinate>, [row, column]: [&str; 2]) -> String {
    match at {
        None => "0".to_owned(),
        Some(Coordinate::Batch(batch)) => format!("batch.i{batch}"),
        Some(Coordinate::Row) => row.to_owned(),
        Some(Coordinate::Column) => column.to_owned(),
    }
}

/// The sum of coordinates times strides, which `factor` writes.
fn offset(terms: &[Term], factor: impl Fn(&Term) -> String) -> String {
    let text = |term: &Term| match term.stride {
        1 => term.coordinate.clone(),
        _ => format!("{} * {}", term.coordinate, factor(term)),
    };
    let terms: Vec<String> = terms.iter().filter(|term| term.stride != 0).map(text).collect();
    if terms.is_empty() { "0".to_owned() } else { terms.join(" + ") }
}

/// Expressions for the coordinates of a batch.
fn divisions(count: usize) -> Vec<String> {
    (0..count)
        .map(|dimension| {
            let inner: Vec<String> =
                (dimension + 1..count).map(|inner| format!("EXTENT{inner}")).collect();
            let quotient = match inner.len() {
                0 => "at".to_owned(),
                1 => format!("at / {}", inner[0]),
                _ => format!("at / ({})", inner.join(" * ")),
            };
            match dimension {
                0 => quotient,
                _ => format!("{quotient} % EXTENT{dimension}"),
            }
        })
        .collect()
}

/// An object with one more member.
pub(super) fn with(mut object: Json, name: &str, value: Json) -> Json {
    object[name] = value;
    object
}

/// The functions of `device/ops` that parts call.
pub(super) fn functions(parts: &[&Json]) -> Json {
    let names = parts.iter().filter_map(|part| part["functions"].as_array()).flatten();
    let names: std::collections::BTreeSet<&str> = names.filter_map(Json::as_str).collect();
    json!(names)
}
