//! Parses races of litmus files: the steps of each column, and the outcomes.

use crate::limits::OUTCOMES_MAX;
use crate::program::{Column, Expected, Race, Thread};
use crate::script::acts::{ActContext as ActPlace, act};
use crate::script::cursor::{Cursor, Parsed};
use crate::script::error::ScriptError;
use crate::script::expects::outcomes;
use crate::script::parse::Reader;
use crate::script::token::Token;

/// The part of a race that has been parsed.
pub(super) enum RaceState {
    None,
    Rows,
    Outcomes,
}

impl Reader<'_> {
    pub fn race(&mut self, first: &Token, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        // All following lines belong to the race.
        self.is_over = true;
        if !self.is_litmus {
            return Err(ScriptError::new(first.span, "a race needs a file that begins with `litmus`"));
        }
        let mut columns: Vec<Column> = Vec::new();
        loop {
            let name = cursor.atom("an actor")?;
            let thread: Thread = self.names.thread(name).ok_or_else(|| self.no_actor(name))?;
            self.names.check_able(thread, name)?;
            if columns.iter().any(|column| column.thread == thread) {
                return Err(ScriptError::new(name.span, format!("{} has a column already", name.text)));
            }
            columns.push(Column { thread, steps: Vec::new() });
            if !cursor.take_symbol("|") {
                break;
            }
        }
        cursor.end()?;
        if columns.len() < 2 {
            return Err(ScriptError::new(first.span, "a race needs two columns at least"));
        }
        self.names.program.race = Some(Race { line, columns, ..Race::default() });
        self.race = RaceState::Rows;
        self.is_over = false;
        Ok(())
    }

    /// Parses a row: one step of each column; an empty cell is no step.
    pub fn row(&mut self, tokens: &[Token], line: u32) -> Parsed<()> {
        let threads: Vec<Thread> = match &self.names.program.race {
            Some(race) => race.columns.iter().map(|column| column.thread).collect(),
            None => unreachable!("rows come after the head of a race"),
        };
        let cells: Vec<&[Token]> = tokens.split(|token| token.is_symbol("|")).collect();
        if let Some(bar) = tokens.iter().filter(|token| token.is_symbol("|")).nth(threads.len() - 1) {
            let message = format!("the row has {} cells, the race {} columns", cells.len(), threads.len());
            return Err(ScriptError::new(bar.span, message));
        }
        for (at, cell) in cells.into_iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
            self.count_step(cell[0].span)?;
            let act = act(&mut self.names, threads[at], &mut Cursor::new(cell), ActPlace::Race)?;
            debug_assert!(act.expected != Expected::Blocks, "refused where it is read");
            let race = self.names.program.race.as_mut().expect("it was there above");
            race.columns[at].steps.push((line, act));
        }
        Ok(())
    }

    pub fn outcomes(&mut self, first: &Token, cursor: &mut Cursor<'_>, line: u32) -> Parsed<()> {
        let outcomes = outcomes(&self.names, cursor, line)?;
        let Some(race) = &mut self.names.program.race else {
            return Err(ScriptError::new(first.span, format!("`{}` belongs to a race", first.text)));
        };
        let all = if first.text == "allowed" { &mut race.allowed } else { &mut race.forbidden };
        all.extend(outcomes);
        if all.len() > OUTCOMES_MAX {
            let message = format!("more than {OUTCOMES_MAX} outcomes are {}, the limit", first.text);
            return Err(ScriptError::new(first.span, message));
        }
        self.race = RaceState::Outcomes;
        Ok(())
    }
}
