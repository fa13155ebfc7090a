//! Algorithm descriptors and performances, which the old interface of recurrent networks speaks of.

use crate::declare::{Parameter, enumeration, functions, of};
use crate::object::{Ref, Settable, object};
use crate::pointer::{InArray, Out};
use crate::status::{Outcome, Status, bad};

enumeration! {
    /// The algorithm of a CTC loss.
    mcdnnCTCLossAlgo_t CtcLossAlgorithm "MCDNN_CTC_LOSS_ALGO_" {
        DETERMINISTIC = 0, NON_DETERMINISTIC = 1,
    }
}

/// `mcdnnAlgorithm_t`: the number of an algorithm, whatever it is one of.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Algorithm(pub i32);

/// Its C declaration.
pub const ALGORITHM_DECLARATION: &str = "\
typedef struct mcdnnAlgorithmUnionStruct {
    union Algorithm {
        mcdnnRNNAlgo_t RNNAlgo;
        mcdnnCTCLossAlgo_t CTCLossAlgo;
    } algo;
} mcdnnAlgorithm_t;";

impl Parameter for Algorithm {
    fn declare(name: &str) -> String {
        of("mcdnnAlgorithm_t", name)
    }

    fn show(self) -> String {
        self.0.to_string()
    }
}

/// `mcdnnAlgorithmDescriptor_t`.
#[derive(Debug, Default)]
pub struct AlgorithmDescriptor(Settable<Algorithm>);
object!(AlgorithmDescriptor: "mcdnnAlgorithmDescriptor_t", "algorithm descriptor", 6);

/// `mcdnnAlgorithmPerformance_t`.
#[derive(Debug, Default)]
pub struct AlgorithmPerformance(Settable<Measured>);
object!(AlgorithmPerformance: "mcdnnAlgorithmPerformance_t", "algorithm performance", 7);

#[derive(Debug, Clone, Copy)]
struct Measured {
    algorithm: Algorithm,
    status: Status,
    /// Milliseconds.
    time: f32,
    memory: usize,
}

impl Default for Measured {
    fn default() -> Measured {
        Measured { algorithm: Algorithm::default(), status: Status::SUCCESS, time: 0.0, memory: 0 }
    }
}

impl AlgorithmDescriptor {
    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        *self.0.read()
    }
}

/// A number of objects that a program asks for.
fn count(number: i32, name: &str) -> Outcome<usize> {
    usize::try_from(number).or_else(|_| bad(format!("{name} is {number}")))
}

functions! { FUNCTIONS:
    /// Makes an algorithm descriptor.
    fn mcdnnCreateAlgorithmDescriptor(algoDesc: Out<Ref<AlgorithmDescriptor>>) {
        let place = algoDesc.required("algoDesc")?;
        place.put(Ref::new(AlgorithmDescriptor::default())?);
        Ok(())
    }

    /// Sets the algorithm.
    fn mcdnnSetAlgorithmDescriptor(algoDesc: Ref<AlgorithmDescriptor>, algorithm: Algorithm) {
        algoDesc.get("algoDesc")?.0.set(algorithm);
        Ok(())
    }

    /// The algorithm.
    fn mcdnnGetAlgorithmDescriptor(
        algoDesc: Ref<AlgorithmDescriptor>,
        algorithm: Out<Algorithm>,
    ) {
        let own = *algoDesc.get("algoDesc")?.0.read();
        algorithm.required("algorithm")?.put(own);
        Ok(())
    }

    /// Sets the algorithm to that of another descriptor.
    fn mcdnnCopyAlgorithmDescriptor(
        src: Ref<AlgorithmDescriptor>,
        dest: Ref<AlgorithmDescriptor>,
    ) {
        let from = *src.get("src")?.0.read();
        dest.get("dest")?.0.set(from);
        Ok(())
    }

    /// Destroys an algorithm descriptor; NULL is none.
    fn mcdnnDestroyAlgorithmDescriptor(algoDesc: Ref<AlgorithmDescriptor>) {
        algoDesc.destroy("algoDesc")
    }

    /// Makes so many performances.
    fn mcdnnCreateAlgorithmPerformance(
        algoPerf: Out<Ref<AlgorithmPerformance>>,
        numberToCreate: i32,
    ) {
        let count = count(numberToCreate, "numberToCreate")?;
        let places = algoPerf.required("algoPerf")?.array();
        let new = (0..count).map(|_| Ref::new(AlgorithmPerformance::default()));
        places.put(new.collect::<Outcome<Vec<_>>>()?);
        Ok(())
    }

    /// Sets what was measured: status, milliseconds, and bytes of memory.
    fn mcdnnSetAlgorithmPerformance(
        algoPerf: Ref<AlgorithmPerformance>,
        algoDesc: Ref<AlgorithmDescriptor>,
        status: Status,
        time: f32,
        memory: usize,
    ) {
        let algorithm = *algoDesc.get("algoDesc")?.0.read();
        let status = status.known("status")?;
        algoPerf.get("algoPerf")?.0.set(Measured { algorithm, status, time, memory });
        Ok(())
    }

    /// What was measured.
    fn mcdnnGetAlgorithmPerformance(
        algoPerf: Ref<AlgorithmPerformance>,
        algoDesc: Out<Ref<AlgorithmDescriptor>>,
        status: Out<Status>,
        time: Out<f32>,
        memory: Out<usize>,
    ) {
        let own = *algoPerf.get("algoPerf")?.0.read();
        if !algoDesc.is_null() {
            algoDesc.put(Ref::new(AlgorithmDescriptor(Settable::new(own.algorithm)))?);
        }
        status.put(own.status);
        time.put(own.time);
        memory.put(own.memory);
        Ok(())
    }

    /// Destroys so many performances; those that are NULL are none.
    fn mcdnnDestroyAlgorithmPerformance(
        algoPerf: InArray<Ref<AlgorithmPerformance>>,
        numberToDestroy: i32,
    ) {
        let count = count(numberToDestroy, "numberToDestroy")?;
        let all = algoPerf.all(count, "algoPerf")?;
        all.into_iter().try_for_each(|performance| performance.destroy("algoPerf"))
    }
}

/// What finding algorithms gives: the one there is, which took no time to find.
pub fn put_only(
    places: Out<Ref<AlgorithmPerformance>>,
    algorithm: Algorithm,
    asked: i32,
) -> Outcome<i32> {
    if asked < 1 {
        return bad(format!("requestedAlgoCount is {asked}, expected at least 1"));
    }
    let places = places.array().array();
    places.all(1, "perfResults")?[0]
        .get("perfResults")?
        .0
        .set(Measured { algorithm, ..Measured::default() });
    Ok(1)
}
