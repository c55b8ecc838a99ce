"""A slider in Chromium: without a kernel, by keyboard, two on a page, and without scripts."""

import matplotlib.pyplot as plt
import pytest

from satcourse.widgets.slides import Slides


def bar(height):
    figure, axis = plt.subplots(figsize=(2, 1))
    axis.bar([0], [height])
    return figure


def page(tmp_path):
    heights = Slides(bar, [1, 2, 3], "height", lambda value: f"{value} <cm>", start=1)
    others = Slides(bar, [4, 5], "other")
    path = tmp_path / "page.html"
    path.write_text(heights._repr_html_() + others._repr_html_(), encoding="utf-8")
    assert not plt.get_fignums(), "the figures are closed"
    return path.as_uri()


@pytest.mark.slow
def test_a_slider_moves_its_own_pictures(tmp_path, browser):
    view = browser.new_page()
    view.goto(page(tmp_path))
    slider, other = view.get_by_role("slider").all()
    assert view.locator("figure:visible").all_inner_texts() == ["height: 2 <cm>", "other: 4"]
    assert all(view.evaluate("[...document.images].map(image => image.naturalWidth > 0)"))

    slider.focus()
    view.keyboard.press("ArrowRight")
    assert view.locator("figure:visible").all_inner_texts() == ["height: 3 <cm>", "other: 4"]
    assert slider.get_attribute("aria-valuetext") == "height: 3 <cm>"
    assert other.get_attribute("aria-label") == "other"


@pytest.mark.slow
def test_without_scripts_all_pictures_are_there(tmp_path, browser):
    view = browser.new_context(java_script_enabled=False).new_page()
    view.goto(page(tmp_path))
    assert view.locator("figure:visible").count() == 5
    assert view.locator("input").count() == 0
