"""The page of `satlib page` in Chromium: it says what satlib says, listens to hand, keyboard and
brush, tells what became of a word, opens links exactly there, works offline, and survives bad input.

Needs Chromium and npm (which fetches onnxruntime-web once), and is skipped where they are missing.
"""

import base64
import contextlib
import io
import json
import shutil

import numpy as np
import PIL
import pytest
import torch
from PIL import Image
from serving import Server

from satcourse import demo
from satcourse.widgets.reading import annotate
from satcourse.widgets.steering import everywhere, look_again
from satlib.cli import main
from satlib.data import images, scenes
from satlib.evaluation import plots
from satlib.model.captioner import Captioner
from satlib.page import live

skimage = pytest.importorskip("skimage")
pytest.importorskip("onnxscript")
if shutil.which("npm") is None:
    pytest.skip("no npm on the PATH (apt install npm)", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)
MODELS = ("scenes-soft", "flickr8k-lite0-coco")
# Asks the page's worker for something: -> its last answer, with the steps that it told before.
ASK = """([what, details]) => new Promise((done) => {
    window.asker ??= new Worker("worker.js", { type: "module" });
    const steps = [];
    const id = Math.random();
    window.asker.addEventListener("message", function heard({ data }) {
        if (data.id !== id) return;
        if (data.step) steps.push({ ...data.step, alpha: [...data.step.alpha] });
        if (!data.done && data.failed === undefined) return;
        window.asker.removeEventListener("message", heard);
        const pixels = data.pixels && new Uint8Array(data.pixels).toBase64();
        done({ failed: data.failed, pixels, steps });
    });
    if (details.bytes) {
        details.file = new Blob([Uint8Array.fromBase64(details.bytes)], { type: details.type });
    }
    window.asker.postMessage({ id, do: what, ...details });
})"""
LIGHT = """async ([pixels, width, height, alpha]) => {
    const { lit, upsample } = await import("./light.js");
    const data = new Uint8ClampedArray(width * height * 4).fill(255);
    for (let i = 0; i < width * height; i++) {
        for (let c = 0; c < 3; c++) data[4 * i + c] = pixels[3 * i + c];
    }
    const light = upsample(Float32Array.from(alpha), [7, 7], width, height);
    const image = new ImageData(data, width, height);
    return [...lit(image, light).data];
}"""
# Which word of the caption is chosen.
CHOSEN = """
[...document.querySelectorAll('#words button')].findIndex((b) => b.ariaPressed === 'true')"""
# All that a visitor sees of a state.
STATE = """[
    document.querySelector("#words").innerHTML, document.querySelector("#status").textContent,
    document.querySelector("#ring").className, document.querySelector("#picture").toDataURL(),
]"""
# What stands below a saved picture.
NOTES = "import('./tiles.js').then(({ notes }) => notes())"
# A visitor who saves data, to whom no model is sent before it is needed.
SAVES_DATA = """
Object.defineProperty(navigator, 'connection', { value: { saveData: true } })"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page of `satlib page FOLDER`, with two models, whose weights stay in float32."""
    folder = tmp_path_factory.mktemp("site") / "page"
    options = []
    for model in MODELS:
        path = folder.with_name(model)
        Captioner.load(model).save(path)
        options += ["--model", str(path)]

    photographs = live._photographs
    with pytest.MonkeyPatch.context() as patch:
        # One scene and one photograph: each has to be encoded for each model.
        patch.setattr(live, "SCENES", 1)
        patch.setattr(live, "_photographs", lambda page: [next(photographs(page))])
        assert main(["page", str(folder), *options, "--storage", "float32"]) == 0
    return folder


@contextlib.contextmanager
def visit(browser, folder, saves_data=True, link=""):
    """A new visitor on a new server, who by default loads no model before it is needed; any error
    in the page fails the test.
    """
    server = Server(folder)
    errors = []
    asked = []
    # With reduced motion, nothing has to be waited for.
    visitor = browser.new_context(viewport={"width": 1100, "height": 900}, reduced_motion="reduce")
    visitor.on("request", lambda request: asked.append(request.url))
    if saves_data:
        visitor.add_init_script(SAVES_DATA)
    page = visitor.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.server = server
    page.asked = asked
    try:
        page.goto(f"{server.address}/{link}")
        finished(page)
        yield page
    finally:
        visitor.close()
        server.stop()
    assert errors == []


