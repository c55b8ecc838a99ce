"""The course as a site, a folder of static files that works without a network: `python tools/build_site.py [FOLDER]`.

It writes the pages' sources (site_pages.py) into build/site-source, lets Sphinx make the site from them with docs/site/conf.py,
and puts the live page (`satlib page`) beside it. Notebooks are not executed: their stored outputs are shown.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import site_pages
from site_pages import ROOT, Pages

SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
MORE = ["benchmarks/README.md", "data/README.md", "satlib/models/README.md", "tests/README.md"]
PICTURE = """\
[![Two drawn stars; for each word of the caption, the star that it describes keeps its colours](docs/attention.png)](
docs/design.md)
"""
LIVE = """\
<iframe class="live" src="live/index.html" title="The captioner in your browser" loading="lazy"></iframe>
<p><a href="live/index.html">Open the captioner on a page of its own</a></p>
"""


def notebooks(folder: str) -> list[str]:
    """The notebooks of a folder, from the repository's root."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("[0-9][0-9]_*.ipynb"))


def write_source(folder: Path, live: bool) -> None:
    """Write all that Sphinx reads.

    Args:
        folder: is replaced.
        live: whether the front page begins with the live page; a picture takes its place otherwise.
    """
    shutil.rmtree(folder, ignore_errors=True)
    books = notebooks("notebooks") + notebooks("exercises")
    texts = ["notebooks/INDEX.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *MORE]
    pages = Pages(folder, books + texts, list(site_pages.modules()))
    for path in books:
        pages.notebook(path)
    for path in texts:
        pages.markdown(path)
    for path in [*(ROOT / "docs").glob("*.png"), *(ROOT / "benchmarks").glob("*.png")]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for path in (ROOT / "docs" / "site").glob("*.md"):
        text = path.read_text(encoding="utf-8").replace("<!-- live -->", LIVE if live else PICTURE)
        text = text.replace("<!-- notebooks -->", site_pages.table_of_notebooks())
        name = path.name if path.name == "index.md" else path.name.replace("-", "/", 1)
        pages.write(name, pages.linked(name, text))
    pages.api()
    pages.shown_files()


def live_page(folder: Path) -> bool:
    """Write the live page by `satlib page`; False where this satlib has no such command."""
    command = [sys.executable, "-m", "satlib", "page"]
    if subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True).returncode:
        print("no live page: this satlib has no command `page`; the front page shows a picture")
        return False
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True)
    return True


def build(site: Path = SITE, source: Path = SOURCE, live: bool = True) -> None:
    """Make the site.

    Args:
        site: the folder to write; it is replaced.
        source: the folder of the pages' sources; it is replaced.
        live: make the live page too, where satlib can.

    Raises:
        subprocess.CalledProcessError: Sphinx found a mistake, and has said which; every warning is one.
    """
    shutil.rmtree(site, ignore_errors=True)
    live = live and live_page(site / "live")
    write_source(source, live)
    options = ["--builder=html", "--fail-on-warning", "--keep-going", "--quiet", f"--conf-dir={ROOT / 'docs' / 'site'}"]
    folders = [f"--doctree-dir={source.parent / 'site-doctrees'}", str(source), str(site)]
    subprocess.run([sys.executable, "-m", "sphinx", "--fresh-env", *options, *folders], cwd=ROOT, check=True)
    for template in (site / "_static").glob("*.html"):
        template.unlink()  # the theme's own, which Sphinx copies with its scripts: no page
    (site / ".nojekyll").touch()  # GitHub Pages leaves out folders that begin with _ otherwise


def main() -> None:
    """Read the arguments and build."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SITE, help="the folder to write (build/site)")
    parser.add_argument("--no-live", action="store_true", help="leave out the page that captions in the browser")
    options = parser.parse_args()
    try:
        build(options.folder.resolve(), live=not options.no_live)
    except subprocess.CalledProcessError as error:
        page = "page" in error.cmd
        sys.exit(
            "no live page (see above); --no-live builds without it"
            if page
            else "no site: correct what Sphinx says above"
        )
    files = [path for path in options.folder.rglob("*") if path.is_file()]
    pages = sum(path.suffix == ".html" for path in files)
    print(f"{options.folder}: {pages} pages, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
