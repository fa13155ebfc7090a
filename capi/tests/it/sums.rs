//! Sums that NVIDIA publishes of what cuDNN's recurrent networks give: the references of cuDNN's
//! RNN sample (20 steps, 2 layers of 512, 64 sequences, of a Tesla M40), through the old interface.

use crate::harness::{compile, succeed};

const SEQUENCES: &str = "64";

/// By mode.
const PUBLISHED: [(&str, &[(&str, f64)]); 4] = [
    (
        "0",
        &[
            ("y", 1.315793e6),
            ("hy", 1.315212e5),
            ("dx", 6.676003e1),
            ("dhx", 6.425050e1),
            ("dw", 1.453750e9),
        ],
    ),
    (
        "1",
        &[
            ("y", 6.319591e5),
            ("hy", 6.319605e4),
            ("dx", 4.501830),
            ("dhx", 4.489543),
            ("dw", 5.012598e7),
        ],
    ),
    (
        "2",
        &[
            ("y", 5.749536e5),
            ("hy", 5.774818e4),
            ("dx", 3.842206e2),
            ("dhx", 1.182562e1),
            ("dw", 4.313461e8),
            ("cy", 4.365091e5),
            ("dcx", 9.323785e3),
        ],
    ),
    (
        "3",
        &[
            ("y", 6.358978e5),
            ("hy", 6.281680e4),
            ("dx", 6.296622),
            ("dhx", 2.289960e5),
            ("dw", 5.397419e7),
        ],
    ),
];

/// Holds sums to what is published, and gives the largest relative difference.
fn check(mode: &str, data_type: &str, tolerance: f64) -> f64 {
    let output = succeed(&compile("sums"), &[mode, data_type, SEQUENCES]);
    let found = output.lines().map(|line| line.split_once(' ').unwrap());
    let found: Vec<(&str, f64)> =
        found.map(|(name, value)| (name, value.parse().unwrap())).collect();
    let published = PUBLISHED.iter().find(|(known, _)| *known == mode).unwrap().1;
    assert_eq!(found.len(), published.len(), "{output}");
    let pairs = published.iter().zip(found);
    let off = pairs.map(|((name, expected), (of, value))| {
        let off = (value - expected).abs() / expected;
        assert!(*name == of && off < tolerance, "mode {mode}: {name} {expected}, not {value}");
        off
    });
    off.fold(0.0, f64::max)
}

/// An LSTM in f32; with `KILN_TEST_ALL=1` all four networks, in f64 as well.
#[test]
fn networks_give_the_published_sums() {
    let all = std::env::var("KILN_TEST_ALL").is_ok_and(|all| all == "1");
    let wanted: &[(&str, &str)] = match all {
        true => &[
            ("0", "0"),
            ("1", "0"),
            ("2", "0"),
            ("3", "0"),
            ("0", "1"),
            ("1", "1"),
            ("2", "1"),
            ("3", "1"),
        ],
        false => &[("2", "0")],
    };
    for (mode, data_type) in wanted {
        // Of 7 digits, of values that an M40 added in f32: versions of cuDNN differ by 1e-5.
        let off = check(mode, data_type, 2e-5);
        println!("mode {mode} in type {data_type}: within {off:.1e}");
    }
}
