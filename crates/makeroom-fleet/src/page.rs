//! The answer as a page: one file without scripts. Names of recordings are escaped, and the page's policy forbids scripts.

use makeroom_report::escape_xml;

use crate::answer::FleetReport;
use crate::text::{Table, tables, verdict, waste};

const HEAD: &str = "<!doctype html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>makeroom fleet</title>
<style>
:root { color-scheme: light dark; --background: #fafaf9; --ink: #1d1f23; --faint: #5f646d; --line: #d9dbdf;
  --accent: #1f5fbf; --failure: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --background: #15171a; --ink: #e3e5e9; --faint: #9aa0aa;
  --line: #33373e; --accent: #7fb2f5; --failure: #ff8a7e; } }
body { margin: 0 auto; max-width: 1100px; padding: 12px 16px; background: var(--background); color: var(--ink);
  font: 14px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 18px; } h1.failed { color: var(--failure); } h2 { font-size: 15px; margin: 20px 0 4px; }
.quiet, th { color: var(--faint); }
table { border-collapse: collapse; width: 100%; } th { font-weight: normal; }
th, td { text-align: right; padding: 2px 8px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } td.bar { color: var(--accent); text-align: left; }
</style>
</head>
<body>
";

/// The page.
pub(crate) fn page(report: &FleetReport) -> String {
    let mut out = HEAD.to_owned();
    let class = if report.failed_jobs > 0 { " class=\"failed\"" } else { "" };
    out.push_str(&format!("<h1{class}>{}</h1>\n", escape_xml(&verdict(report))));
    let period = match (&report.from, &report.to) {
        (Some(from), Some(to)) => format!(", {from} to {to}"),
        _ => String::new(),
    };
    out.push_str(&format!("<p class=\"quiet\">{} recordings{period}</p>\n", report.recordings));
    if let Some(waste) = waste(report) {
        out.push_str(&format!("<p>{}</p>\n", escape_xml(&waste)));
    }
    for table in tables(report) {
        draw(&mut out, &table);
    }
    if report.unreadable > 0 {
        out.push_str(&format!(
            "<p class=\"quiet\">Objects that could not be read: {}</p>\n",
            report.unreadable
        ));
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn draw(out: &mut String, table: &Table) {
    out.push_str(&format!("<h2>{}</h2>\n<table>\n<tr>", escape_xml(table.title)));
    for heading in &table.headings {
        out.push_str(&format!("<th scope=\"col\">{}</th>", escape_xml(heading)));
    }
    out.push_str("</tr>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            let class = if cell.starts_with('█') { " class=\"bar\"" } else { "" };
            out.push_str(&format!("<td{class}>{}</td>", escape_xml(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::answer;
    use crate::rows::Row;

    #[test]
    fn names_of_recordings_do_not_become_html() {
        let row = Row {
            job: "<script>alert(1)</script>".to_owned(),
            model: Some("\"><img src=x>".to_owned()),
            ran_out: true,
            cause: "leak".to_owned(),
            ..Row::default()
        };
        let page = page(&answer(&[row]));
        assert!(!page.contains("<script>") && !page.contains("<img"), "{page}");
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{page}");
        assert!(page.contains("<h1 class=\"failed\">1 of 1 job ran out of memory."), "{page}");
    }
}
