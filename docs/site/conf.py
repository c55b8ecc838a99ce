"""Sphinx's settings for the site; tools/build_site.py writes the pages that it reads."""

import builtins
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = ROOT / "satlib" / "page" / "static"
sys.path.insert(0, str(ROOT))

from docutils import nodes  # noqa: E402
from sphinx import addnodes  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402

import satlib  # noqa: E402

project = "Show, Attend and Tell"
version = release = satlib.__version__
language = "en-gb"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["downloads"]

# Notebooks and Markdown.
nb_execution_mode = "off"  # what is committed is shown; `make notebooks` executes
nb_merge_streams = True
nb_render_markdown_format = "myst"  # outputs may have tables
myst_enable_extensions = ["amsmath", "dollarmath"]
myst_dmath_double_inline = True  # $$...$$ within a paragraph, as JupyterLab has it
myst_heading_anchors = 5  # links to headings, as the files have them
myst_ref_domains = ["std", "py"]

# Modules.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = (
    True  # as the source has them: the value of a path would be that of this machine
)
maximum_signature_line_length = 90
default_role = "literal"  # docstrings put code between single backticks
napoleon_use_rtype = False
napoleon_use_ivar = (
    True  # a property may also be in its class's list of attributes; this describes it once
)
viewcode_line_numbers = True

# The look. Nothing comes from another host: MathJax is in a package, and the theme brings its fonts.
html_theme = "sphinx_book_theme"
html_title = "Show, Attend and Tell"
html_static_path = [str(HERE / "static"), str(PAGE / "card.jpeg")]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_favicon = str(PAGE / "icon.svg")
html_copy_source = False  # each notebook can be downloaded as it is in the repository
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": html_title},
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "navbar_start": [],
    "navbar_center": [],
    "navbar_end": [],
    "navbar_persistent": [],  # the search is in the sidebar
    "footer_content_items": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
_pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_urls = _pyproject["project"].get("urls", {})
html_baseurl = _urls.get("Homepage", "")  # this site's address, once it has one
ASK = "Ask it as an issue of the repository."
if "Source" in _urls:  # once the repository has an address
    html_theme_options |= {"repository_url": _urls["Source"], "use_repository_button": True}
    ASK = f"[Ask it as an issue]({_urls['Source']}/issues/new/choose)."
(_mathjax,) = find_spec("sphinx-mathjax-offline").submodule_search_locations
html_static_path.append(
    str(Path(_mathjax) / "static" / "mathjax" / "tex-svg.js")
)  # one file, which needs no fonts
mathjax_path = "tex-svg.js"


def literal_blocks(
    app: object, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep the lines of equations and tables in docstrings: an indented block after a blank line is shown as it is typed."""
    kept, base = list(lines), None  # base: the indentation of the text before the block, inside one
    del lines[:]
    for number, line in enumerate(kept):
        indent = len(line) - len(line.lstrip())
        if line.strip() and base is not None and indent <= base:
            base = None
        before = next((each for each in reversed(kept[:number]) if each.strip()), "")
        outer = len(before) - len(before.lstrip())
        after_blank = number > 0 and not kept[number - 1].strip()
        if (
            line.strip()
            and base is None
            and after_blank
            and before
            and indent > outer
            and not before.endswith("::")
        ):
            lines += [" " * outer + "::", ""]
            base = outer
        lines.append(line)


def not_ours(
    app: object, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out what a library puts into a class (matplotlib does), and fields of named tuples: the signature has them."""
    of_library = getattr(obj, "__module__", None) and not obj.__module__.startswith(
        ("satlib", "satcourse")
    )
    return True if of_library or type(obj).__name__ == "_tuplegetter" else None


def plain_builtins(app: Sphinx, document: nodes.document) -> None:
    """Let `bytes` in a signature be Python's own: Sphinx would link it to any attribute of that name."""
    for reference in list(document.findall(addnodes.pending_xref)):
        if reference["refdomain"] == "py" and hasattr(builtins, reference["reftarget"]):
            reference.replace_self(reference.children)


def place_to_ask(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the place to ask into the front page."""
    source[0] = source[0].replace("<!-- ask -->", ASK)


def shared_link(app: Sphinx, name: str, template: str, context: dict, document: object) -> None:
    """Let a shared link show a sentence and a still of the moving picture."""
    card = f"{html_baseurl or context['content_root']}_static/card.jpeg"
    context["metatags"] = context.get("metatags", "") + (
        f'<meta name="description" content="{_pyproject["project"]["description"]}">\n'
        f'<meta property="og:image" content="{card}">\n'
        '<meta name="twitter:card" content="summary_large_image">\n'
    )
    if name == "index":
        context["docstitle"] = ""  # the page's own title is the same


def absolute_cards(app: Sphinx, error: object) -> None:
    """Give the live pages' cards the whole address, which other sites ask for."""
    for page in Path(app.outdir, "live").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        card = f"{html_baseurl}live/card.jpeg" if html_baseurl else "card.jpeg"
        page.write_text(text.replace('"card.jpeg"', f'"{card}"'), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connect them; the first before napoleon, which reads the sections."""
    app.connect("source-read", place_to_ask)
    app.connect("html-page-context", shared_link)
    app.connect("build-finished", absolute_cards)
    app.connect("autodoc-process-docstring", literal_blocks, priority=100)
    app.connect("autodoc-skip-member", not_ours)
    app.connect("doctree-read", plain_builtins)
