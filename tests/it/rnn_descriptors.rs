//! mcDNN's descriptors of recurrent networks: every documented refusal, and the weight space.

use kiln::dropout::DropoutDescriptor;
use kiln::expr::{NanPropagation, Real};
use kiln::graph::{Direction, Quantization, RowLayout};
use kiln::rnn::{
    BiasMode, CellKind, Extent, InputMode, MathType, Optional, PaddedIo, Rnn, RnnAlgo,
    RnnDataDescriptor, RnnDataSettings, RnnDescriptor, RnnSettings, WeightKind, WeightSlice,
    WeightSpace,
};
use kiln::{DType, Error, ErrorKind};

fn lstm() -> RnnSettings {
    RnnSettings::new(CellKind::Lstm, 4, 8)
}

fn refused(settings: RnnSettings) -> Error {
    RnnDescriptor::set(settings).expect_err("the settings are refused")
}

fn expect(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
}

#[test]
fn settings_come_back_as_they_were() {
    let settings = RnnSettings {
        bias_mode: BiasMode::SingleRecurrent,
        dir_mode: Direction::Both,
        proj_size: 6,
        num_layers: 3,
        dropout: DropoutDescriptor::set(Real::new(0.5), 7).expect("valid"),
        ..lstm()
    };
    let mut descriptor = RnnDescriptor::set(settings).expect("valid");
    assert_eq!(descriptor.get(), &settings);
    assert_eq!(descriptor.clip(), None);
    let clip = Some((NanPropagation::Propagate, -1.0, 2.0));
    descriptor.set_clip(clip).expect("valid");
    assert_eq!(descriptor.clip(), clip);
    let rnn = descriptor.rnn();
    assert_eq!((rnn.projection_size, rnn.output_size(), rnn.layers), (Some(6), 12, 3));
    descriptor.set_clip(None).expect("valid");
    assert_eq!(descriptor.clip(), None);
    // A projection to the hidden size is none.
    assert_eq!(RnnDescriptor::set(lstm()).expect("valid").rnn().projection_size, None);
}

#[test]
fn bad_settings_are_refused_by_the_documents_rules() {
    use ErrorKind::{BadParam, NotSupported};
    let gru = RnnSettings { cell_mode: CellKind::Gru, ..lstm() };
    let (dynamic, fixed) = (RnnAlgo::PersistDynamic, RnnAlgo::PersistStatic);
    let f64 = RnnSettings { data_type: DType::F64, math_prec: DType::F64, ..lstm() };
    let f16 = RnnSettings { data_type: DType::F16, ..lstm() };
    let cases = [
        (
            RnnSettings { input_size: 0, ..lstm() },
            BadParam,
            "the input size is 0, expected at least 1",
        ),
        (
            RnnSettings { hidden_size: -1, ..lstm() },
            BadParam,
            "the hidden size is -1, expected at least 1",
        ),
        (
            RnnSettings { proj_size: 0, ..lstm() },
            BadParam,
            "the projection size is 0, expected at least 1",
        ),
        (
            RnnSettings { num_layers: 0, ..lstm() },
            BadParam,
            "the number of layers is 0, expected at least 1",
        ),
        (
            RnnSettings { input_mode: InputMode::Skip, ..lstm() },
            BadParam,
            "skip input: the input size is 4, the hidden size 8",
        ),
        (
            RnnSettings { proj_size: 9, ..lstm() },
            NotSupported,
            "the projection size 9 exceeds the hidden size 8",
        ),
        (
            RnnSettings { proj_size: 6, ..gru },
            NotSupported,
            "a projection of cell gru, expected lstm",
        ),
        (
            RnnSettings { proj_size: 6, algo: dynamic, ..lstm() },
            NotSupported,
            "a projection with PersistDynamic, expected Standard",
        ),
        (
            RnnSettings { bias_mode: BiasMode::None, algo: fixed, ..lstm() },
            NotSupported,
            "bias mode none with PersistStatic, expected Standard",
        ),
        (
            RnnSettings { cell_mode: CellKind::Augru, ..lstm() },
            NotSupported,
            "cell augru, expected relu, tanh, lstm or gru",
        ),
        (
            RnnSettings { dir_mode: Direction::Reverse, ..lstm() },
            NotSupported,
            "direction reverse, expected forward or both",
        ),
        (
            RnnSettings { data_type: DType::I8, ..lstm() },
            NotSupported,
            "data of i8, expected f16, bf16, f32 or f64",
        ),
        (
            RnnSettings { math_prec: DType::F64, ..lstm() },
            NotSupported,
            "precision f64 of data of f32",
        ),
        (
            RnnSettings { math_prec: DType::F64, ..f16 },
            NotSupported,
            "precision f64 of data of f16",
        ),
        (
            RnnSettings { math_type: MathType::TensorOp, ..lstm() },
            NotSupported,
            "math type TensorOp of data of f32",
        ),
        (
            RnnSettings { math_type: MathType::TensorOpAllowConversion, ..f64 },
            NotSupported,
            "math type TensorOpAllowConversion of data of f64",
        ),
        (RnnSettings { algo: fixed, ..f64 }, NotSupported, "data of f64 with PersistStatic"),
    ];
    for (settings, kind, rule) in cases {
        expect(&refused(settings), kind, &format!("rnn descriptor: {rule}"));
    }
    for prec in [DType::F16, DType::F32] {
        RnnDescriptor::set(RnnSettings { math_prec: prec, ..f16 }).expect("both go with f16");
    }
}

