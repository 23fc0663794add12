//! Choosers: they decide between alternatives of a run. The first, one by seed, or every one in turn.

pub use d3dkmt::random::Random;

/// Chooses among alternatives.
pub trait Choose {
    /// Returns a number below `alternatives`, which is at least 1.
    fn choose(&mut self, alternatives: usize) -> usize;
}

/// Always chooses the first: the plain order.
#[derive(Debug, Default)]
pub struct First;

impl Choose for First {
    fn choose(&mut self, _alternatives: usize) -> usize {
        0
    }
}

/// A chooser by seed.
impl Choose for Random {
    fn choose(&mut self, alternatives: usize) -> usize {
        if alternatives == 1 { 0 } else { self.index(alternatives) }
    }
}

/// Chooses every alternative in turn: run after run, depth first.
#[derive(Debug, Default)]
pub struct Exhaustive {
    /// The choices of this run, each with its number of alternatives.
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Exhaustive {
    /// Returns the choices of this run, for [`ReplayedChoices`].
    pub fn choices(&self) -> Vec<usize> {
        self.path.iter().map(|(choice, _)| *choice).collect()
    }

    /// Advances to the next combination; false when none is left.
    pub fn next_combination(&mut self) -> bool {
        self.path.truncate(self.at);
        self.at = 0;
        while let Some((choice, alternatives)) = self.path.pop() {
            if choice + 1 < alternatives {
                self.path.push((choice + 1, alternatives));
                return true;
            }
        }
        false
    }
}

/// Repeats these choices, then chooses the first: a repetition of an earlier run.
#[derive(Clone, Debug)]
pub struct ReplayedChoices {
    choices: std::vec::IntoIter<usize>,
}

impl ReplayedChoices {
    pub fn new(choices: Vec<usize>) -> ReplayedChoices {
        ReplayedChoices { choices: choices.into_iter() }
    }
}

impl Choose for ReplayedChoices {
    fn choose(&mut self, alternatives: usize) -> usize {
        self.choices.next().filter(|choice| *choice < alternatives).unwrap_or(0)
    }
}

impl Choose for Exhaustive {
    fn choose(&mut self, alternatives: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, alternatives));
        }
        let (choice, recorded) = self.path[self.at];
        debug_assert_eq!(recorded, alternatives, "the same choices lead to the same place");
        self.at += 1;
        choice
    }
}
