//! The tree of sites, limited to a number of lines: the program's own sites first, then the largest of the rest.

use std::fmt::Write as _;

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_explain::Site;

use crate::text::{DIM, MARGIN};
use crate::wrap::{clip, clip_place};

/// Width of the sizes.
const SIZE_COLUMNS: usize = 12;

/// Draws the tree in at most `lines` lines.
pub(crate) fn tree(out: &mut String, sites: &[Site], columns: usize, lines: usize) {
    let mut ranks = Vec::new();
    collect(sites, true, &mut ranks);
    // A parent is at least as large as its children, and only own sites are above an own site. So if a site is
    // selected, its parents are too. Top-level sites rank like own ones, because together they are the total.
    ranks.sort_compact_by(|one, two| two.cmp(one));
    let least = ranks.get(lines.saturating_sub(1)).or(ranks.last()).copied();
    let mut drawing = Drawing { out, columns, left: lines, least: least.unwrap_or((false, Bytes::ZERO)) };
    drawing.level(sites, "", true);
}

/// The rank that decides which sites are shown.
fn rank(site: &Site, is_top: bool) -> (bool, Bytes) {
    (site.is_own || is_top, site.bytes)
}

fn collect(sites: &[Site], is_top: bool, ranks: &mut Vec<(bool, Bytes)>) {
    for site in sites {
        ranks.push(rank(site, is_top));
        collect(&site.callees, false, ranks);
    }
}

struct Drawing<'out> {
    out: &'out mut String,
    columns: usize,
    left: usize,
    least: (bool, Bytes),
}

impl Drawing<'_> {
    fn level(&mut self, sites: &[Site], indent: &str, is_top: bool) {
        let shown: Vec<&Site> = sites.iter().filter(|site| rank(site, is_top) >= self.least).collect();
        for (index, site) in shown.iter().enumerate() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let is_last = index + 1 == shown.len();
            let branch = if is_top {
                ""
            } else if is_last {
                "└ "
            } else {
                "├ "
            };
            self.line(site, &format!("{indent}{branch}"));
            let below = if is_top {
                ""
            } else if is_last {
                "  "
            } else {
                "│ "
            };
            self.level(&site.callees, &format!("{indent}{below}"), false);
        }
    }

    fn line(&mut self, site: &Site, lead: &str) {
        let room = self.columns.saturating_sub(SIZE_COLUMNS + 4 + lead.chars().count());
        let caller = site.caller.as_ref().map_or(String::new(), |caller| format!(", called by {caller}"));
        let place = clip_place(&format!("{}{caller}", site.place), room);
        let rest = room.saturating_sub(place.chars().count() + 2);
        let through = match &site.through {
            Some(through) if rest > 12 => format!("  {DIM}{}{DIM:#}", clip(&format!("via {through}"), rest)),
            _ => String::new(),
        };
        let bytes = site.bytes.to_string();
        let _ = writeln!(self.out, "{MARGIN}{bytes:>SIZE_COLUMNS$}  {DIM}{lead}{DIM:#}{place}{through}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::plain;

    fn site(place: &str, is_own: bool, mib: u64, callees: Vec<Site>) -> Site {
        Site {
            place: place.to_owned(),
            is_own,
            caller: None,
            through: None,
            bytes: Bytes::mib(mib),
            blocks: 1,
            callees,
        }
    }

    #[test]
    fn own_places_are_kept_when_lines_are_few() {
        let sites = [site(
            "train",
            true,
            90,
            vec![
                site("forward", true, 70, vec![site("linear", false, 60, Vec::new())]),
                site("optimizer", true, 20, Vec::new()),
            ],
        )];
        let mut out = String::new();
        tree(&mut out, &sites, 80, 3);
        assert_eq!(
            plain(&out),
            "     90.00 MiB  train\n     70.00 MiB  ├ forward\n     20.00 MiB  └ optimizer\n"
        );
    }
}
