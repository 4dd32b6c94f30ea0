//! Strongly connected components of a graph, by Tarjan's algorithm.

use std::collections::BTreeSet;

/// Components of two nodes or more, each in the order of its nodes. `arrows[a]` has the nodes that `a` leads to.
pub fn circles(arrows: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let mut search =
        Search { arrows, order: vec![None; arrows.len()], low: vec![0; arrows.len()], ..Search::default() };
    for node in 0..arrows.len() {
        if search.order[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

#[derive(Default)]
struct Search<'a> {
    arrows: &'a [BTreeSet<usize>],
    /// Number of the visit that reached each node first.
    order: Vec<Option<usize>>,
    /// Lowest number that each node reaches within the stack.
    low: Vec<usize>,
    visits: usize,
    /// Nodes whose component is not complete.
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Recursion is as deep as the longest chain of imports, a few hundred at most.
    fn visit(&mut self, node: usize) {
        let order = self.visits;
        self.visits += 1;
        self.order[node] = Some(order);
        self.low[node] = order;
        self.stack.push(node);
        for next in &self.arrows[node] {
            match self.order[*next] {
                None => {
                    self.visit(*next);
                    self.low[node] = self.low[node].min(self.low[*next]);
                }
                Some(seen) if self.stack.contains(next) => self.low[node] = self.low[node].min(seen),
                Some(_) => {}
            }
        }
        if self.low[node] == order {
            let first = self.stack.iter().position(|other| *other == node).unwrap_or_default();
            let mut component = self.stack.split_off(first);
            component.sort_unstable();
            if component.len() > 1 {
                self.found.push(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nodes_that_reach_each_other_are_a_circle() {
        let arrows = [&[1, 4][..], &[2], &[0, 3], &[4], &[], &[6], &[5, 0]];
        let arrows: Vec<BTreeSet<usize>> = arrows.iter().map(|to| to.iter().copied().collect()).collect();
        let mut found = circles(&arrows);
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![5, 6]]);
    }
}