#[test]
fn clips_that_are_no_range_are_refused() {
    let mut descriptor = RnnDescriptor::set(lstm()).expect("valid");
    let nan = NanPropagation::NotPropagate;
    for (lclip, rclip, shown) in
        [(1.0, -1.0, "1 to -1"), (f64::NAN, 1.0, "NaN to 1"), (0.0, f64::NAN, "0 to NaN")]
    {
        let error = descriptor.set_clip(Some((nan, lclip, rclip))).expect_err("no range");
        let text = format!("clip of the cell state: {shown} is not a range");
        expect(&error, ErrorKind::BadParam, &text);
    }
    let gru = RnnSettings { cell_mode: CellKind::Gru, ..lstm() };
    let error = RnnDescriptor::set(gru).expect("valid").set_clip(Some((nan, 0.0, 1.0)));
    let text = "rnn descriptor: a clipped state of cell gru";
    expect(&error.expect_err("it has no cell state"), ErrorKind::NotSupported, text);
}

#[test]
fn descriptors_of_integers_are_those_of_quantised_networks() {
    let own = Quantization::new(64.0, 3);
    let settings = RnnSettings { math_type: MathType::TensorOpAllowConversion, ..lstm() };
    let mut descriptor = RnnDescriptor::set(settings).expect("valid");
    let in_numbers = descriptor.rnn();
    assert!(in_numbers.tf32);
    descriptor.set_quantization(Some((DType::U8, own))).expect("valid");
    let quantised = Rnn { tf32: false, ..in_numbers.clone() }.quantised(DType::U8, own);
    assert_eq!((descriptor.data_type(), descriptor.rnn()), (DType::U8, quantised));
    // The integer of padding is given, the network's fill is what it stands for.
    let padded = |fill: Option<f64>| RnnDataSettings {
        data_type: DType::U8,
        padding_fill: fill.map(Real::new),
        ..data(8, RowLayout::SequenceMajor, &[5, 2])
    };
    let set = |settings| RnnDataDescriptor::set(settings).expect("valid");
    let x = set(RnnDataSettings { vector_size: 4, ..padded(None) });
    for (fill, number) in [(Some(3.0), 0.0), (Some(99.0), 1.5), (None, 0.0)] {
        let rnn = descriptor.network(&x, &set(padded(fill))).expect("they go together");
        assert_eq!(rnn.fill.get(), number);
    }
    let error = descriptor.network(&set(data(4, RowLayout::SequenceMajor, &[5, 2])), &x);
    let text = "rnn forward: x is of f32, the network of u8";
    expect(&error.expect_err("refused"), ErrorKind::BadParam, text);
    // What is refused changes nothing.
    let error = descriptor.set_quantization(Some((DType::I8, Quantization::new(64.0, 128))));
    let text = "rnn: the shift 128 is not a number of i8";
    expect(&error.expect_err("refused"), ErrorKind::BadParam, text);
    assert_eq!(descriptor.data_type(), DType::U8);
    descriptor.set_quantization(None).expect("valid");
    assert_eq!(descriptor.rnn(), in_numbers);
    let half = RnnSettings { data_type: DType::F16, ..lstm() };
    let error = RnnDescriptor::set(half).expect("valid").set_quantization(Some((DType::I8, own)));
    let text = "rnn descriptor: 8-bit integers of a network of f16, expected f32";
    expect(&error.expect_err("refused"), ErrorKind::NotSupported, text);
}

