//! The checker against an explicit wait-for graph, which is slow and uses no clocks.
//!
//! A node is the part of a command in one scope, or a barrier. A part has an edge to every later barrier whose
//! SyncBefore has its scope. A barrier has an edge to every later part whose scope is in its SyncAfter, and to every
//! later barrier that waits for a scope that it blocks. Two accesses are ordered if there is a path from each part of
//! the first to some part of the second; to each part of it, if the second has an umbrella scope.

use proptest::prelude::*;

use super::*;

const SCOPES: [S; 4] = [S::COPY, S::COMPUTE_SHADING, S::VERTEX_SHADING, S::PIXEL_SHADING];
const ACCESSES: [A; 4] = [A::COPY_DEST, A::UNORDERED_ACCESS, A::COPY_SOURCE, A::SHADER_RESOURCE];

fn scopes() -> impl Strategy<Value = S> {
    let single = prop::sample::select(SCOPES.to_vec());
    prop_oneof![
        4 => single.clone(),
        1 => (single.clone(), single).prop_map(|(a, b)| a | b),
        1 => Just(S::ALL_SHADING),
        1 => Just(S::ALL),
    ]
}

/// The scopes of an access, as commands have them.
fn part() -> impl Strategy<Value = S> {
    prop_oneof![
        6 => prop::sample::select(SCOPES.to_vec()),
        2 => Just(S::VERTEX_SHADING | S::PIXEL_SHADING),
        1 => Just(S::ALL_SHADING),
    ]
}

