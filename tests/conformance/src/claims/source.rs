//! The functions of a file, found in its tokens: tests inside of macros such as `proptest!` are seen as well,
//! which a syntax tree would not show.

use std::collections::BTreeSet;
use std::ops::Range;

use super::tokens::{Kind, Token, tokens};

/// A function, or a constant that names things.
#[derive(Debug)]
pub struct Item {
    pub name: String,
    /// Inline modules around it.
    pub modules: Vec<String>,
    pub is_test: bool,
    /// `#[should_panic]`: the panic is what is asserted.
    pub wants_panic: bool,
    /// Tokens from its attributes to its end.
    pub span: Range<usize>,
}

/// `mod name;`, with the inline modules around it.
#[derive(Debug)]
pub struct Child {
    pub modules: Vec<String>,
    pub name: String,
    pub path: Option<String>,
}

#[derive(Debug)]
pub struct Source {
    /// As seen from the root of the tree.
    pub file: String,
    pub tokens: Vec<Token>,
    pub items: Vec<Item>,
    pub children: Vec<Child>,
}

enum Frame {
    Other,
    Module,
    Item(usize),
}

impl Source {
    pub fn rust(file: String, text: &str) -> Self {
        let mut source = Self { file, tokens: tokens(text), items: Vec::new(), children: Vec::new() };
        source.find_items();
        source
    }

    fn find_items(&mut self) {
        let (mut frames, mut modules) = (Vec::new(), Vec::<String>::new());
        // Where the item that begins here has its first comment or attribute.
        let mut head = 0;
        let mut at = 0;
        while at < self.tokens.len() {
            let named = self.name_after(at);
            let token = &self.tokens[at];
            if let (true, Some((name_at, name))) = (token.is_word("fn"), &named) {
                let (is_test, wants_panic) = self.attributes(head..at);
                let end = self.signature_end(*name_at);
                let has_body = self.tokens.get(end).is_some_and(|token| token.is_mark("{"));
                if has_body {
                    frames.push(Frame::Item(self.items.len()));
                }
                self.items.push(Item {
                    name: name.clone(),
                    modules: modules.clone(),
                    is_test,
                    wants_panic,
                    span: head..end,
                });
                (at, head) = (end + 1, end + 1);
                continue;
            }
            if let (true, Some((name_at, name))) = (token.is_word("mod"), &named) {
                match self.tokens.get(name_at + 1) {
                    Some(next) if next.is_mark("{") => {
                        modules.push(name.clone());
                        frames.push(Frame::Module);
                        (at, head) = (name_at + 2, name_at + 2);
                        continue;
                    }
                    Some(next) if next.is_mark(";") => {
                        let path = self.path_attribute(head..at);
                        self.children.push(Child { modules: modules.clone(), name: name.clone(), path });
                    }
                    _ => {}
                }
            }
            if let (true, Some((_, name))) = (self.begins_a_constant(at), &named) {
                let span = head..self.statement_end(at);
                let (name, modules) = (name.clone(), modules.clone());
                self.items.push(Item { name, modules, is_test: false, wants_panic: false, span });
            }
            let token = &self.tokens[at];
            if token.is_mark("{") {
                frames.push(Frame::Other);
            } else if token.is_mark("}") {
                match frames.pop() {
                    Some(Frame::Item(item)) => self.items[item].span.end = at + 1,
                    Some(Frame::Module) => drop(modules.pop()),
                    Some(Frame::Other) | None => {}
                }
            }
            if [";", "{", "}"].iter().any(|mark| token.is_mark(mark)) {
                head = at + 1;
            }
            at += 1;
        }
    }

    /// The name of what the keyword at `at` begins, and where it is.
    fn name_after(&self, at: usize) -> Option<(usize, String)> {
        let next = (at + 1..self.tokens.len()).find(|&at| !self.tokens[at].is_word("mut"))?;
        let token = &self.tokens[next];
        (token.kind == Kind::Word && token.text != "fn").then(|| (next, token.text.clone()))
    }

    /// Not so `*const T` and `<const N: usize>`.
    fn begins_a_constant(&self, at: usize) -> bool {
        let keyword = self.tokens[at].is_word("const") || self.tokens[at].is_word("static");
        let begins = |before: &Token| {
            before.kind == Kind::Comment
                || before.is_word("pub")
                || [";", "{", "}", "]", ")"].iter().any(|mark| before.is_mark(mark))
        };
        keyword && at.checked_sub(1).is_none_or(|before| begins(&self.tokens[before]))
    }