fn data(vector_size: i32, layout: RowLayout, seq_lengths: &[i32]) -> RnnDataSettings {
    RnnDataSettings {
        data_type: DType::F32,
        layout,
        max_seq_length: 5,
        batch_size: seq_lengths.len() as i32,
        vector_size,
        seq_lengths: seq_lengths.to_vec(),
        padding_fill: None,
    }
}

#[test]
fn data_descriptors_check_lengths_and_sizes() {
    use ErrorKind::{BadParam, NotSupported};
    let (padded, packed) = (RowLayout::BatchMajor, RowLayout::Packed);
    let cases = [
        (
            RnnDataSettings { data_type: DType::I32, ..data(4, padded, &[5]) },
            NotSupported,
            "data of i32, expected f16, bf16, f32, f64, i8 or u8",
        ),
        (
            RnnDataSettings { max_seq_length: 0, ..data(4, padded, &[0]) },
            BadParam,
            "the maximal length is 0, expected at least 1",
        ),
        (data(4, padded, &[]), BadParam, "the batch size is 0, expected at least 1"),
        (data(-4, padded, &[5]), BadParam, "the vector size is -4, expected at least 1"),
        (
            RnnDataSettings { batch_size: 3, ..data(4, padded, &[5, 5]) },
            BadParam,
            "2 lengths of 3 sequences",
        ),
        (data(4, padded, &[5, -1]), BadParam, "length -1 of sequence 1, expected 0 to 5"),
        (data(4, padded, &[6]), BadParam, "length 6 of sequence 0, expected 0 to 5"),
        (
            data(4, packed, &[5, 2, 3]),
            BadParam,
            "packed: length 3 of sequence 2 after length 2: lengths may not increase",
        ),
        (
            data(4, packed, &[4, 2]),
            BadParam,
            "packed: the maximal length is 5, the longest sequence 4",
        ),
    ];
    for (settings, kind, rule) in cases {
        let error = RnnDataDescriptor::set(settings).expect_err("refused");
        expect(&error, kind, &format!("rnn data descriptor: {rule}"));
    }
    let settings = data(4, packed, &[5, 3, 0]);
    let descriptor = RnnDataDescriptor::set(settings.clone()).expect("valid");
    assert_eq!(descriptor.get(), &settings);
    assert_eq!(descriptor.extent(), Extent { batch: 3, rows: 8 });
    let descriptor = RnnDataDescriptor::set(data(4, padded, &[3, 5, 0])).expect("valid");
    assert_eq!(descriptor.extent(), Extent { batch: 3, rows: 15 });
}

#[test]
fn descriptors_that_do_not_go_together_are_refused() {
    let set = |settings| RnnDataDescriptor::set(settings).expect("valid");
    let descriptor = RnnDescriptor::set(lstm()).expect("valid");
    let (layout, lengths) = (RowLayout::SequenceMajor, [5, 2]);
    let (x, y) = (set(data(4, layout, &lengths)), set(data(8, layout, &lengths)));
    let rnn = descriptor.network(&x, &y).expect("they go together");
    assert_eq!((rnn.layout, rnn.fill.get()), (layout, 0.0));
    let refused = |descriptor: &RnnDescriptor, x: &RnnDataDescriptor, y: &RnnDataDescriptor| {
        let error = descriptor.network(x, y).expect_err("refused");
        (error.kind(), error.to_string())
    };
    let bad = |rule: &str| (ErrorKind::BadParam, format!("rnn forward: {rule}"));
    let wide = set(data(7, layout, &lengths));
    let expected = bad("vectors of x have 7 elements, expected 4");
    assert_eq!(refused(&descriptor, &wide, &y), expected);
    let expected = bad("vectors of y have 7 elements, expected 8");
    assert_eq!(refused(&descriptor, &x, &wide), expected);
    let other = set(data(8, layout, &[5, 3]));
    let expected = bad("x and y differ in type, layout, batch or lengths");
    assert_eq!(refused(&descriptor, &x, &other), expected);
    let half = set(RnnDataSettings { data_type: DType::F16, ..data(4, layout, &lengths) });
    let expected = bad("x is of f16, the network of f32");
    assert_eq!(refused(&descriptor, &half, &y), expected);
    let strict = RnnSettings { aux_flags: PaddedIo::Disabled, ..lstm() };
    let strict = RnnDescriptor::set(strict).expect("valid");
    let expected = bad("layout sequence_major needs padded I/O, which is disabled");
    assert_eq!(refused(&strict, &x, &y), expected);
    let persistent = RnnSettings { algo: RnnAlgo::PersistDynamic, ..lstm() };
    let persistent = RnnDescriptor::set(persistent).expect("valid");
    let text = "rnn forward: sequences of different lengths: PersistDynamic";
    assert_eq!(refused(&persistent, &x, &y), (ErrorKind::NotSupported, text.to_owned()));
}