fn types() -> impl Strategy<Value = A> {
    let single = prop::sample::select(ACCESSES.to_vec());
    prop_oneof![
        4 => single.clone(),
        2 => (single.clone(), single).prop_map(|(a, b)| a | b),
        2 => Just(A::COMMON),
        1 => Just(A::NO_ACCESS),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    (0..3_u64, prop::sample::select(ACCESSES.to_vec()), part()).prop_map(|(number, access, scopes)| Access {
        writes: access.writes(),
        ..read(number, access, scopes)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let one = (scopes(), scopes(), types(), types(), 0..3_u64);
    prop_oneof![
        3 => prop::collection::vec(access(), 1..4).prop_map(|mut accesses| {
            // A command overwrites its own earlier accesses; the graph does not know that.
            accesses.sort_by_key(|access| access.range);
            accesses.dedup_by_key(|access| access.range);
            Step::Command(accesses)
        }),
        3 => one.prop_map(|(before, after, first, then, number)| {
            Step::Barrier(barrier(before, after, first, then), Some(buffer(number)))
        }),
        1 => (scopes(), scopes(), types(), types()).prop_map(|(before, after, first, then)| {
            Step::Barrier(barrier(before, after, first, then), None)
        }),
    ]
}

struct Graph<'a> {
    steps: &'a [Step],
}

impl Graph<'_> {
    fn barrier(&self, at: usize) -> Option<&Barrier> {
        match &self.steps[at] {
            Step::Barrier(barrier, _) => Some(barrier),
            Step::Command(_) | Step::Discard(..) => None,
        }
    }

    /// Barriers before `before` that later work in this scope waits for, directly or not. Walks backwards.
    fn behind(&self, scope: S, before: usize) -> Vec<usize> {
        let mut reached = vec![false; before];
        let mut open = vec![(scope, before)];
        while let Some((scope, before)) = open.pop() {
            for (at, reached) in reached.iter_mut().enumerate().take(before) {
                let Some(barrier) = self.barrier(at) else { continue };
                if !*reached && barrier.sync_after.expanded().intersects(scope) {
                    *reached = true;
                    open.push((barrier.sync_before.expanded(), at));
                }
            }
        }
        (0..before).filter(|at| reached[*at]).collect()
    }

    fn is_ordered(&self, (first, earlier): (usize, S), (then, later): (usize, S)) -> bool {
        let parts = |scopes: S| scopes.expanded().iter().collect::<Vec<_>>();
        let is_path = |s: S, t: S| {
            let waits = |at: &usize| {
                *at > first && self.barrier(*at).is_some_and(|b| b.sync_before.expanded().contains(s))
            };
            self.behind(t, then).iter().any(waits)
        };
        parts(earlier).into_iter().all(|s| {
            let mut blocked = parts(later).into_iter().map(|t| is_path(s, t));
            if later == S::ALL_SHADING { blocked.all(|path| path) } else { blocked.any(|path| path) }
        })
    }

    /// Whether barriers after the write wait for it and make it visible: one of its type, or a chain of them, each
    /// from a type to which one before it has shown the write.
    fn is_visible(&self, (first, write): (usize, &Access), (then, later): (usize, &Access)) -> bool {
        let all = |access: A| if access == A::COMMON { A::all() } else { access - A::NO_ACCESS };
        let mut seen = write.access;
        for at in first + 1..then {
            let Step::Barrier(barrier, range) = &self.steps[at] else { continue };
            let waits = |s: S| {
                (barrier.sync_before.expanded().contains(s))
                    || self.waits_through(barrier.sync_before.expanded(), at, first, s)
            };
            if range.is_none_or(|range| range == write.range)
                && all(barrier.access_before).intersects(seen)
                && write.scopes.expanded().iter().all(waits)
            {
                seen |= all(barrier.access_after);
            }
        }
        seen.contains(later.access)
    }

    /// Whether a barrier on these scopes waits for a part of an earlier step through other barriers.
    fn waits_through(&self, scopes: S, before: usize, first: usize, s: S) -> bool {
        scopes.iter().any(|scope| {
            self.behind(scope, before).iter().any(|at| {
                *at > first && self.barrier(*at).is_some_and(|b| b.sync_before.expanded().contains(s))
            })
        })
    }

    fn conflicts(&self) -> Vec<(u32, u32, Conflict)> {
        let mut found = Vec::new();
        for then in 0..self.steps.len() {
            let Step::Command(accesses) = &self.steps[then] else { continue };
            for later in accesses {
                let last = self.last_accesses(then, later).into_iter();
                for (first, earlier) in last.filter(|(_, earlier)| !is_in_order(earlier, later)) {
                    let conflict = if !self.is_ordered((first, earlier.scopes), (then, later.scopes)) {
                        Conflict::Unordered
                    } else if earlier.writes && !self.is_visible((first, &earlier), (then, later)) {
                        Conflict::NotVisible
                    } else {
                        continue;
                    };
                    // One report for two commands: the first that is found.
                    if !found.iter().any(|(a, b, _)| (*a, *b) == (first as u32, then as u32)) {
                        found.push((first as u32, then as u32, conflict));
                    }
                }
            }
        }
        found.sort_unstable_by_key(|pair| format!("{pair:?}"));
        found
    }

    /// Accesses that a later access may race with: the last write of its buffer, and for a write the reads since.
    fn last_accesses(&self, then: usize, later: &Access) -> Vec<(usize, Access)> {
        let mut last: Vec<(usize, Access)> = Vec::new();
        for first in 0..then {
            let Step::Command(accesses) = &self.steps[first] else { continue };
            for earlier in accesses.iter().filter(|earlier| earlier.range == later.range) {
                if earlier.writes {
                    last.clear();
                } else {
                    last.retain(|(_, read)| {
                        read.writes || (read.scopes, read.access) != (earlier.scopes, earlier.access)
                    });
                }
                last.push((first, *earlier));
            }
        }
        last.retain(|(_, earlier)| earlier.writes || later.writes);
        last
    }
}

/// Whether an engine makes both in the order of the list: copies of this queue.
fn is_in_order(earlier: &Access, later: &Access) -> bool {
    (earlier.access, later.access) == (A::COPY_DEST, A::COPY_DEST)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_finds_what_the_graph_finds_and_nothing_else(steps in prop::collection::vec(step(), 1..14)) {
        let mut checker = Checker::default();
        submission(&mut checker, 1, &steps);
        let graph = Graph { steps: &steps };
        prop_assert_eq!(pairs(&reports(&mut checker)), graph.conflicts(), "\n{}", lines(&steps));
    }
}
