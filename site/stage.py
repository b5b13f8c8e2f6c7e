"""Puts the pages of the site into one folder: docs/, the landing page, and the files of the repository that pages link to.

    site/stage.py FOLDER

Links that leave docs/ lead to copies in the site: .md files become pages, others files to download. Links of those pages to
further files lead to the repository.
"""
import os
import pathlib
import re
import shutil
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent.resolve()
REPOSITORY = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["repository"]
# Pages with another place in the site. The list of all pages is not the landing page, which a README.md would be.
PAGES = {"spec/room.md": "room.md", "docs/README.md": "pages.md"}
# On the page of an error message, above the example: most readers come from a search engine, with a message and nothing installed.
OWN_LOG = """!!! tip "Explain your own log"
    [Paste it in the browser](../try.md); nothing is uploaded. Or [install makeroom](../index.md#install) and run `makeroom why FILE`.

"""
# A link to a file: neither an address nor an anchor of the same page.
LINK = re.compile(r"(\]\()(?![a-z]+:)([^)#\s]+)((?:#[^)\s]*)?\))")


def place(target):
    """Where a file of the repository is in the site."""
    name = target.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"files/{name}"


def is_page(target):
    return target.is_relative_to(ROOT / "docs") or target.relative_to(ROOT).as_posix() in PAGES


def stage(source, destination, folder):
    """Copies a page; returns the files outside of docs/ that it links to."""
    linked = set()

    def moved(match):
        target = (source.parent / match[2]).resolve()
        if not target.exists():
            sys.exit(f"error: {source}: {match[2]} does not exist")
        if not is_page(target):
            if not is_page(source):
                return f"{match[1]}{REPOSITORY}/blob/main/{target.relative_to(ROOT).as_posix()}{match[3]}"
            linked.add(target)
        back = os.path.relpath(folder / place(target), destination.parent)
        if target.is_dir():
            # A folder is listed on a page of its own.
            back += ".md"
        return match[1] + back + match[3]

    destination.parent.mkdir(parents=True, exist_ok=True)
    text = LINK.sub(moved, source.read_text())
    if destination.parent.name == "errors" and source.name != "README.md":
        introduction, section, rest = text.partition("## ")
        text = introduction + OWN_LOG + section + rest
    destination.write_text(text)
    return linked


def copy(target, folder):
    """Copies a file that pages link to; a folder becomes a page that lists its files."""
    destination = folder / place(target)
    destination.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix == ".md":
        stage(target, destination, folder)
        return
    if not target.is_dir():
        shutil.copy(target, destination)
        return
    files = sorted(path for path in target.iterdir() if path.is_file())
    for path in files:
        copy(path, folder)
    rows = "\n".join(f"- [{path.name}]({target.name}/{path.name})" for path in files)
    destination.with_name(destination.name + ".md").write_text(f"# {target.relative_to(ROOT)}\n\n{rows}\n")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    linked = set()
    for source in [*sorted((ROOT / "docs").rglob("*")), ROOT / "spec/room.md"]:
        destination = folder / place(source)
        if source.suffix == ".md":
            linked |= stage(source, destination, folder)
        elif source.suffix in (".png", ".svg"):
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, destination)
    for target in linked:
        copy(target, folder)
    for name in ("index.md", "try.md", "site.css", "logo.svg"):
        shutil.copy(ROOT / "site" / name, folder / name)


main()
