//! The tensors of a network as its caller sees them.

/// What a tensor of a network is to its caller (`mcdnnRNNForward`, section 6.2.1.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// `x`: the vectors of all steps.
    Input,
    /// The weight space.
    Weights,
    /// `hx`: `h` before the first step, of every pseudo-layer.
    HInitial,
    /// `cx`: the other states before the first step, of every pseudo-layer.
    StatesInitial,
    /// The steps of each sequence.
    Lengths,
    /// Where not 0, the states are 0 before the step.
    Reset,
    /// A value per vector for the cell, such as AUGRU's attention.
    RowInputs,
    /// A value per unit and vector for the cell.
    UnitInputs,
    /// `y`.
    Output,
    /// `hy`: `h` after the last step.
    HFinal,
    /// `cy`: the other states after the last step.
    StatesFinal,
    /// The other states after every step.
    History,
    /// What a backward pass needs of a forward pass: outputs of all layers but the last, states.
    Reserve,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 13] = [
        Role::Input,
        Role::Weights,
        Role::HInitial,
        Role::StatesInitial,
        Role::Lengths,
        Role::Reset,
        Role::RowInputs,
        Role::UnitInputs,
        Role::Output,
        Role::HFinal,
        Role::StatesFinal,
        Role::History,
        Role::Reserve,
    ];

    /// The name in problem and tensor files: torch's where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Weights => "weights",
            Role::HInitial => "h_0",
            Role::StatesInitial => "c_0",
            Role::Lengths => "lengths",
            Role::Reset => "reset",
            Role::RowInputs => "row_inputs",
            Role::UnitInputs => "unit_inputs",
            Role::Output => "output",
            Role::HFinal => "h_n",
            Role::StatesFinal => "c_n",
            Role::History => "history",
            Role::Reserve => "reserve",
        }
    }

    /// Whether the network writes it.
    pub fn is_output(self) -> bool {
        self >= Role::Output
    }
}

/// Which optional tensors a forward pass has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Optional {
    /// [`Role::HInitial`]; else 0.
    pub h_initial: bool,
    /// [`Role::StatesInitial`]; else 0.
    pub states_initial: bool,
    /// [`Role::Lengths`]; else every sequence has all steps.
    pub lengths: bool,
    /// [`Role::Reset`].
    pub reset: bool,
    /// [`Role::HFinal`].
    pub h_final: bool,
    /// [`Role::StatesFinal`].
    pub states_final: bool,
    /// [`Role::History`].
    pub history: bool,
    /// [`Role::Reserve`]: the forward pass of training.
    pub reserve: bool,
}

impl Optional {
    /// Whether a tensor of this role is there, if it is optional.
    pub fn has(self, role: Role) -> bool {
        match role {
            Role::HInitial => self.h_initial,
            Role::StatesInitial => self.states_initial,
            Role::Lengths => self.lengths,
            Role::Reset => self.reset,
            Role::HFinal => self.h_final,
            Role::StatesFinal => self.states_final,
            Role::History => self.history,
            Role::Reserve => self.reserve,
            _ => true,
        }
    }
}