@pytest.fixture(scope="module")
def page(browser, folder):
    """For all tests that leave the page as it was."""
    with visit(browser, folder) as page:
        yield page


def finished(page, alert=None):
    """Wait until the page has said its caption, or has told what went wrong: the caption."""
    page.locator("#words[aria-busy=false]").wait_for(state="attached", timeout=120_000)
    if alert is not None:
        page.locator("#alert", has_text=alert).wait_for()
    shown = page.locator("#alert")
    assert shown.is_visible() == (alert is not None), shown.text_content()

    words = page.locator("#words button").all_text_contents()
    assert alert is not None or words[-1] == "end"
    return " ".join(words[:-1])


def ask(page, what, **details):
    answer = page.evaluate(ASK, [what, details])
    assert answer.get("failed") is None, answer
    return answer


def encoded(photo, kind="PNG", **options):
    file = io.BytesIO()
    photo.save(file, kind, **options)
    return file.getvalue()


def opened(page, content, kind="PNG"):
    """Give the worker the bytes of a photograph's file."""
    text = base64.b64encode(content).decode()
    ask(page, "open", name="photo", bytes=text, type=f"image/{kind.lower()}")


def upload(page, content, name="photo.png"):
    page.set_input_files("#file", {"name": name, "mimeType": "image/png", "buffer": content})


def crops(count, seed=0):
    """Parts of one of scikit-image's photographs, of any shape from 40 to 600 pixels a side."""
    photo = Image.fromarray(skimage.data.coffee())
    random = np.random.default_rng(seed)
    for _ in range(count):
        width = int(random.integers(40, photo.width + 1))
        height = int(random.integers(40, photo.height + 1))
        left = int(random.integers(photo.width - width + 1))
        top = int(random.integers(photo.height - height + 1))
        yield photo.crop((left, top, left + width, top + height))


def pixels_differ(page, photo, kind="PNG", **options):
    """The largest difference between the page's pixels of a file and satlib's."""
    content = encoded(photo, kind, **options)
    opened(page, content, kind)
    answer = base64.b64decode(ask(page, "pixels")["pixels"])
    pixels = np.frombuffer(answer, np.uint8).reshape(3, 224, 224)

    square = images.square(images.open_photo(io.BytesIO(content)))
    right = images.to_tensor(square).float().numpy()
    return np.abs(pixels.astype(np.float32) - right).max()


def test_pictures_have_the_pixels_of_pillow(page):
    """Photographs, odd shapes; transparent, turned by EXIF, grey, with a palette."""
    for number, crop in enumerate(crops(12)):
        kind = ("PNG", "JPEG")[number % 2]
        assert pixels_differ(page, crop, kind) <= 1

    random = np.random.default_rng(1)
    begins_with_the_longer = int(PIL.__version__.partition(".")[0]) >= 13
    for width, height in (
        (224, 224),
        (1, 1),
        (3, 2000),
        (2000, 3),
        (224, 90),
        (500, 224),
        (256, 256),
    ):
        noise = Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8))
        # Before version 13, Pillow begins with the width whatever the shape.
        limit = 0 if width >= height or begins_with_the_longer else 1
        assert pixels_differ(page, noise) <= limit, (width, height)

    photo = next(crops(1, seed=8)).resize((300, 200))
    fading = np.linspace(0, 255, 300).astype(np.uint8)
    transparent = photo.copy()
    transparent.putalpha(Image.fromarray(np.tile(fading, (200, 1))))
    # The camera was turned by a quarter.
    exif = Image.Exif()
    exif[0x0112] = 6
    for odd, kind, options in (
        (transparent, "PNG", {}),
        (photo, "JPEG", {"exif": exif}),
        (photo.convert("L"), "PNG", {}),
        (photo.quantize(64), "PNG", {}),
        (photo, "WEBP", {"lossless": True}),
    ):
        assert pixels_differ(page, odd, kind, **options) <= 1, (odd.mode, kind)