/// Every element of a space belongs to one matrix or bias.
#[test]
fn weight_params_cover_the_space_without_overlap() {
    for kind in CellKind::ALL {
        for bias in BiasMode::ALL {
            let rnn = Rnn::new(kind, 3, 5).layers(2).bidirectional().bias(bias);
            let rnn = if kind == CellKind::Lstm { rnn.projection(2) } else { rnn };
            let space = WeightSpace::new(&rnn).expect("valid");
            let mut taken = vec![0; space.bytes() as usize];
            let mut add = |slice: WeightSlice| {
                assert!(slice.rows == 5 || slice.rows == 2, "{slice:?}");
                let bytes = slice.rows * slice.columns * 4;
                let first = slice.offset_bytes as usize;
                taken[first..first + bytes as usize].iter_mut().for_each(|byte| *byte += 1);
            };
            for pseudo_layer in 0..4 {
                for id in 0..=8 {
                    let params = space.params(pseudo_layer, id, space.bytes()).expect("valid");
                    params.matrix.into_iter().chain(params.bias).for_each(&mut add);
                }
            }
            assert!(taken.iter().all(|times| *times == 1), "{kind:?} {bias:?}");
        }
    }
}

#[test]
fn weight_params_name_what_is_absent_and_refuse_the_rest() {
    let rnn = Rnn::lstm(8, 8).skip_input().layers(2).bias(BiasMode::SingleInput);
    let space = WeightSpace::new(&rnn).expect("valid");
    let params = |layer, id| space.params(layer, id, space.bytes());
    let skipped = params(0, 2).expect("valid");
    assert_eq!((skipped.matrix, skipped.bias.map(|bias| bias.columns)), (None, Some(1)));
    let recurrent = params(0, 6).expect("valid");
    let slice = WeightSlice { offset_bytes: 2 * 64 * 4, rows: 8, columns: 8 };
    assert_eq!((recurrent.matrix, recurrent.bias), (Some(slice), None));
    assert!(params(1, 2).expect("valid").matrix.is_some());
    let projection = params(1, 8).expect("valid");
    assert_eq!((projection.matrix, projection.bias), (None, None));
    for (layer, id, rule) in [
        (2, 0, "pseudo-layer 2, the network has 2"),
        (-1, 0, "pseudo-layer -1, the network has 2"),
        (0, -1, "linLayerID -1, expected 0 to 8"),
        (0, 9, "linLayerID 9, expected 0 to 8"),
    ] {
        let error = params(layer, id).expect_err("refused");
        expect(&error, ErrorKind::BadParam, &format!("weight params: {rule}"));
    }
    let error = space.params(1, 3, space.bytes() - 4).expect_err("the last bias is cut");
    let needed = space.bytes();
    let cut = needed - 4;
    let text =
        format!("weight params: the weight space has {cut} bytes, the network needs {needed}");
    expect(&error, ErrorKind::BadParam, &text);
}

/// The sizes that client programs compute, in elements: ONNX Runtime's and MindSpore's for every
/// cell, and that of a projection.
#[test]
fn sizes_are_those_that_clients_compute() {
    let cells = [(CellKind::Relu, 1), (CellKind::Tanh, 1), (CellKind::Lstm, 4), (CellKind::Gru, 3)];
    let types = [DType::F16, DType::F32, DType::F64];
    for (kind, gates) in cells {
        for (dtype, hidden, input) in types.into_iter().flat_map(|dtype| {
            (1..10).flat_map(move |hidden| (1..10).map(move |input| (dtype, hidden, input)))
        }) {
            let rnn = Rnn::new(kind, input, hidden).dtype(dtype);
            let size = |rnn: &Rnn| WeightSpace::new(rnn).expect("valid").elements();
            let of_layer = |input: i64| gates * hidden * (input + hidden + 2);
            assert_eq!(size(&rnn), of_layer(input), "{rnn:?}");
            let both = rnn.clone().bidirectional();
            assert_eq!(size(&both), 2 * of_layer(input), "{both:?}");
            let more = both.layers(3);
            let expected = 2 * (of_layer(input) + 2 * of_layer(2 * hidden));
            assert_eq!(size(&more), expected, "{more:?}");
            if kind == CellKind::Lstm && hidden > 1 {
                let projected = rnn.projection(hidden - 1);
                let expected = gates * hidden * (input + hidden - 1 + 2) + (hidden - 1) * hidden;
                assert_eq!(size(&projected), expected, "{projected:?}");
            }
        }
    }
}

