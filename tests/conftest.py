"""What every test can count on: pictures without a window, one thread, the same random numbers,
Java or a skip.

`make test` leaves out the tests with the mark `slow`; `make test-all` runs them too.
"""

import gzip
import itertools
import random
import shutil

import matplotlib
import numpy as np
import pytest
import tiny
import torch
from hypothesis import settings

from satlib import files
from satlib.evaluation import metrics, plots
from satlib.model import encoders

matplotlib.use("Agg")  # before anything asks for pyplot
torch.set_num_threads(1)  # pytest runs in several processes already
settings.register_profile("whatever the machine", deadline=None)
settings.load_profile("whatever the machine")

# Whole files that are slow: a browser, npm, Jupyter's kernels, a wheel, the site, torchrun, killed
# processes, many trainings. They start first and in this order, because with two processes a long
# file at the end leaves one of them waiting.
SLOW = (
    "test_live_page",
    "test_lab",
    "test_exercises_tools",
    "test_distributed",
    "test_resuming",
    "test_onnx_export",
    "test_release",
    "test_demo",
)


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: left out by `make test`")
    config.addinivalue_line(
        "markers", "needs_java: runs METEOR or the PTB tokenizer; skipped where no Java works"
    )


def pytest_collection_modifyitems(items):
    def rank(item):
        file = item.path.stem
        return SLOW.index(file) if file in SLOW else len(SLOW)

    items.sort(key=rank)
    for item in items:
        if item.path.stem in SLOW or item.get_closest_marker("needs_java"):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Hide this machine's Java from all tests but those that ask for it.

    Evaluating without METEOR, as where Java is missing, takes a tenth of the time.
    """
    if item.get_closest_marker("needs_java"):
        return (yield)

    works = metrics.java_available
    java = shutil.which("java")

    def another_java_works():
        # A test may put a Java of its own on the PATH, and that one is not hidden.
        return shutil.which("java") != java and works()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "java_available", another_java_works)
        return (yield)


@pytest.fixture(scope="session")
def java():
    """Whether Java works, asked once in a session."""
    return metrics.java_available()


@pytest.fixture(scope="module")
def few_paraphrases(tmp_path_factory):
    """METEOR with the first 1,000 of its 6 million paraphrases, which it reads in 15 seconds."""
    path = tmp_path_factory.mktemp("meteor") / "paraphrases.gz"
    with gzip.open(metrics._PARAPHRASES) as whole, gzip.open(path, "wb") as few:
        # A paraphrase takes three lines: its probability, one phrase, the other phrase.
        few.writelines(itertools.islice(whole, 3000))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_PARAPHRASES", path)
        yield


@pytest.fixture(scope="session")
def chromium():
    """Where Chromium is; skips the test where it, or Playwright, is missing."""
    pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed (pip install playwright)"
    )
    # The names under which distributions install it.
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    return pytest.skip("no Chromium on the PATH (apt install chromium)")


@pytest.fixture(scope="module")
def browser(chromium):
    """Chromium, once for each file."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]  # for containers
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        yield browser
        # Left open, its event loop would keep the next file's from starting.
        browser.close()


@pytest.fixture(autouse=True)
def _java_or_skip(request):
    if request.node.get_closest_marker("needs_java") and not request.getfixturevalue("java"):
        install = "apt install default-jre-headless, brew install openjdk"
        pytest.skip(f"no Java that works on the PATH ({install})")


@pytest.fixture(scope="module", autouse=True)
def _tiny(request):
    """In a file that imports `tiny`, its encoder is known, and no curves are drawn."""
    with pytest.MonkeyPatch.context() as patch:
        if getattr(request.module, "tiny", None) is tiny:
            patch.setitem(encoders._BUILDERS, "tiny", tiny.build)
            # Drawing the curves takes longer than a tiny training.
            patch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))
        yield


@pytest.fixture(autouse=True)
def _not_quiet(monkeypatch):
    """A command with --quiet leaves the tests after it their voice."""
    monkeypatch.setattr(files, "quiet", False)


@pytest.fixture(autouse=True)
def _seeded():
    """Each test begins with the same random state, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