@pytest.mark.parametrize("model", MODELS)
def test_captions_and_maps_are_those_of_satlib(page, model):
    captioner = Captioner.load(model)
    wish = {"words": [], "light": None, "once": False}
    for photo in crops(3, seed=5):
        opened(page, encoded(photo))
        (caption,) = captioner.caption([photo], beam=1)
        steps = ask(page, "say", model=model, wish=wish)["steps"]

        # The last step is that of the end mark.
        words = [step["word"] for step in steps[:-1]]
        assert words == captioner.vocabulary.encode(" ".join(caption.words))
        alphas = [step["alpha"] for step in steps]
        np.testing.assert_allclose(alphas, caption.alphas.flatten(1), atol=1e-4)
        betas = [step["beta"] for step in steps]
        np.testing.assert_allclose(betas, caption.betas, atol=1e-4)
        log_p = sum(np.log(step["p"]) for step in steps)
        assert log_p == pytest.approx(caption.log_probability, abs=1e-2)


def test_the_light_is_that_of_satlib(page):
    photo = next(crops(1, seed=3)).resize((160, 120))
    generator = torch.Generator().manual_seed(0)
    energies = torch.randn(49, generator=generator) * 2
    alpha = torch.softmax(energies, 0)
    pixels = np.asarray(photo)
    lit = page.evaluate(LIGHT, [pixels.flatten().tolist(), *photo.size, alpha.tolist()])

    maps = alpha.view(1, 7, 7)
    (upsampled,) = plots.upsample(maps, (120, 160)).numpy()
    right = plots.light(pixels.astype(np.float32) / 255, upsampled)
    # A canvas has a fourth value a pixel, its opacity.
    found = np.array(lit).reshape(120, 160, 4)[..., :3]
    assert np.abs(found - right.astype(int)).max() <= 1


def test_the_brush_moves_the_sentence_to_the_other_object(page):
    """The page opens on a triangle and a star; with the light on the star, the sentence begins
    with that.
    """
    assert finished(page).split()[3] == "triangle"
    page.locator("#words button").first.click()
    page.locator("#paint").click()

    box = page.locator("#picture").bounding_box()
    scale = box["width"] / scenes.SIDE
    star_x, star_y = scenes.scene("test-000000").objects[1].centre
    x = box["x"] + scale * star_x
    y = box["y"] + scale * star_y
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 9, y + 9)
    page.mouse.up()
    # Near the beginning; -1 would be a sentence without a star.
    assert finished(page).find("star") < 30


def middle(box):
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_word_follows_the_pointer_before_a_model_has_come_and_the_model_agrees(browser, folder):
    """It opens on a colour with a ring on the other object; each of three taps moves the light of
    that word alone.
    """
    with visit(browser, folder) as page:
        at = page.evaluate(CHOSEN)
        word = page.locator("#words button").nth(at)
        assert word.text_content() in scenes.grammar.COLOURS

        box = page.locator("#picture").bounding_box()
        ring = middle(page.locator("#ring").bounding_box())
        corner = (box["x"] + 9, box["y"] + 9)
        middle_x, _ = middle(box)
        foot = (middle_x, box["y"] + box["height"] - 9)
        said = set()
        for place in (ring, corner, foot):
            page.mouse.move(*place)
            said.add(word.text_content())
            assert page.locator("#best tr").count() == 3
        assert len(said) > 1
        # So far without a model: these words came with the page.
        assert not any(".onnx" in url for url in page.asked)

        for place in (foot, corner):
            page.mouse.move(*place)
            before = word.text_content()
            page.mouse.click(*place)
            finished(page)
            assert page.evaluate(CHOSEN) == at
            assert word.text_content() == before

        page.locator("#sample").click()
        photo = images.open_photo(demo.photographs()[0])
        captioner = Captioner.load(MODELS[1])
        (caption,) = captioner.caption([photo], beam=1)
        assert finished(page) == caption.text
        # The photographer is named, as the licence asks, also below a saved picture.
        credit = page.locator("#credit").text_content()
        assert "CC-BY" in credit
        assert credit in page.evaluate(NOTES)


