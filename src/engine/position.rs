//! Positions in random numbers, in C++.

/// A vector of neighbouring elements, as to where they are in random numbers.
pub(super) struct Neighbours<'a> {
    /// C++ expression of the position of the first.
    pub(super) first: &'a str,
    /// How many there are; the first one's coordinate is a multiple of that.
    pub(super) count: i64,
    /// From one to the next, and its name in C++.
    pub(super) step: i64,
    pub(super) step_name: &'a str,
    /// The steps along all other dimensions.
    pub(super) others: &'a [i64],
}

impl Neighbours<'_> {
    /// The position of element `j`. Where the elements of a subsequence of four, or pairs of them,
    /// lie in one vector, it says so: the compiler then computes their words once.
    pub(super) fn position(&self) -> String {
        let Neighbours { first, count, step, step_name, others } = *self;
        let divides = |by: &i64| count % by == 0 && others.iter().all(|other| other % by == 0);
        match step {
            0 => format!("op::position({first})"),
            1 => match [4, 2].into_iter().find(divides) {
                Some(by) => format!("op::position<{by}>({first}, j)"),
                None => format!("op::position({first} + j)"),
            },
            _ => format!("op::position({first} + j * {step_name})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_subsequences_are_known_by_steps() {
        let of = |count, step, others: &[i64]| {
            Neighbours { first: "at(p)", count, step, step_name: "STRIDE", others }.position()
        };
        assert_eq!(of(8, 1, &[96, 12]), "op::position<4>(at(p), j)");
        assert_eq!(of(8, 1, &[70]), "op::position<2>(at(p), j)");
        assert_eq!(of(2, 1, &[]), "op::position<2>(at(p), j)");
        assert_eq!(of(8, 1, &[35]), "op::position(at(p) + j)");
        assert_eq!(of(8, 6, &[1]), "op::position(at(p) + j * STRIDE)");
        assert_eq!(of(8, 0, &[1]), "op::position(at(p))");
    }
}
