//! Linear equations in bounded integers: `sum(step * x) = total`, each `x` within bounds.
//!
//! Whether addresses of strided tensors coincide is such an equation. It is solved from the largest
//! step to the smallest; if dimensions nest, as they do in views of one buffer, few values remain
//! at each step.

/// Maximum number of values that are tried. Each stride of nested views leaves two or three; those
/// of other tensors may leave as many as the extent.
const TRIED_MAX: u32 = 1 << 14;

/// Maximum number of different steps: two tensors of 8 dimensions and the bytes of an element.
const TERMS_MAX: usize = 17;

/// A coefficient and the bounds of its variable.
#[derive(Debug, Clone, Copy, Default)]
struct Term {
    step: i128,
    least: i128,
    most: i128,
}

/// The terms of an equation, in descending order of their steps while it is solved. Executions
/// solve some, so nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct Equation {
    terms: [Term; TERMS_MAX],
    count: usize,
    tried: u32,
}

impl Equation {
    /// Adds `step * x` with `x` in `[least, most]`; `step` is positive. Terms of equal step are
    /// merged.
    ///
    /// # Panics
    /// For more than [`TERMS_MAX`] different steps.
    pub(crate) fn add(&mut self, step: i128, [least, most]: [i128; 2]) {
        match self.terms[..self.count].iter_mut().find(|of| of.step == step) {
            Some(known) => {
                known.least += least;
                known.most += most;
            }
            None => {
                self.terms[self.count] = Term { step, least, most };
                self.count += 1;
            }
        }
    }

    /// Whether the terms can sum to `total`; `None` if that is undecided after [`TRIED_MAX`]
    /// values.
    pub(crate) fn is_solvable(&mut self, total: i128) -> Option<bool> {
        let terms = &mut self.terms[..self.count];
        terms.sort_unstable_by_key(|term| std::cmp::Reverse(term.step));
        // Minimum and maximum of the sum of the terms from a position on.
        let mut bounds = [[0; 2]; TERMS_MAX + 1];
        for at in (0..self.count).rev() {
            let (Term { step, least, most }, [low, high]) = (self.terms[at], bounds[at + 1]);
            bounds[at] = [low + step * least, high + step * most];
        }
        self.solvable(&bounds, 0, total)
    }

    fn solvable(&mut self, bounds: &[[i128; 2]], at: usize, sum: i128) -> Option<bool> {
        if at == self.count {
            return Some(sum == 0);
        }
        let Term { step, least, most } = self.terms[at];
        // The rest must be within the bounds of the remaining terms.
        let [rest_least, rest_most] = bounds[at + 1];
        let first = (sum - rest_most + step - 1).div_euclid(step).max(least);
        let last = (sum - rest_least).div_euclid(step).min(most);
        let mut times = first;
        while times <= last {
            self.tried += 1;
            if self.tried > TRIED_MAX {
                return None;
            }
            if self.solvable(bounds, at + 1, sum - step * times)? {
                return Some(true);
            }
            times += 1;
        }
        Some(false)
    }
}