def test_it_tells_what_became_of_the_word_and_a_link_opens_exactly_there(browser, folder):
    """The light of "green", which says the star, goes to the purple triangle."""
    triangle, star = (thing.kind for thing in scenes.scene("test-000000").objects)
    assert (triangle.shape, star.shape, star.colour) == ("triangle", "star", "green")

    with visit(browser, folder) as page:
        own = finished(page)
        page.mouse.click(*middle(page.locator("#ring").bounding_box()))
        moved = finished(page)
        told = "You put the light here. “green” became “purple”. There is no purple star."
        assert page.locator("#status").text_content().strip() == told
        assert page.locator("#words [data-was]").get_attribute("data-was") == "green"
        assert page.locator("#ring.own").is_visible()
        notes = page.evaluate(NOTES)
        assert notes == [moved, "A person put the light at “purple”, at this word only.", page.url]

        page.mouse.move(0, 0)
        page.locator("#words button").first.click()
        page.locator("#paint").click()
        page.mouse.click(*middle(page.locator("#picture").bounding_box()))
        painted = finished(page)
        links = [page.url]
        states = [page.evaluate(STATE)]
        # Back: what was said before, from the word that was chosen then.
        page.go_back()
        page.locator("#status", has_text="It looked").wait_for()
        assert finished(page) == moved
        page.locator("#words [data-was]").click()
        links.append(page.url)
        states.append(page.evaluate(STATE))
        page.go_back()
        page.locator("#words", has_text=own.replace(" ", "")).wait_for()
        assert finished(page) == own
        assert painted not in (own, moved)

    for link, state in zip(links, states, strict=True):
        with visit(browser, folder, link=link[link.index("#") :]) as page:
            assert page.evaluate(STATE) == state
    # A link cannot put words into the model's mouth.
    forged = "#picture=test-000000.webp&sentence=a+purple+star&from=3"
    with visit(browser, folder, link=forged) as page:
        assert finished(page) == own


def test_by_keyboard_alone_the_light_is_moved_and_let_go(browser, folder):
    with visit(browser, folder) as page:
        own = finished(page)
        status = page.locator("#status")
        while page.evaluate("document.activeElement.id") != "picture":
            page.keyboard.press("Tab")
        assert "Enter puts it there" in status.text_content()

        page.keyboard.press("ArrowLeft")
        before = status.text_content()
        for _ in range(4):
            page.keyboard.press("ArrowLeft")
            page.keyboard.press("ArrowDown")
        assert status.text_content() != before
        # It stands on the triangle: the star is to be purple.
        assert "“purple”" in status.text_content()
        page.keyboard.press("Enter")
        assert finished(page) == own.replace("green", "purple")
        assert "You put the light here." in status.text_content()
        page.keyboard.press("Escape")
        assert finished(page) == own


def test_the_large_model_comes_with_a_photograph(browser, folder):
    """It comes ahead of its need, but only for visitors who have chosen a photograph."""
    with visit(browser, folder, saves_data=False) as page:
        # For this the small model has come.
        page.mouse.click(*middle(page.locator("#ring").bounding_box()))
        finished(page)
        assert not any(MODELS[1] in url for url in page.asked)
        with page.expect_request(f"**/{MODELS[1]}/step.onnx.gz"):
            page.locator("#sample").click()


def test_a_photograph_of_ones_own(browser, folder):
    """It rests on its sharpest content word, and has no link; a scene chosen right after it stays."""
    captioner = Captioner.load(MODELS[1])
    photo = next(crops(1, seed=11))
    (caption,) = captioner.caption([photo], beam=1)
    content = captioner.content_words[captioner.vocabulary.encode(caption.text)]
    sharpness = caption.alphas.flatten(1)[:-1].square().sum(1)
    with visit(browser, folder) as page:
        own = finished(page)
        upload(page, encoded(photo))
        assert finished(page) == caption.text
        assert page.evaluate(CHOSEN) == (sharpness * content).argmax()
        assert page.locator("#link").is_disabled()

        upload(page, encoded(photo.resize((3000, 2000))))
        page.locator("#draw").click()
        assert finished(page) == own
        page.locator("#model").select_option(MODELS[1])
        scene = images.open_photo(folder / "test-000000.webp")
        (of_scene,) = captioner.caption([scene], beam=1)
        assert finished(page) == of_scene.text