    /// The brace that opens the body, or the semicolon instead of it.
    fn signature_end(&self, from: usize) -> usize {
        let mut depth = 0;
        (from..self.tokens.len())
            .find(|&at| {
                let token = &self.tokens[at];
                depth += depth_change(token, ["(", "["], [")", "]"]);
                depth == 0 && (token.is_mark("{") || token.is_mark(";"))
            })
            .unwrap_or(self.tokens.len())
    }

    fn statement_end(&self, from: usize) -> usize {
        let mut depth = 0;
        (from..self.tokens.len())
            .find(|&at| {
                let token = &self.tokens[at];
                depth +=
                    depth_change(token, ["(", "["], [")", "]"]) + depth_change(token, ["{"; 2], ["}"; 2]);
                depth < 0 || (depth == 0 && token.is_mark(";"))
            })
            .unwrap_or(self.tokens.len())
    }

    /// Whether the attributes make a function a test, and one that has to panic.
    fn attributes(&self, head: Range<usize>) -> (bool, bool) {
        let mut found = (false, false);
        for at in head.clone() {
            if !self.tokens[at].is_mark("#") {
                continue;
            }
            // The path of the attribute: `tokio::test`, `should_panic`.
            let words = self.tokens[at + 1..head.end]
                .iter()
                .skip_while(|token| token.is_mark("["))
                .take_while(|token| token.kind == Kind::Word || token.is_mark(":"));
            match words.filter(|token| token.kind == Kind::Word).last().map(|token| token.text.as_str()) {
                Some("test") => found.0 = true,
                Some("should_panic") => found.1 = true,
                _ => {}
            }
        }
        found
    }

    fn path_attribute(&self, head: Range<usize>) -> Option<String> {
        let tokens = &self.tokens[head];
        let path = tokens.windows(4).find(|four| {
            four[0].is_mark("[")
                && four[1].is_word("path")
                && four[2].is_mark("=")
                && four[3].kind == Kind::Text
        })?;
        Some(path[3].text.clone())
    }

    /// The item that a comment speaks of: the test around it, or else the innermost item that it is in or
    /// directly above.
    pub fn item_of(&self, comment: usize) -> Option<usize> {
        let inside = |item: &Item| item.span.contains(&comment) && comment > self.keyword(item);
        // A blank line makes it somebody else's.
        let directly_above = |item: &Item| {
            let head = comment..=self.keyword(item);
            item.span.contains(&comment)
                && self.tokens[head].windows(2).all(|two| two[1].line <= two[0].last_line() + 1)
        };
        let items = || self.items.iter().enumerate();
        let innermost = |found: &(usize, &Item)| found.1.span.len();
        let test = items().filter(|(_, item)| item.is_test && inside(item)).min_by_key(innermost);
        let any = || items().filter(|(_, item)| inside(item) || directly_above(item)).min_by_key(innermost);
        test.or_else(any).map(|(at, _)| at)
    }

    /// Where the keyword of an item is; a C function without one begins at once.
    fn keyword(&self, item: &Item) -> usize {
        let keyword =
            |at: &usize| ["fn", "const", "static"].iter().any(|word| self.tokens[*at].is_word(word));
        let mut span = item.span.clone();
        span.find(keyword).unwrap_or(item.span.start)
    }

    pub fn words<'a>(&'a self, item: &Item) -> BTreeSet<&'a str> {
        let words = self.tokens[item.span.clone()].iter().filter(|token| token.kind == Kind::Word);
        words.map(|token| token.text.as_str()).collect()
    }

    /// Whether an item asserts something by itself or in what it names of its own file. `is_assertion` is given a
    /// word and what follows it.
    pub fn asserts(&self, item: usize, is_assertion: fn(&str, &str) -> bool) -> bool {
        let mut seen = BTreeSet::from([item]);
        let mut open = vec![item];
        while let Some(at) = open.pop() {
            let item = &self.items[at];
            let mut pairs = self.tokens[item.span.clone()].windows(2).filter(|two| two[0].kind == Kind::Word);
            if item.wants_panic || pairs.any(|two| is_assertion(&two[0].text, &two[1].text)) {
                return true;
            }
            let words = self.words(item);
            let own = (0..self.items.len()).filter(|&other| words.contains(self.items[other].name.as_str()));
            open.extend(own.filter(|&other| seen.insert(other)));
        }
        false
    }
}

fn depth_change(token: &Token, open: [&str; 2], close: [&str; 2]) -> i32 {
    let any = |marks: [&str; 2]| i32::from(marks.iter().any(|mark| token.is_mark(mark)));
    any(open) - any(close)
}
