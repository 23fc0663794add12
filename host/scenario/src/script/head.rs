//! Parses the statements that describe a scenario: title, rules, tags, backends, settings.

use d3dkmt::limits;
use dxgkrnl::{AdapterConfig, Policy};

use crate::limits::TAGS_MAX;
use crate::program::Backend;
use crate::script::cursor::{Cursor, Parsed, unknown};
use crate::script::error::{ScriptError, shortened};
use crate::script::parse::Reader;
use crate::script::settings;
use crate::script::token::Token;
use crate::script::words;

impl Reader<'_> {
    pub fn title(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        if !self.names.program.title.is_empty() {
            return Err(
                ScriptError::new(first.span, "the file has a title already").help("one scenario a file")
            );
        }
        self.is_litmus = first.text == "litmus";
        // A wrong title is one error: the statements behind it are no first ones.
        self.names.program.title = first.text.clone();
        let title = cursor.text("the title, in quotes")?;
        if title.text.trim().is_empty() {
            return Err(ScriptError::new(title.span, "the title is empty"));
        }
        self.names.program.title = title.text.clone();
        cursor.end()
    }

    pub fn covers(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        loop {
            let id = cursor.atom("a rule id, as FEN-030")?;
            if let Some(why) = words::rule_error(&id.text) {
                return Err(
                    ScriptError::new(id.span, format!("`{}` is no rule id", shortened(&id.text))).help(why)
                );
            }
            if self.names.program.covers.contains(&id.text) {
                return Err(ScriptError::new(id.span, format!("{} is named twice", id.text)));
            }
            self.names.program.covers.push(id.text.clone());
            if cursor.peek().is_none() {
                return Ok(());
            }
        }
    }

    pub fn tags(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        loop {
            let tag = cursor.atom("a word")?;
            let tags = &mut self.names.program.tags;
            if tags.contains(&tag.text) {
                return Err(ScriptError::new(tag.span, format!("{} is named twice", shortened(&tag.text))));
            }
            if tags.len() >= TAGS_MAX {
                return Err(ScriptError::new(tag.span, format!("more than {TAGS_MAX} tags, the limit")));
            }
            tags.push(tag.text.clone());
            if cursor.peek().is_none() {
                return Ok(());
            }
        }
    }

    pub fn skip(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        let span = cursor.span();
        let backend = cursor.choice("a backend", &Backend::ALL.map(|backend| (backend.name(), backend)))?;
        if self.names.program.not_on.iter().any(|(other, _)| *other == backend) {
            return Err(ScriptError::new(span, format!("the {} backend is skipped already", backend.name())));
        }
        let reason = cursor.text("the reason, in quotes")?;
        if reason.text.trim().is_empty() {
            return Err(ScriptError::new(reason.span, "the reason is empty"));
        }
        self.names.program.not_on.push((backend, reason.text.clone()));
        cursor.end()
    }

    pub fn config(&mut self, first: &Token, cursor: &mut Cursor<'_>) -> Parsed<()> {
        self.check_early(first)?;
        let key = cursor.atom("a setting")?;
        if settings::SEVERAL.contains(&key.text.as_str()) {
            let kernel = &mut self.names.program.setting.kernel;
            settings::read(kernel, &mut self.vms_of_settings, key, cursor)?;
            return cursor.end();
        }
        if let Some(line) = self.settings.insert(key.text.clone(), first.span.line) {
            let message = format!("{} is set already, in line {line}", shortened(&key.text));
            return Err(ScriptError::new(key.span, message));
        }
        let setting = &mut self.names.program.setting;
        match key.text.as_str() {
            "async_submission" => setting.async_submission = true,
            "adapters" => {
                cursor.symbol("=")?;
                let span = cursor.span();
                let count = cursor.number("a count")?;
                if !(1..=limits::ADAPTERS_MAX as u64).contains(&count) {
                    let message = format!("{count} adapters: there can be 1 to {}", limits::ADAPTERS_MAX);
                    return Err(ScriptError::new(span, message));
                }
                if setting.kernel.adapters != vec![AdapterConfig::default()] {
                    let message = "`config adapters` stands before what is said of one of them";
                    return Err(ScriptError::new(key.span, message));
                }
                setting.kernel.adapters = settings::adapters(count as u32);
            }
            switch => {
                let Some((_, values)) = Policy::SWITCHES.into_iter().find(|(name, _)| *name == switch) else {
                    let switches = Policy::SWITCHES.map(|(name, _)| name);
                    let known: Vec<&str> = switches
                        .into_iter()
                        .chain(["adapters", "async_submission"])
                        .chain(settings::SEVERAL)
                        .collect();
                    return Err(unknown(key, "a setting", known));
                };
                cursor.symbol("=")?;
                let value = cursor.atom("a value")?;
                let policy = setting.kernel.policy.with(switch, &value.text);
                setting.kernel.policy =
                    policy.ok_or_else(|| unknown(value, &format!("a value of {switch}"), values))?;
            }
        }
        cursor.end()
    }
}