def tried(page, exhibit, place, low="0", high="9"):
    """Bet, put the light on a place, press Control: -> own, lit and control sentence, verdict."""
    section = page.locator(f"#{exhibit}")
    canvas = section.locator("canvas")
    lit = section.locator(".lit")
    at = canvas.bounding_box()
    row, column = divmod(place, 14)
    spot = {"x": (column + 0.5) * at["width"] / 14, "y": (row + 0.5) * at["height"] / 14}
    canvas.click(position=spot)
    assert lit.text_content() == ""  # the bet comes first

    # A range is the right way round, and no wider than what there is.
    field = section.locator("[name=high]")
    for wrong in ("0", "900"):
        section.locator("[name=low]").fill("1")
        field.fill(wrong)
        assert not field.evaluate("each => each.checkValidity()")
    section.locator("[name=low]").fill(low)
    section.locator("[name=high]").fill(high)
    section.locator("form button").click()
    canvas.click(position=spot)
    said = [section.locator(".own").text_content(), lit.text_content()]
    section.locator(".control").click()
    return [*said, lit.text_content(), section.locator(".verdict").text_content()]


def test_attention_on_trial(browser, folder):
    """By mouse: each exhibit says what is stored of it, and the card has every bet. No model comes."""
    stored = json.loads((folder / "trial.json").read_text())
    with visit(browser, folder) as page:
        page.asked.clear()
        page.goto(f"{page.server.address}/trial.html#cure")
        page.locator("#own").wait_for()
        assert page.evaluate("scrollY") > 0
        # This page has no photograph of elephants.
        exhibits = ["green", "neighbour", "cure"]
        assert page.locator("main > section").count() == len(exhibits) + 1

        for exhibit, verdict in zip(exhibits, ["Evidence", *2 * ["Decoration"]], strict=True):
            data = stored[exhibit]
            own, lit, control, text = tried(page, exhibit, 100, "0", str(data["count"]))
            told = data["sentences"][data["places"][100]]
            assert own.lower() == "by itself: " + " ".join(data["words"])
            assert lit.lower() == f"in your light: {told}"
            assert control.lower().endswith(": " + data["control"]["sentence"])
            assert text.startswith(verdict)
            for number in (data["count"], data["most"], data["of"]):
                assert str(number) in text
        # The best placebo cures more than the drawn light.
        assert (
            page.locator("#card")
            .inner_text()
            .endswith("2 of 3 ranges held the truth; four in five should.")
        )
        card = page.locator("#card").inner_text()
        page.reload()
        page.locator("#own").wait_for()
        assert page.locator("#card").inner_text() == card, "bets survive a reload"
        assert page.locator("#cure strong").text_content() == "Decoration"
        names = {url.rpartition("/")[2].partition("#")[0] for url in page.asked}
        files = [folder / name for name in names if (folder / name).is_file()]
        assert folder / "trial-test-001401.webp" in files
        assert sum(file.stat().st_size for file in files) < 300_000


def test_attention_on_trial_by_keyboard(browser, folder):
    data = json.loads((folder / "trial.json").read_text())["green"]
    with visit(browser, folder) as page:
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(f"{page.server.address}/trial.html")
        page.locator("#green form").wait_for()
        while page.evaluate("document.activeElement.name") != "low":
            page.keyboard.press("Tab")
        keys = ("1", "Tab", "9", "Tab", "Enter", *5 * ["ArrowLeft"], *2 * ["ArrowDown"])
        for key in keys:
            page.keyboard.press(key)
        place = int(np.argmax(data["alpha"])) - 5 + 2 * 14
        lit = page.locator("#green .lit")
        # On a phone the picture and what is said in its light are in sight together.
        box = lit.bounding_box()
        assert page.locator("#green canvas").bounding_box()["y"] >= 0
        assert box["y"] + box["height"] <= 844
        told = data["sentences"][data["places"][place]]
        assert lit.text_content().lower() == f"in your light: {told}"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.locator("#green strong").text_content() == "Evidence"