#[test]
fn weight_spaces_of_even_sizes_are_dense() {
    let rnn = Rnn::lstm(16, 8).layers(2).bidirectional().dtype(DType::F16);
    let space = &WeightSpace::new(&rnn).expect("valid");
    let offsets = |kind| (0..4).map(move |at| space.block(at, kind).expect("there").offset);
    let (first, second) = (4 * 8 * (16 + 8), 4 * 8 * (16 + 8));
    let matrices = [0, first, 2 * first, 2 * first + second];
    assert!(offsets(WeightKind::Input).eq(matrices));
    let biases = 2 * first + 2 * second;
    assert!(offsets(WeightKind::InputBias).eq((0..4).map(|at| biases + at * 64)));
    assert_eq!(space.elements(), biases + 4 * 64);
}

#[test]
fn networks_that_make_no_sense_are_refused() {
    use ErrorKind::{BadParam, NotSupported};
    let nothing = Optional::default();
    let with_c = Optional { states_initial: true, ..nothing };
    let gru = || Rnn::gru(4, 4);
    let cases = [
        (gru().layers(0), nothing, BadParam, "the number of layers is 0, expected at least 1"),
        (
            Rnn::lstm(4, 4).projection(5),
            nothing,
            BadParam,
            "the projection size is 5, expected 1 to 4 (hidden)",
        ),
        (gru().projection(2), nothing, NotSupported, "a projection of cell gru, expected lstm"),
        (gru().peephole(), nothing, NotSupported, "peepholes of cell gru, expected lstm"),
        (
            Rnn::gru(3, 4).skip_input(),
            nothing,
            BadParam,
            "skip input: the input size is 3, the hidden size 4",
        ),
        (
            gru().dtype(DType::I32),
            nothing,
            NotSupported,
            "data of i32, expected f64, f32, f16 or bf16",
        ),
        (gru().dtype(DType::F16).tf32(), nothing, NotSupported, "products in tf32 of data of f16"),
        (gru().fill(f64::NAN), nothing, BadParam, "the padding fill is NaN"),
        (gru().gate_clip(-1.0), nothing, BadParam, "the gate clip is -1, expected at least 0"),
        (
            gru().join(kiln::rnn::Join::Sum),
            nothing,
            BadParam,
            "one direction has nothing to be summed with",
        ),
        (
            gru().bidirectional().join(kiln::rnn::Join::Sum).layers(2),
            nothing,
            NotSupported,
            "a sum of directions between layers: stack them separately",
        ),
        (
            gru().bidirectional().join(kiln::rnn::Join::Sum).fill(1.0),
            nothing,
            NotSupported,
            "a sum of directions filled with 1, not 0",
        ),
    ];
    for (rnn, with, kind, rule) in cases {
        let error = rnn.network(Extent { batch: 2, rows: 6 }, with).expect_err(rule);
        expect(&error, kind, &format!("rnn: {rule}"));
    }
    let refused = |rnn: Rnn, rows, with| {
        rnn.network(Extent { batch: 2, rows }, with).expect_err("refused").to_string()
    };
    assert_eq!(
        refused(gru(), 6, with_c),
        "recurrence[gru]: the cell has no state besides its output"
    );
    let text = "recurrence[gru]: 5 rows are not a multiple of batch 2";
    assert_eq!(refused(gru(), 5, nothing), text);
    let text = "recurrence[gru, packed]: packed rows require lengths";
    assert_eq!(refused(gru().layout(RowLayout::Packed), 5, nothing), text);
    let text = "rnn: tensors of 9223372036854775807 vectors exceed 2^58 elements";
    assert_eq!(refused(gru(), i64::MAX, nothing), text);
    let text = "rnn: the number of layers is 9223372036854775807, expected at most 1024";
    assert_eq!(refused(gru().layers(i64::MAX), 6, nothing), text);
    let text = "rnn: the hidden size is 2147483648, expected at most 2147483647";
    assert_eq!(refused(Rnn::gru(4, 1 << 31), 6, nothing), text);
    let large = Rnn::gru(4, i64::from(i32::MAX)).dtype(DType::F64);
    assert_eq!(refused(large, 6, nothing), "rnn: the weights exceed 2^62 bytes");
    let error = gru().network(Extent { batch: 0, rows: 0 }, nothing).expect_err("no batch");
    expect(&error, BadParam, "rnn: 0 vectors of a batch of 0");
}
