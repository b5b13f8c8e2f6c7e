//! Groups of ranks that hold the same: pipeline stages, expert groups, or all ranks of a data-parallel job.
//!
//! Nothing names the groups; they follow from live memory by line of code, in two steps. Ranks whose large lines are
//! the same form a family, and within a family, ranks whose bytes by line are similar form a group. A few ranks that are
//! similar to no group are members of the nearest one, and its outliers: the median of a group is what a rank of it
//! should hold.
//!
//! Similarity of a and b: Σ min(aᵢ, bᵢ) ÷ Σ max(aᵢ, bᵢ) over lines. Clusters are found by comparing each rank, in the
//! order of ranks, with the first member of each cluster; the number of clusters is bounded, so the time is linear.

use crate::report::LineDifference;
use makeroom_core::SortCompact as _;
use makeroom_ordered::{OrderedMap, OrderedSet};

/// Ranks this similar are of one group.
const SIMILAR: f64 = 0.85;
/// Families share this part of their large lines.
const SAME_LINES: f64 = 0.6;
/// A line is large if it holds this share of a rank's memory.
const LARGE_LINE: f64 = 0.03;
/// A cluster is a group of its own if it has this share of the family; fewer ranks are outliers.
const LEAST_SHARE: f64 = 1.0 / 6.0;
/// Clusters that are compared with; further ranks join the nearest.
const MOST_CLUSTERS: usize = 128;
/// A rank holds more than its group from this share of the group's median on.
const LEAST_EXCESS: f64 = 0.1;
/// The same in a group of two: twice as much as the other.
const LEAST_EXCESS_OF_TWO: f64 = 1.0;
/// Differences below this are noise.
const LEAST_EXCESS_BYTES: u64 = 16 << 20;
/// Lines that explain a difference.
const MOST_LINES: usize = 5;
/// A line explains a difference if it makes up this share of it.
const LINE_SHARE: f64 = 0.2;

/// Live memory of a rank by line.
pub(super) type Lines<'rows> = OrderedMap<&'rows str, u64>;

/// A rank in the order of ranks, with what it holds.
#[derive(Debug)]
pub(super) struct Member<'rows> {
    /// Index of its process.
    pub(super) process: usize,
    pub(super) lines: Lines<'rows>,
}

impl Member<'_> {
    pub(super) fn bytes(&self) -> u64 {
        self.lines.values().copied().fold(0, u64::saturating_add)
    }
}

/// A group.
#[derive(Debug)]
pub(super) struct Cluster<'rows> {
    pub(super) members: Vec<Member<'rows>>,
    /// Median by line.
    pub(super) typical: Lines<'rows>,
    /// Median of the members' totals.
    pub(super) typical_bytes: u64,
}

impl<'rows> Cluster<'rows> {
    fn new(mut members: Vec<Member<'rows>>) -> Self {
        members.sort_compact_by_key(|member| member.process);
        let places: OrderedSet<&str> =
            members.iter().flat_map(|member| member.lines.keys().copied()).collect();
        let of = |place: &str| {
            members.iter().map(|member| member.lines.get(place).copied().unwrap_or(0)).collect()
        };
        let typical = places.into_iter().map(|place| (place, median(of(place)))).collect();
        let typical_bytes = median(members.iter().map(Member::bytes).collect());
        Self { members, typical, typical_bytes }
    }

    /// How much more than the median a member holds, if that is more than noise.
    pub(super) fn excess(&self, member: &Member<'_>) -> Option<u64> {
        let excess = member.bytes().checked_sub(self.typical_bytes)?;
        // A group of two has no majority that shows what is typical: only a large difference counts there.
        let least = if self.members.len() > 2 { LEAST_EXCESS } else { LEAST_EXCESS_OF_TWO };
        let is_more = excess as f64 >= self.typical_bytes as f64 * least && excess >= LEAST_EXCESS_BYTES;
        is_more.then_some(excess)
    }

    /// The lines in which a member holds more than the others.
    pub(super) fn differences(&self, member: &Member<'_>) -> Vec<LineDifference> {
        differences(&member.lines, &self.typical)
    }
}

