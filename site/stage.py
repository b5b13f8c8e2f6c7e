"""Puts the pages of the site into one folder: docs/, the landing page, and the files of the repository that pages link to.

    site/stage.py FOLDER

Links that leave docs/ lead to copies in the site: .md files become pages, others files to download.
"""
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).parent.parent.resolve()
# Pages outside of docs/, and where they are in the site.
PAGES = {"spec/room.md": "room.md"}
# On the page of an error message, above the example: most readers come from a search engine, with a message and nothing installed.
OWN_LOG = """!!! tip "Explain your own log"
    [Paste it in the browser](../try.md); nothing is uploaded. Or [install makeroom](../index.md#install) and run `makeroom why FILE`.

"""
LINK = re.compile(r"(\]\()(\.\./[^)#\s]*)((?:#[^)\s]*)?\))")


def place(target):
    """Where a file of the repository is in the site."""
    name = target.relative_to(ROOT).as_posix()
    if name in PAGES:
        return PAGES[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"files/{name}"


def stage(source, destination, folder):
    """Copies a page; returns the files outside of docs/ that it links to."""
    linked = set()

    def moved(match):
        target = (source.parent / match[2]).resolve()
        if not target.exists():
            sys.exit(f"error: {source}: {match[2]} does not exist")
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
    return {target for target in linked if not target.is_relative_to(ROOT / "docs")}


def copy(target, folder):
    """Copies a file that pages link to; a folder becomes a page that lists its files."""
    destination = folder / place(target)
    destination.parent.mkdir(parents=True, exist_ok=True)
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
    for source in sorted((ROOT / "docs").rglob("*")):
        destination = folder / source.relative_to(ROOT / "docs")
        if source.suffix == ".md":
            linked |= stage(source, destination, folder)
        elif source.suffix in (".png", ".svg"):
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, destination)
    for name, page in PAGES.items():
        linked |= stage(ROOT / name, folder / page, folder)
    for target in linked - {ROOT / name for name in PAGES}:
        copy(target, folder)
    for name in ("index.md", "try.md", "site.css", "logo.svg"):
        shutil.copy(ROOT / "site" / name, folder / name)


main()
