"""The course as a site: links lead somewhere, nothing comes from elsewhere, no solution is in it, and a browser shows it well.

The site is built once, in about a minute. What a browser is needed for is skipped without Chromium or Playwright.
"""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlparse

import nbformat
import pytest
from serving import Server

pytestmark = pytest.mark.timeout(900)
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
LOADING = dict.fromkeys(["script", "img", "iframe", "source", "audio", "video", "embed"], "src")
CODE = {"code", "pre", "script", "style", "title"}
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
EXERCISES = sorted(path.stem for path in (ROOT / "exercises").glob("*.ipynb"))


class Page(HTMLParser):
    """A page's links, what it loads, its anchors and its text."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors, self.parts, self.prose, self.code = [], [], set(), [], [], 0
        self.feed(text)
        self.text, self.prose = "".join(self.parts), "".join(self.prose)

    def handle_starttag(self, tag, attrs):
        """Keep what a tag links to, loads or names."""
        attrs = dict(attrs)
        self.code += tag in CODE
        self.anchors |= {attrs[name] for name in ("id", "name") if attrs.get(name)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if LOADING.get(tag) and attrs.get(LOADING[tag]):
            self.loads.append(attrs[LOADING[tag]])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon", "modulepreload"):
            self.loads.append(attrs["href"])

    def handle_endtag(self, tag):
        """Notice where code ends."""
        self.code -= tag in CODE

    def handle_data(self, data):
        """Keep the text."""
        self.parts.append(data)
        if not self.code:
            self.prose.append(data)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site's folder, without the live page, which needs npm."""
    for module in ("sphinx", "myst_nb", "sphinx_book_theme"):
        pytest.importorskip(module, reason="Sphinx and its theme are not installed (pip install -e '.[site]')")
    import build_site

    folder = tmp_path_factory.mktemp("built")
    build_site.build(folder / "site", folder / "source", live=False)
    return folder / "site"


@pytest.fixture(scope="session")
def pages(site):
    """All pages, by their paths in the site; not the live page, which is a program."""
    paths = [path for path in site.rglob("*.html") if path.relative_to(site).parts[0] != "live"]
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in paths}


