//! The terminal of `gpupv top`: alternate screen, no cursor, no echo. It is restored in every case.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use super::view::{Line, Style};

/// Switches to the alternate screen, hides the cursor and disables line wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The alternate screen, until dropped.
pub struct Screen {
    /// Saved settings of the input terminal; none if standard input is no terminal.
    keyboard: Option<Termios>,
    is_entered: bool,
}

impl Screen {
    pub fn enter() -> io::Result<Screen> {
        let stdin = io::stdin();
        let keyboard = if stdin.is_terminal() { Some(tcgetattr(&stdin)?) } else { None };
        let mut screen = Screen { keyboard, is_entered: false };
        screen.enter_again()?;
        Ok(screen)
    }

    /// Enters the screen again, after [`Screen::leave`].
    pub fn enter_again(&mut self) -> io::Result<()> {
        if let Some(before) = &self.keyboard {
            let mut keys = before.clone();
            keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A read returns the available bytes and never blocks.
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &keys)?;
        }
        self.is_entered = true;
        write(ENTER)
    }

    /// Restores the terminal.
    pub fn leave(&mut self) {
        if !std::mem::take(&mut self.is_entered) {
            return;
        }
        // A closed terminal needs no restoring.
        let _ = write(LEAVE);
        if let Some(before) = &self.keyboard {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }

    /// Whether there is a keyboard.
    pub fn has_keys(&self) -> bool {
        self.keyboard.is_some()
    }

    /// Draws as many lines as fit, and `last` below them.
    pub fn draw(&self, lines: &[Line], last: &str) -> io::Result<()> {
        let (columns, rows) = size();
        let mut text = String::from("\x1b[H");
        for line in lines.iter().take(rows.saturating_sub(1)) {
            let cut = cut(&line.text, columns);
            let (begin, end) = match line.style {
                Style::Plain => ("", ""),
                Style::Heading => ("\x1b[7m", "\x1b[0m"),
                Style::Stuck => ("\x1b[1m", "\x1b[0m"),
            };
            text += &format!("{begin}{cut}{end}\x1b[K\r\n");
        }
        text += &format!("\x1b[J\x1b[{rows};1H{}\x1b[K", cut(last, columns));
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Returns columns and rows; 80 by 24 if they are unknown.
fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}

/// Cuts the text to this width; an ellipsis marks a cut.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
