//! Who uses whom within a target, by name: which tests a helper serves, which programs a test runs.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Item, Source};
use super::targets::Target;
use super::tokens::Kind;

/// Module of the target, item of its source.
type Node = (usize, usize);

pub struct Graph<'a> {
    target: &'a Target,
    sources: &'a [Source],
    by_name: BTreeMap<&'a str, Vec<Node>>,
}

impl<'a> Graph<'a> {
    pub fn new(target: &'a Target, sources: &'a [Source]) -> Self {
        let mut by_name = BTreeMap::<&str, Vec<Node>>::new();
        for (at, module) in target.modules.iter().enumerate() {
            for (item, found) in sources[module.source].items.iter().enumerate() {
                by_name.entry(&found.name).or_default().push((at, item));
            }
        }
        Self { target, sources, by_name }
    }

    fn source(&self, node: Node) -> &'a Source {
        &self.sources[self.target.modules[node.0].source]
    }

    pub fn item(&self, node: Node) -> &'a Item {
        &self.source(node).items[node.1]
    }

    pub fn tests(&self) -> impl Iterator<Item = Node> {
        self.by_name.values().flatten().copied().filter(|&node| self.item(node).is_test)
    }

    /// The name under which the test is run.
    pub fn test_path(&self, node: Node) -> String {
        let item = self.item(node);
        let path = &self.target.modules[node.0].path;
        [path, &item.modules, std::slice::from_ref(&item.name)].concat().join("::")
    }

    /// What the word at a token of a node's source may mean: an item of the same file first, then of the module
    /// that is named before it, then of any.
    fn meant(&self, user: Node, token: usize) -> Vec<Node> {
        let tokens = &self.source(user).tokens;
        let Some(all) = self.by_name.get(tokens[token].text.as_str()) else { return Vec::new() };
        let own = |node: &&Node| node.0 == user.0;
        let module = token
            .checked_sub(3)
            .filter(|&at| tokens[at + 1].is_mark(":") && tokens[at + 2].is_mark(":"))
            .map(|at| &tokens[at].text);
        let of_module = |node: &&Node| {
            let names = self.target.modules[node.0].path.iter().chain(&self.item(**node).modules);
            module.is_some_and(|module| names.last() == Some(module))
        };
        let all = all.iter();
        [all.clone().filter(of_module).copied().collect(), all.clone().filter(own).copied().collect()]
            .into_iter()
            .find(|found: &Vec<Node>| !found.is_empty())
            .unwrap_or_else(|| all.copied().collect())
    }

    fn uses(&self, node: Node) -> BTreeSet<Node> {
        let span = self.item(node).span.clone();
        let tokens = &self.source(node).tokens;
        span.filter(|&at| tokens[at].kind == Kind::Word).flat_map(|at| self.meant(node, at)).collect()
    }

    /// The node and all that it uses.
    pub fn reached(&self, from: Node) -> BTreeSet<Node> {
        let mut reached = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            // Another test's body is not run by being named.
            let used = self.uses(node).into_iter().filter(|&used| !self.item(used).is_test);
            open.extend(used.filter(|&used| reached.insert(used)));
        }
        reached
    }

    /// Whether what a test uses has the text.
    pub fn has_text(&self, reached: &BTreeSet<Node>, wanted: impl Fn(&str) -> bool) -> bool {
        reached.iter().any(|&node| {
            let mut tokens = self.source(node).tokens[self.item(node).span.clone()].iter();
            tokens.any(|token| token.kind == Kind::Text && wanted(&token.text))
        })
    }

    /// Whether the tests are made by a program instead of by `#[test]`.
    pub fn makes_its_tests(&self) -> bool {
        let mut modules = self.target.modules.iter();
        modules.any(|module| {
            self.sources[module.source].tokens.iter().any(|token| token.is_word("libtest_mimic"))
        })
    }

    /// Names of made tests: where what makes them names something `wanted` (given all that this uses) or has a
    /// text `wanted_text`, the text before it in the statement, as in `("a guest boots", cases::boots)`.
    pub fn trials(
        &self,
        wanted: impl Fn(&BTreeSet<Node>) -> bool,
        wanted_text: impl Fn(&str) -> bool,
    ) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let makes = |node: &&Node| self.words(**node).contains("Trial");
        for &node in self.by_name.values().flatten().filter(makes) {
            let tokens = &self.source(node).tokens;
            for at in self.item(node).span.clone() {
                let found = match tokens[at].kind {
                    Kind::Word => {
                        self.meant(node, at).iter().any(|&used| used != node && wanted(&self.reached(used)))
                    }
                    Kind::Text => wanted_text(&tokens[at].text),
                    Kind::Comment | Kind::Mark | Kind::Other => false,
                };
                let before = tokens[..at].iter().rev().take_while(|token| !token.is_mark(";"));
                let text = before.filter(|token| token.kind == Kind::Text).map(|token| &token.text).next();
                names.extend(text.filter(|_| found).cloned());
            }
        }
        names
    }

    fn words(&self, node: Node) -> BTreeSet<&'a str> {
        self.source(node).words(self.item(node))
    }
}
