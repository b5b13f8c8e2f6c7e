"""Checks the built site: every link to a page, file or anchor of the site must have a target.

    site/links.py SITE

Also reads the pages that MkDocs does not check: those of rustdoc and of web/. Addresses of other servers are not checked, and
neither are anchors in source code, which rustdoc's script finds.
"""
import html.parser
import pathlib
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The links and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        self.links |= {values[name] for name in ("href", "src") if values.get(name)}


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    broken, checked = [], 0
    for path, page in pages.items():
        # The page of a missing address is shown in any folder, so its links start at the root of the server.
        if path == root / "404.html":
            continue
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            # rustdoc loads the implementations of a trait from a file that exists only if other crates have any.
            if parts.scheme or parts.netloc or "/trait.impl/" in parts.path:
                continue
            checked += 1
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            # Browsers look for both; rustdoc's anchors contain percent signs.
            anchors = {parts.fragment, urllib.parse.unquote(parts.fragment)}
            if not target.exists() or not target.is_relative_to(root):
                broken.append(f"{path.relative_to(root)}: {link}")
            elif target in pages and "src" not in target.relative_to(root).parts and not anchors & {"", *pages[target].anchors}:
                broken.append(f"{path.relative_to(root)}: {link} (no such anchor)")
    if broken:
        sys.exit("\n".join([*broken[:40], f"error: {len(broken)} broken links"]))
    print(f"{root}: {checked} links within {len(pages)} pages, none broken")


main()
