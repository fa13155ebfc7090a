//! Sigmoid and tanh of recurrent layers as one instruction: on every engine within the reference's
//! bounds where the instruction is at its worst, and what says so.

use kiln::device::DeviceChoice;
use kiln::engine;
use kiln::graph::{MatmulMath, Recurrence};
use kiln::rnn::{CellKind, CellOptions, Rnn};
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph};

use crate::harness;
use crate::recurrence::{self, graph, layer, setting, values};

const ENGINES: [&str; 5] = ["rnn_cta", "rnn_cluster", "rnn_grid", "rnn_stream", "rnn_step"];

fn fast(op: Recurrence) -> Recurrence {
    Recurrence { fast_activations: true, ..op }
}

#[test]
fn results_are_within_their_bounds_at_the_worst() {
    let mut runs = 0;
    for target in ["sim", "t4", "sim120"] {
        let (device, sim_worst) = (Some(DeviceChoice::Sim(target.to_owned())), Some(true));
        let kiln = &Kiln::open(Config { sim_worst, ..harness::checked(device) }).unwrap();
        for (op, dtype) in recurrence::samples([5, 40]) {
            if op.math == MatmulMath::F64 {
                continue;
            }
            let slow = graph(&op, 3, dtype);
            let graph = graph(&fast(op.clone()), 3, dtype);
            let values = values(&graph, &op, 3);
            for name in ENGINES {
                let target = kiln.device().target();
                let Ok(supported) = engine::supported(name, graph.canonical(), target) else {
                    continue;
                };
                let config = setting(kiln, &graph, name, &[]);
                let what = format!("{config}: {op}");
                harness::check(kiln, &graph, Some(&config), &values, &what);
                // The bounds are of the fast functions: without them the results are others.
                let [fast, slow] =
                    [&graph, &slow].map(|of| harness::run(kiln, of, Some(&config), &values));
                assert!(dtype.bytes() == 1 || fast.unwrap() != slow.unwrap(), "{what}");
                let sources = harness::sources(&what, &*supported, &config);
                let text: String = sources.iter().map(|(_, source)| source.text.as_str()).collect();
                assert!(text.contains("op::tanh_fast("), "{what}");
                for slower in ["op::tanh_approx(", "op::sigmoid_approx(", "= tanh(", "op::sigmoid("]
                {
                    assert!(!text.contains(slower), "{what}: {slower}");
                }
                runs += 1;
            }
        }
    }
    assert!(runs > 60, "{runs} runs");
}

#[test]
fn notes_tell_and_exclude() {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let note = "fast_activations";
    let without = Some(note.parse().unwrap());
    let strict = Kiln::open(Config { without, ..harness::checked(device) }).unwrap();
    let target = strict.device().target();
    for (kind, has) in [(CellKind::Lstm, true), (CellKind::Gru, true), (CellKind::Relu, false)] {
        let op = layer(kind, CellOptions::default(), MatmulMath::F32, [4, 32]);
        for (op, has) in [(op.clone(), false), (fast(op), has)] {
            let graph = graph(&op, 2, DType::F16);
            for name in ENGINES {
                let supported = engine::supported(name, graph.canonical(), target).unwrap();
                let notes = supported.notes(&supported.heuristic());
                assert_eq!(notes.names().contains(&note), has, "{name}: {op}");
            }
            match strict.plan(&graph) {
                Ok(_) => assert!(!has, "{op}"),
                Err(error) => assert!(has && error.to_string().contains(note), "{error}"),
            }
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let op = fast(layer(CellKind::Gru, CellOptions::default(), MatmulMath::F32, [2, 8]));
    let own = graph(&op, 3, DType::Bf16);
    let text = own.to_json();
    assert!(text.contains("\"fast_activations\": true"), "{text}");
    assert_eq!(OperationGraph::from_json(&text).unwrap().operations(), own.operations());
    for wrong in ["1", "\"yes\"", "null"] {
        let text =
            text.replace("\"fast_activations\": true", &format!("\"fast_activations\": {wrong}"));
        let error = OperationGraph::from_json(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadParam, "{error}");
        assert!(error.to_string().contains("fast_activations"), "{error}");
    }
}

#[test]
fn double_precision_has_none() {
    let rnn = Rnn::lstm(4, 8).dtype(DType::F64).fast_activations();
    let error = rnn.validate().unwrap_err();
    assert_eq!(error.to_string(), "rnn: fast activations of data of f64");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    let op = layer(CellKind::Lstm, CellOptions::default(), MatmulMath::F64, [2, 8]);
    let text = graph(&op, 2, DType::F64).to_json();
    let text = text.replacen("\"hidden_size\"", "\"fast_activations\": true, \"hidden_size\"", 1);
    let error = OperationGraph::from_json(&text).unwrap_err();
    assert!(error.to_string().contains("fast activations in f64"), "{error}");
}