def test_the_notebooks_the_exercises_and_the_modules_are_there(site, pages):
    assert len(NOTEBOOKS) == len(EXERCISES) + 1 == 11
    for folder, names in (("notebooks", [*NOTEBOOKS, "INDEX"]), ("exercises", EXERCISES)):
        assert {f"{folder}/{name}.html" for name in names} <= set(pages)
    assert {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")} <= set(pages)
    assert {"api/satlib.model.decoder.html", "api/satcourse.widgets.scrubber.html", "search.html"} <= set(pages)
    front = [urldefrag(link).url for link in pages["index.html"].links]
    assert {f"notebooks/{name}.html" for name in NOTEBOOKS} <= set(front)
    assert "satlib.model.decoder.Decoder.step" in pages["api/satlib.model.decoder.html"].anchors
    assert (site / ".nojekyll").is_file()


def test_every_link_and_anchor_leads_somewhere(site, pages):
    followed, dead = 0, []
    for name, page in pages.items():
        for link in page.links + page.loads:
            at = urlparse(urljoin(f"http://site/{name}", link))
            if urlparse(link).scheme:
                continue
            path, anchor = unquote(at.path.lstrip("/")), unquote(at.fragment)
            path = f"{path}index.html" if path.endswith("/") or not path else path
            followed += 1
            known = pages[path].anchors if path in pages else None
            if not (site / path).is_file() or (anchor and known is not None and anchor not in known):
                dead.append(f"{name}: {link}")
    assert not dead, dead[:20]
    assert followed > 10_000


def test_every_link_equation_and_table_is_read_as_one(pages):
    """A link that Sphinx did not understand stays as the file has it."""
    links = [
        (name, link) for name, page in pages.items() for link in page.links if re.search(r"\.(md|rst|py)(#|$)", link)
    ]
    assert links == []
    books = {name: page for name, page in pages.items() if name.startswith(("notebooks/", "exercises/"))}
    assert [name for name, page in books.items() if re.search(r"\$|\| (—|-{3})", page.prose)] == []


def solutions():
    """The code of each solution that is folded in a workbook and is not in the notebook to read, by the workbook's name."""
    for name in EXERCISES:
        work, read = (
            "\n".join(cell.source for cell in nbformat.read(ROOT / folder / f"{name}.ipynb", 4).cells)
            for folder in ("exercises", "notebooks")
        )
        for each in re.findall(r"<summary>Solution</summary>(.*?)</details>", work, re.S):
            blocks = [block.strip() for block in re.findall(r"^```python\n(.*?)^```", each, re.M | re.S)]
            yield name, [block for block in blocks if block not in read]


def test_no_solution_is_in_it(site, pages):
    folded = [(name, blocks) for name, blocks in solutions() if blocks]
    assert len(folded) >= 10
    squeezed = {name: "".join(page.text.split()) for name, page in pages.items()}
    downloads = [path.read_text(encoding="utf-8") for path in (site / "_downloads").rglob("*.ipynb")]
    assert len(downloads) == 21
    for book in downloads:
        text = "".join(
            cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            for cell in json.loads(book)["cells"]
        )
        squeezed[text[:60]] = "".join(text.split())
    found = [
        (exercise, page)
        for exercise, blocks in folded
        for block in blocks
        for page, text in squeezed.items()
        if len(block) > 20 and "".join(block.split()) in text
    ]
    assert found == []
    assert not [
        name
        for name in pages
        if "solutions" in name or name.startswith(("source/satcourse/exercises", "api/satcourse.exercises"))
    ]


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served."""
    with Server(site) as server:
        yield server.address


@pytest.fixture
def phone(browser, address):
    """A page of a telephone's width that can reach the site and nothing else; what else it asks for is in `asked`."""
    context = browser.new_context(viewport={"width": 360, "height": 740})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.asked = []
    page.on(
        "request",
        lambda request: None if request.url.startswith((address, "data:")) else page.asked.append(request.url),
    )
    yield page
    context.close()


def test_equations_are_rendered_and_pages_fit_a_phone(pages, phone, address):
    """Of the pages of the API and of sources, which are many and alike, some; all others."""
    alike = [name for name in pages if name.startswith(("_modules/", "source/", "api/"))]
    rendered, wide, wrong, stretched = 0, {}, [], {}
    for name in sorted(set(pages) - set(alike)) + sorted(alike)[::12]:
        phone.goto(f"{address}/{name}")
        phone.evaluate("async () => { if (window.MathJax) await MathJax.startup.promise }")
        asked, done, errors, width = phone.evaluate("""() => [
            document.querySelectorAll('.math').length, document.querySelectorAll('mjx-container').length,
            document.querySelectorAll('[data-mml-node=merror]').length, document.documentElement.scrollWidth]""")
        rendered += done
        if width > 360:
            wide[name] = width
        if (
            images := phone.evaluate("""() => [...document.images].filter(image => image.naturalWidth
                && Math.abs(image.clientHeight / image.clientWidth * image.naturalWidth / image.naturalHeight - 1) > 0.1).length""")
        ):
            stretched[name] = images
        if errors or asked != done:
            wrong.append(name)
    assert wrong == []
    assert wide == {}
    assert stretched == {}
    assert rendered > 500
    assert phone.asked == []


def test_the_search_finds_reinforce(phone, address):
    phone.goto(f"{address}/search.html?q=REINFORCE")
    phone.wait_for_selector("#search-results li a")
    phone.wait_for_function(
        "() => !document.querySelector('#search-results .search-summary').innerText.includes('Searching')"
    )
    found = phone.eval_on_selector_all(
        "#search-results li > a", "links => links.map(link => link.getAttribute('href'))"
    )
    assert any("notebooks/06_hard_attention.html" in link for link in found)
    assert not [link for link in found if "source/" in link]


def test_a_link_of_the_index_leads_to_a_heading(phone, address):
    phone.goto(f"{address}/notebooks/INDEX.html")
    link = phone.locator("article a", has_text="04, ").first
    heading = link.text_content().removeprefix("04, ")
    link.click()
    phone.wait_for_url("**/04_soft_attention.html#cell-04-*")
    found = phone.locator("article :is(h2, h3)", has_text=heading).first
    found.wait_for()
    phone.wait_for_function(
        "element => { const at = element.getBoundingClientRect().y; return at > -5 && at < 600 }",
        arg=found.element_handle(),
    )


def test_the_live_page_takes_the_place_of_the_picture(tmp_path):
    import build_site

    build_site.write_source(tmp_path / "source", live=True)
    front = (tmp_path / "source" / "index.md").read_text(encoding="utf-8")
    assert front.count('<iframe class="live" src="live/index.html"') == 1
    assert "attention.webp" not in front