/// The lines that hold more here than there, largest difference first.
pub(super) fn differences(here: &Lines<'_>, there: &Lines<'_>) -> Vec<LineDifference> {
    let more = |place: &str, bytes: u64| bytes.saturating_sub(there.get(place).copied().unwrap_or(0));
    let total: u64 = here.iter().map(|(place, &bytes)| more(place, bytes)).fold(0, u64::saturating_add);
    let mut found: Vec<LineDifference> = here
        .iter()
        .filter(|&(place, &bytes)| more(place, bytes) as f64 > total as f64 * LINE_SHARE)
        .map(|(&place, &bytes)| LineDifference {
            place: place.to_owned(),
            bytes,
            typical_bytes: there.get(place).copied().unwrap_or(0),
        })
        .collect();
    found.sort_compact_by_key(|line| std::cmp::Reverse(line.bytes.saturating_sub(line.typical_bytes)));
    found.truncate(MOST_LINES);
    found
}

/// The groups, the largest first.
pub(super) fn find(members: Vec<Member<'_>>) -> Vec<Cluster<'_>> {
    // Of two ranks, one that holds much more is compared with the other, whatever their lines are.
    if members.len() == 2 {
        let both = Cluster::new(members);
        if both.members.iter().any(|member| both.excess(member).is_some()) {
            return vec![both];
        }
        return find_families(both.members);
    }
    find_families(members)
}

fn find_families(members: Vec<Member<'_>>) -> Vec<Cluster<'_>> {
    let is_family = |one: &Member<'_>, two: &Member<'_>| shared_lines(&one.lines, &two.lines);
    let mut groups: Vec<Cluster<'_>> =
        clusters(members, SAME_LINES, is_family).into_iter().flat_map(split_family).collect();
    let first = |group: &Cluster<'_>| group.members.first().map_or(0, |member| member.process);
    groups.sort_compact_by_key(|group| (std::cmp::Reverse(group.members.len()), first(group)));
    groups
}

/// The groups of ranks with the same lines.
fn split_family(family: Vec<Member<'_>>) -> Vec<Cluster<'_>> {
    let size = family.len();
    let found = clusters(family, SIMILAR, |one, two| similarity(&one.lines, &two.lines));
    let least = ((size as f64 * LEAST_SHARE).ceil() as usize).max(2);
    let covered = |least: usize| found.iter().map(Vec::len).filter(|&length| length >= least).sum::<usize>();
    let least = match size {
        // Many small stages, each of at least two ranks.
        _ if covered(least) * 2 < size && covered(2) * 5 >= size * 4 => 2,
        _ => least,
    };
    let (mut groups, rest): (Vec<Vec<_>>, Vec<Vec<_>>) =
        found.into_iter().partition(|cluster| cluster.len() >= least);
    if groups.is_empty() {
        return vec![Cluster::new(rest.into_iter().flatten().collect())];
    }
    let typical: Vec<Lines<'_>> = groups.iter().map(|group| group[0].lines.clone()).collect();
    for member in rest.into_iter().flatten() {
        let nearest =
            typical.iter().enumerate().map(|(index, lines)| (similarity(lines, &member.lines), index));
        let nearest = nearest.max_by(|one, two| one.0.total_cmp(&two.0).then(two.1.cmp(&one.1)));
        if let Some((_, index)) = nearest {
            groups[index].push(member);
        }
    }
    groups.into_iter().map(Cluster::new).collect()
}

/// Puts each member into the cluster whose first member it is most similar to, or into a new one.
fn clusters<'rows>(
    members: Vec<Member<'rows>>,
    least: f64,
    similarity: impl Fn(&Member<'rows>, &Member<'rows>) -> f64,
) -> Vec<Vec<Member<'rows>>> {
    let mut clusters: Vec<Vec<Member<'rows>>> = Vec::new();
    for member in members {
        let nearest =
            clusters.iter().enumerate().map(|(index, cluster)| (similarity(&cluster[0], &member), index));
        let nearest = nearest.max_by(|one, two| one.0.total_cmp(&two.0).then(two.1.cmp(&one.1)));
        match nearest {
            Some((found, index)) if found >= least || clusters.len() >= MOST_CLUSTERS => {
                clusters[index].push(member);
            }
            _ => clusters.push(vec![member]),
        }
    }
    clusters
}

fn similarity(one: &Lines<'_>, two: &Lines<'_>) -> f64 {
    let (mut least, mut most) = (0_u64, 0_u64);
    for (place, &bytes) in one {
        let other = two.get(place).copied().unwrap_or(0);
        least = least.saturating_add(bytes.min(other));
        most = most.saturating_add(bytes.max(other));
    }
    let only = two.iter().filter(|(place, _)| !one.contains_key(*place));
    let most = only.fold(most, |most, (_, &bytes)| most.saturating_add(bytes));
    if most == 0 { 1.0 } else { least as f64 / most as f64 }
}

/// The share of the large lines of the rank that holds less that the other has too. What the other holds at further lines
/// is its excess, and not a reason to compare it with nobody.
fn shared_lines(one: &Lines<'_>, two: &Lines<'_>) -> f64 {
    let total = |lines: &Lines<'_>| lines.values().copied().fold(0, u64::saturating_add);
    let (less, more) = if total(one) <= total(two) { (one, two) } else { (two, one) };
    let least = total(less) as f64 * LARGE_LINE;
    let large = less.iter().filter(|&(_, &bytes)| bytes > 0 && bytes as f64 >= least);
    let (mut both, mut any) = (0_u32, 0_u32);
    for (place, _) in large {
        any += 1;
        both += u32::from(more.get(place).is_some_and(|&bytes| bytes > 0));
    }
    if any == 0 { 1.0 } else { f64::from(both) / f64::from(any) }
}

pub(super) fn median(mut values: Vec<u64>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn members(ranks: &[&[(&'static str, u64)]]) -> Vec<Member<'static>> {
        let member = |(process, lines): (usize, &&[(&'static str, u64)])| Member {
            process,
            lines: lines.iter().map(|&(place, tenths)| (place, tenths * GIB / 10)).collect(),
        };
        ranks.iter().enumerate().map(member).collect()
    }

    fn processes(groups: &[Cluster<'_>]) -> Vec<Vec<usize>> {
        groups.iter().map(|group| group.members.iter().map(|member| member.process).collect()).collect()
    }

    #[test]
    fn one_heavy_rank_is_an_outlier_of_the_only_group() {
        let usual: &[_] = &[("weights", 10), ("activations", 20)];
        let heavy: &[_] = &[("weights", 10), ("activations", 60)];
        let groups = find(members(&[usual, usual, usual, heavy, usual]));
        assert_eq!(processes(&groups), [[0, 1, 2, 3, 4]]);
        let outlier = &groups[0].members[3];
        assert_eq!(groups[0].excess(outlier), Some(4 * GIB));
        let lines = groups[0].differences(outlier);
        assert_eq!(
            (lines.len(), lines[0].place.as_str(), lines[0].typical_bytes),
            (1, "activations", 2 * GIB)
        );
        assert_eq!(groups[0].excess(&groups[0].members[0]), None);
    }

    #[test]
    fn pipeline_stages_are_found_with_other_lines_and_with_the_same() {
        let first: &[_] = &[("embedding", 20), ("layers", 30)];
        let last: &[_] = &[("layers", 30), ("head", 20), ("logits", 20)];
        let groups = find(members(&[first, first, first, last, last, last]));
        assert_eq!(processes(&groups), [[0, 1, 2], [3, 4, 5]]);
        let (more, less): (&[_], &[_]) = (&[("layers", 30), ("saved", 40)], &[("layers", 30), ("saved", 20)]);
        let groups = find(members(&[more, more, less, less]));
        assert_eq!(processes(&groups), [[0, 1], [2, 3]]);
    }

    #[test]
    fn uneven_experts_are_outliers_by_line() {
        let shared = ("shared", 30);
        let lines: Vec<[(&str, u64); 2]> =
            [10, 11, 10, 9, 10, 28, 10, 12].map(|tenths| [shared, ("expert", tenths)]).to_vec();
        let ranks: Vec<&[(&str, u64)]> = lines.iter().map(|lines| &lines[..]).collect();
        let groups = find(members(&ranks));
        assert_eq!(groups.len(), 1);
        let heavy: Vec<usize> = groups[0]
            .members
            .iter()
            .filter(|member| groups[0].excess(member).is_some())
            .map(|member| member.process)
            .collect();
        assert_eq!(heavy, [5]);
    }

    #[test]
    fn many_small_stages_stay_apart() {
        let stages: Vec<[(&str, u64); 1]> = (0..16).map(|rank| [("layers", 10 * (1 + rank / 2))]).collect();
        let ranks: Vec<&[(&str, u64)]> = stages.iter().map(|lines| &lines[..]).collect();
        assert!(find(members(&ranks)).len() >= 5, "{:?}", processes(&find(members(&ranks))));
    }
}