def test_your_own_photograph_on_trial(browser, folder):
    """Its numbers are those of satlib, which says no content word twice."""
    captioner = Captioner.load(MODELS[1])
    (cats,) = [path for path in demo.photographs() if path.stem == "cats"]
    photo = images.open_photo(cats)
    a = annotate(captioner, photo)
    (caption,) = captioner.caption([photo], beam=1)
    ids = torch.tensor(captioner.vocabulary.encode(caption.text))
    sharpness = caption.alphas.flatten(1)[:-1].square().sum(1)
    at = int((sharpness * captioner.content_words[ids]).argmax())
    barred = ids[:at][captioner.content_words[ids[:at]]]
    p = everywhere(captioner, a, caption.words, at).index_fill(1, barred, 0)
    count = int((p.argmax(1) == ids[at]).sum())
    even = torch.full((1, len(a)), 1 / len(a))
    p_even = look_again(captioner, a[None], [caption.words], [at], even).index_fill(1, barred, 0)
    in_even = captioner.vocabulary.words[int(p_even.argmax())]

    with visit(browser, folder) as page:
        page.goto(f"{page.server.address}/trial.html")
        file = {"name": "photo.png", "mimeType": "image/png", "buffer": encoded(photo)}
        damaged = {**file, "buffer": b"no picture"}
        page.set_input_files("#own input", damaged)
        page.locator("#own .tell", has_text="damaged").wait_for()
        # It is told before the large model comes.
        assert not any(".onnx" in url for url in page.asked)
        page.set_input_files("#own input", file)
        page.locator("#own form").wait_for(timeout=120_000)
        own, _, _, text = tried(page, "own", 90)
        assert own.lower() == f"by itself: {caption.text}"
        word = caption.words[at]
        assert f"“{word}” comes at {count} of 196 places; in even light it says “{in_even}”" in text
        # The word needs its light.
        assert in_even != word
        assert 0 < count < 98
        assert text.startswith("Evidence")


def test_a_visit_without_a_network(browser, folder):
    """The page asks its own server only, and keeps what it has loaded for a visit without one."""
    service_worker = (folder / "sw.js").read_text()
    for script in folder.glob("*.js"):
        assert script.name == "sw.js" or f'"{script.name}"' in service_worker

    photo = encoded(next(crops(1, seed=11)))
    with visit(browser, folder) as page:
        upload(page, photo)
        caption = finished(page)

        page.server.stop()
        page.reload()
        finished(page)
        upload(page, photo)
        assert finished(page) == caption
        own = (page.server.address, "blob:", "data:")
        assert all(url.startswith(own) for url in page.asked)


def test_damaged_files_of_a_model(browser, folder, tmp_path):
    """A graph cut short is refused until it is whole; a vocabulary of HTML stays text."""
    copy = shutil.copytree(folder, tmp_path / "page")
    scenes_model, photographs_model = MODELS
    graph = copy / photographs_model / "encoder.onnx.gz"
    whole = graph.read_bytes()
    graph.write_bytes(whole[: len(whole) // 2])

    evil = "<img src=x onerror=alert(1)>"
    vocabulary = copy / scenes_model / "vocabulary.json"
    words = json.loads(vocabulary.read_text())
    vocabulary.write_text(json.dumps([evil] * len(words)))
    # Without its checksum, by which it would be refused.
    path = copy / scenes_model / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"]["vocabulary.json"]
    path.write_text(json.dumps(manifest))

    with visit(browser, copy) as page:
        assert evil in finished(page)
        assert page.locator("img").count() == 0

        choice = page.locator("#model")
        choice.select_option(photographs_model)
        file = f"{photographs_model}/encoder.onnx.gz"
        message = f"{file} is incomplete, or belongs to another version of this page."
        finished(page, alert=message)

        # What was refused is not kept: it is asked for again.
        graph.write_bytes(whole)
        choice.select_option(scenes_model)
        finished(page)
        choice.select_option(photographs_model)
        finished(page)
