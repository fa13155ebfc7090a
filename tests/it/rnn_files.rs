//! Networks in files: problems of every cell of the documents, saved plans, tensors, and what is
//! refused.

use std::fs;

use kiln::expr::Real;
use kiln::frontend::FrontEnd;
use kiln::plan::{Problem, write_values};
use kiln::rnn::{CellKind, Network, RnnCell};
use kiln::{DType, ErrorKind, TensorDesc};

use crate::cli::{self, fails, json, succeeds};

fn example(kind: CellKind) -> String {
    format!("{}/examples/problems/rnn_{}.json", env!("CARGO_MANIFEST_DIR"), kind.name())
}

fn network(text: &str) -> Network {
    Network::from_json(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Every cell of the documents has a problem file, and the command line runs it as the reference
/// does.
#[test]
fn every_cell_of_the_documents_has_a_problem_file() {
    for kind in CellKind::ALL {
        let path = example(kind);
        let network = network(&fs::read_to_string(&path).expect("it is there"));
        let RnnCell::Kind(of, _) = network.rnn.cell else { panic!("{path} has its own cell") };
        assert_eq!(of, kind);
        let document =
            json(&succeeds(&["run", &path, "--random", "1", "--check", "--sanitize", "--json"]));
        let checks = document["checks"].as_array().expect("outputs are checked");
        assert!(checks.len() >= network.named_outputs().len(), "{document}");
    }
}

/// A file of 8-bit integers: inputs and outputs are integers, weights have scales.
#[test]
fn files_of_integers_run_as_the_reference_does() {
    let path = format!("{}/examples/problems/rnn_integers.json", env!("CARGO_MANIFEST_DIR"));
    let network = network(&fs::read_to_string(&path).expect("it is there"));
    let types: Vec<(String, DType)> =
        network.named_inputs().into_iter().map(|of| (of.name, of.dtype)).collect();
    for (name, dtype) in [
        ("input", DType::U8),
        ("weight_ih_l0", DType::I8),
        ("weight_hh_l1", DType::I8),
        ("bias_ih_l0", DType::F32),
        ("weight_ih_scales_l0", DType::F32),
        ("weight_hh_scales_l1_reverse", DType::F32),
        ("h_0", DType::U8),
        ("c_0", DType::F32),
    ] {
        assert!(types.contains(&(name.to_owned(), dtype)), "{name}: {types:?}");
    }
    let run = ["run", &path, "--random", "1", "--check", "--sanitize", "--json"];
    let document = json(&succeeds(&run));
    let checks = document["checks"].as_array().expect("outputs are checked");
    assert!(checks.len() >= network.named_outputs().len(), "{document}");
}

#[test]
fn integers_that_make_no_sense_are_refused() {
    let own = r#""dtype": "u8", "quantization": {"scale": 63, "shift": 128}"#;
    let document = |more: &str| {
        format!(
            r#"{{"rnn": {{"cell": "lstm", "input_size": 4, "hidden_size": 4, "batch": 1,
            "steps": 2, {more}}}}}"#
        )
    };
    for (more, text) in [
        (r#""dtype": "u8""#.to_owned(), "rnn: data of u8, expected f64, f32, f16 or bf16"),
        (own.replace("u8", "f16"), "rnn: quantised data of f16, expected i8 or u8"),
        (own.replace("63", "0"), "rnn: the scale 0 is not a positive number in f32"),
        (own.replace("128", "300"), "rnn: the shift 300 is not a number of u8"),
        (
            own.replace("\"shift\"", "\"shifts\""),
            "rnn: malformed quantization: unknown field `shifts`, expected `scale` or `shift`",
        ),
        (format!(r#"{own}, "projection_size": 2"#), "rnn: a projection of a quantised network"),
        (format!(r#"{own}, "input_mode": "skip""#), "rnn: a skipped input of a quantised network"),
        (
            format!(r#"{own}, "direction": "both", "join": "sum""#),
            "rnn: a sum of directions of a quantised network",
        ),
    ] {
        let error = Network::from_json(&document(&more)).expect_err(text);
        assert_eq!(error.to_string(), text, "{more}");
    }
    let error = Problem::from_json(&document(&format!(r#"{own}, "backward": true"#)));
    let error = error.expect_err("it has no gradients");
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert_eq!(error.to_string(), "rnn: gradients of a quantised network");
}

/// A file with `backward` runs all passes, whose gradients have torch's names.
#[test]
fn files_with_gradients_run_the_passes_of_training() {
    let path = format!("{}/examples/problems/rnn_training.json", env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("temporary folder");
    let outputs = folder.path().join("out.safetensors").to_str().expect("it is text").to_owned();
    let run = ["run", &path, "--random", "1", "--check", "--sanitize", "--outputs", &outputs];
    succeeds(&run);
    let file = fs::read(outputs).expect("outputs were written");
    let file = safetensors::SafeTensors::deserialize(&file).expect("well-formed");
    for (name, dims) in [
        ("output", vec![6, 4, 24]),
        ("d_input", vec![6, 4, 16]),
        ("d_h_0", vec![2, 4, 24]),
        ("d_c_0", vec![2, 4, 32]),
        ("d_weight_ih_l0", vec![128, 16]),
        ("d_weight_hh_l1", vec![128, 24]),
        ("d_weight_hr_l1", vec![24, 32]),
        ("d_bias_hh_l0", vec![128]),
    ] {
        let view = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(view.shape(), dims, "{name}");
        assert!(view.data().iter().any(|byte| *byte != 0), "{name}");
    }
    assert!(file.names().iter().all(|name| !name.contains("reserve")), "{:?}", file.names());
}

#[test]
fn gradients_that_make_no_sense_are_refused() {
    let document = |more: &str| {
        format!(
            r#"{{"rnn": {{"cell": "gru", "input_size": 2, "hidden_size": 3, "dtype": "f32",
            "batch": 1, "steps": 2, {more}}}}}"#
        )
    };
    for (more, text) in [
        (
            r#""backward": true, "tensors": ["reserve"]"#,
            "rnn: tensor `reserve` with `backward`, whose passes have their own",
        ),
        (
            r#""dropout": {"probability": 1.0}"#,
            "rnn: dropout descriptor: probability 1, expected 0 to less than 1",
        ),
        (
            r#""dropout": {"probability": 0.5, "seed": 9007199254740993}"#,
            "rnn: dropout descriptor: seed 9007199254740993, expected at most 2^53 in magnitude",
        ),
    ] {
        let error = Problem::from_json(&document(more)).expect_err("refused");
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::BadParam, text));
    }
    let error = Network::from_json(&document(r#""backward": true"#)).expect_err("refused");
    assert_eq!(error.to_string(), "rnn: `backward` has several graphs, expected one");
}

/// A saved plan of a network reads and writes what the network's own file does.
#[test]
fn saved_plans_of_networks_keep_their_tensors() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("it is text").to_owned();
    let problem = example(CellKind::Gru);
    let (plan, inputs) = (path("plan.json"), path("in.safetensors"));
    succeeds(&["plan", "save", &problem, "-o", &plan]);
    let network = network(&fs::read_to_string(&problem).expect("it is there"));
    let named = network.named_inputs();
    let values = |tensor: &TensorDesc| match tensor.name.as_str() {
        "lengths" => vec![6.0, 5.0, 4.0, 3.0],
        _ => (0..tensor.elements().expect("it is small")).map(|at| (at % 7) as f64 / 8.0).collect(),
    };
    let values = named.iter().map(|tensor| (tensor.uid, values(tensor))).collect();
    write_values(inputs.as_ref(), named.iter(), &values).expect("there is a disk");
    let [own, saved] = [("own", &problem), ("saved", &plan)].map(|(name, of)| {
        let outputs = path(name);
        succeeds(&["run", of, "--inputs", &inputs, "--outputs", &outputs, "--check"]);
        fs::read(outputs).expect("outputs were written")
    });
    assert_eq!(own, saved);
    for output in network.named_outputs() {
        let name = format!("\"{}\":", output.name);
        assert!(String::from_utf8_lossy(&own).contains(&name), "{name}");
    }
}

/// A tensor of the file that the problem has not is told of, and changes nothing.
#[test]
fn unknown_tensors_of_a_file_are_told_of() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let inputs = folder.path().join("in.safetensors").to_str().expect("it is text").to_owned();
    let problem = example(CellKind::Relu);
    let network = network(&fs::read_to_string(&problem).expect("it is there"));
    let mut named = network.named_inputs();
    named.push(TensorDesc::packed(99, "weight_ih_l1", &[2], DType::F32));
    let values = |tensor: &TensorDesc| {
        (tensor.uid, vec![0.125; tensor.elements().expect("it is small") as usize])
    };
    let values = named.iter().map(values).collect();
    write_values(inputs.as_ref(), named.iter(), &values).expect("there is a disk");
    let output = cli::kiln(&["run", &problem, "--inputs", &inputs]);
    let text = String::from_utf8(output.stderr).expect("it is text");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("the problem has no tensor \"weight_ih_l1\""), "{text}");
}

/// A file of inputs may hold what the network gave; a tensor is asked for once.
#[test]
fn outputs_in_a_file_and_tensors_listed_twice() {
    let folder = tempfile::tempdir().expect("there is a disk");
    let inputs = folder.path().join("in.safetensors").to_str().expect("it is text").to_owned();
    let problem = example(CellKind::Relu);
    let text = fs::read_to_string(&problem).expect("it is there");
    let network = network(&text);
    let mut outputs = network.named_outputs();
    outputs.iter_mut().for_each(|output| output.uid += 1000);
    let named = [network.named_inputs(), outputs].concat();
    let values = |tensor: &TensorDesc| {
        (tensor.uid, vec![0.125; tensor.elements().expect("it is small") as usize])
    };
    let values = named.iter().map(values).collect();
    write_values(inputs.as_ref(), named.iter(), &values).expect("there is a disk");
    let output = cli::kiln(&["run", &problem, "--inputs", &inputs]);
    let errors = String::from_utf8(output.stderr).expect("it is text");
    assert!(output.status.success() && !errors.contains("has no tensor"), "{errors}");
    let twice = cli::json(&text);
    let mut twice = twice.clone();
    twice["rnn"]["tensors"] = serde_json::json!(["h_0", "h_n", "h_0"]);
    let error = Network::from_json(&twice.to_string()).expect_err("refused");
    assert_eq!(error.to_string(), "rnn: tensor `h_0` is listed twice");
}

/// Lengths that do not fit packed vectors are refused where a file gives them.
#[test]
fn lengths_of_a_file_are_checked() {
    let text = fs::read_to_string(example(CellKind::Gru)).expect("it is there");
    let network = network(&text);
    let refused = |lengths: [f64; 4]| {
        let named = network.named_inputs();
        let values = |tensor: &TensorDesc| match tensor.name.as_str() {
            "lengths" => lengths.to_vec(),
            _ => vec![0.0; tensor.elements().expect("it is small") as usize],
        };
        let values = named.iter().map(|tensor| (tensor.uid, values(tensor))).collect();
        let error = network.initial_values(values).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::BadParam);
        error.to_string()
    };
    assert_eq!(
        refused([6.0, 4.0, 5.0, 3.0]),
        "rnn: packed: length 5 of sequence 2 after length 4: lengths may not increase"
    );
    assert_eq!(refused([6.0, 5.0, 4.0, 4.0]), "rnn: packed: 18 vectors of sequences with 19");
    assert_eq!(refused([6.0, 5.0, 4.0, -1.0]), "rnn: length -1 of sequence 3, expected 0 to 18");
}

#[test]
fn keys_of_networks_take_what_they_can_mean() {
    let of = |keys: &str| {
        format!(
            "{{\"rnn\": {{\"input_size\": 4, \"hidden_size\": 8, \"dtype\": \"f32\", \
             \"batch\": 2, \"steps\": 3, {keys}}}}}"
        )
    };
    let clipped = network(&of(r#""cell": "lstm", "fill": "-inf", "gate_clip": "inf",
            "cell_clip": {"min": "-inf", "max": 3}"#));
    assert_eq!(clipped.rnn.fill, Real::new(f64::NEG_INFINITY));
    let RnnCell::Kind(_, options) = clipped.rnn.cell else { panic!("it has a name") };
    assert_eq!(options.cell_clip.expect("it is clipped").min, Real::new(f64::NEG_INFINITY));
    assert_eq!(options.gate_clip, Some(Real::new(f64::INFINITY)));

    assert_eq!(network(&of(r#""cell": "lbr_gru""#)).rnn, network(&of(r#""cell": "gru""#)).rnn);
    let drops = network(&of(r#""cell": "relu", "drop_nan": true"#));
    assert_ne!(drops.rnn, network(&of(r#""cell": "relu""#)).rnn);

    let refused = |keys: &str| {
        let error = Problem::from_json(&of(keys)).expect_err("refused");
        (error.kind(), error.to_string())
    };
    let text = "rnn: tensor `c_0`: cell gru has no state but `h`".to_owned();
    let asked = refused(r#""cell": "gru", "tensors": ["h_0", "c_0"]"#);
    assert_eq!(asked, (ErrorKind::BadParam, text));
    let text = "rnn: tensor `h_1`, expected one of h_0, c_0, lengths, reset, h_n, c_n, history, \
                reserve";
    let asked = refused(r#""cell": "gru", "tensors": ["h_1"]"#);
    assert_eq!(asked, (ErrorKind::BadParam, text.to_owned()));
    let text = "rnn: a NaN dropped by cell tanh, expected relu".to_owned();
    let asked = refused(r#""cell": "tanh", "drop_nan": true"#);
    assert_eq!(asked, (ErrorKind::NotSupported, text));
}

#[test]
fn plans_of_other_problems_are_not_saved() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let path = folder.path().join("plan.json");
    let path = path.to_str().expect("it is text");
    succeeds(&["plan", "save", &example(CellKind::Relu), "-o", path]);
    let document: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).expect("it was written")).expect("JSON");
    let mut other = document.clone();
    other["problem"]["rnn"]["layers"] = 2.into();
    fs::write(path, other.to_string()).expect("there is a disk");
    fails(2, "no part runs the operation that writes", &["plan", "load", path]);
}
