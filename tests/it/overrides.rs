//! Overrides: what they replace, that they stay out of the cache's way, and what is refused.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{PROBLEM, json as parsed, succeeds};
use crate::dump::{dumped, run_with};
use crate::harness;

const CHAIN: &str = "op::swish_bwd(x, scaled, 1.5f)";
const OTHER_CHAIN: &str = "op::swish_bwd(x, scaled, 1.25f)";

/// `kiln run --check` with a folder of overrides: exit code, report, messages.
fn run(overrides: &Path, variables: &[(&str, &str)]) -> (Option<i32>, Value, String) {
    let folder = ("KILN_OVERRIDES", overrides.to_str().unwrap());
    let output = run_with(&[&[folder], variables].concat(), &["--check", "--json"]);
    let report = match output.stdout.is_empty() {
        true => Value::Null,
        false => parsed(&String::from_utf8(output.stdout).unwrap()),
    };
    (output.status.code(), report, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn an_edited_dump_stands_in_for_its_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(folder.path(), &[]);
    let name = own.file_name().unwrap().to_str().unwrap();
    let source = own.join("kernel.cu");
    let (code, plain, errors) = run(folder.path(), &[]);
    assert_eq!((code, &plain["overrides"]), (Some(0), &json!([])));
    assert!(errors.contains("overrides nothing: no kernel in it differs"), "{errors}");
    let original = fs::read_to_string(&source).unwrap();
    fs::write(&source, original.replace(CHAIN, OTHER_CHAIN)).unwrap();
    let (code, report, errors) = run(folder.path(), &[]);
    assert_eq!((code, &report["checks"][0]["passed"]), (Some(1), &json!(false)));
    assert_eq!(report["overrides"], json!([{"path": source, "kernels": [name]}]));
    assert_ne!(report["kernels"][0]["key"], plain["kernels"][0]["key"]);
    let warning = format!("kernel {name} is overridden by `{}`", source.display());
    assert!(errors.contains(&warning) && !errors.contains("no kernel"), "{errors}");
    // The cache still has the kernel itself under its own key.
    let check = ["run", PROBLEM, "--random", "1", "--check", "--device", "sim", "--json"];
    let after = parsed(&succeeds(&check));
    assert_eq!(
        (&after["kernels"][0]["key"], &after["kernels"][0]["origin"]),
        (&plain["kernels"][0]["key"], &json!("disk hit"))
    );
    // PTX: never cached, so no compiler is needed for it.
    fs::write(&source, &original).unwrap();
    let ptx = own.join("kernel.ptx");
    let text = fs::read_to_string(&ptx).unwrap();
    let store = text.lines().find(|line| line.contains("st.global")).unwrap();
    fs::write(&ptx, text.replace(store, "")).unwrap();
    let (code, report, _) = run(folder.path(), &[]);
    assert_eq!((code, &report["overrides"][0]["path"]), (Some(1), &json!(ptx)));
    assert_ne!(report["kernels"][0]["key"], plain["kernels"][0]["key"]);
    assert_eq!(report["kernels"][0]["origin"], "disk hit");
}

#[test]
fn files_are_named_after_what_they_replace() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(&folder.path().join("dumps"), &[]);
    let source = fs::read_to_string(own.join("kernel.cu")).unwrap().replace(CHAIN, OTHER_CHAIN);
    let key = parsed(&fs::read_to_string(own.join("spec.json")).unwrap())["key"].clone();
    let identifier = own.file_name().unwrap().to_str().unwrap();
    let overrides = folder.path().join("overrides");
    for name in [key.as_str().unwrap(), identifier, "sm75_pointwise_f32_flat"] {
        fs::create_dir(&overrides).unwrap();
        let path = overrides.join(format!("{name}.cu"));
        fs::write(&path, &source).unwrap();
        let (code, report, _) = run(&overrides, &[]);
        assert_eq!(code, Some(1), "{name}");
        assert_eq!(report["overrides"], json!([{"path": path, "kernels": [identifier]}]));
        fs::remove_dir_all(&overrides).unwrap();
    }
    fs::create_dir(&overrides).unwrap();
    let path = overrides.join("sm75_gemm.cu");
    fs::write(&path, source).unwrap();
    let (code, report, errors) = run(&overrides, &[]);
    assert_eq!(code, Some(0));
    assert_eq!(report["overrides"], json!([{"path": path, "kernels": []}]));
    let warning = format!("override `{}` stood in for no kernel", path.display());
    assert!(errors.contains(&warning), "{errors}");
}

#[test]
fn a_launch_that_fails_leaves_its_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let own = dumped(&folder.path().join("overrides"), &[]);
    let source = own.join("kernel.cu");
    let text = fs::read_to_string(&source).unwrap();
    fs::write(
        &source,
        text.replace("dx + dx_layout::at(p)", "dx - (1ll << 40) + dx_layout::at(p)"),
    )
    .unwrap();
    let dumps = folder.path().join("dumps");
    let variables = [("KILN_DUMP", dumps.to_str().unwrap()), ("KILN_DUMP_TENSORS", "1")];
    let (code, _, errors) = run(&folder.path().join("overrides"), &variables);
    assert_eq!(code, Some(5), "{errors}");
    let failed = fs::read_dir(&dumps).unwrap().next().unwrap().unwrap().path();
    assert!(failed.join("inputs.safetensors").exists());
    assert!(!failed.join("outputs.safetensors").exists());
    let spec = parsed(&fs::read_to_string(failed.join("spec.json")).unwrap());
    assert_eq!(spec["overridden"], json!(source));
    // What failed there fails in its replay, and the fix does not.
    let replay = |options: &[&str]| {
        crate::cli::kiln(&[&["replay", failed.to_str().unwrap()], options].concat()).status.code()
    };
    // On a GPU the process has lost it then.
    let lost = harness::kiln().device().kind() == "cuda";
    assert_eq!(replay(&[]), Some(if lost { 6 } else { 1 }));
    let fixed = folder.path().join("fixed.cu");
    fs::write(&fixed, text).unwrap();
    assert_eq!(replay(&["--edited", fixed.to_str().unwrap()]), Some(0));
}

#[test]
fn what_is_no_override_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |overrides: &Path, text: &str| {
        let (code, _, errors) = run(overrides, &[]);
        assert!(code == Some(2) && errors.contains(text), "{errors}");
    };
    refused(Path::new("/nowhere"), "kiln: failed to read overrides from `/nowhere`: No such file");
    let file = folder.path().join("notes.txt");
    fs::write(&file, "").unwrap();
    refused(folder.path(), "notes.txt`: an edited kernel is a .cu or a .ptx file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    refused(folder.path(), "/empty` is no dump: failed to read `");
    fs::remove_dir(folder.path().join("empty")).unwrap();
    fs::write(folder.path().join("sm75_pointwise_f32_flat.ptx"), "add.u32;").unwrap();
    let (code, _, errors) = run(folder.path(), &[]);
    assert_eq!(code, Some(4));
    assert!(errors.contains("flat.ptx`: the simulated device rejected a kernel: "), "{errors}");
}
