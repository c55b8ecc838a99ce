"""The page of `satlib page` in Chromium: it says what satlib says, listens to the brush, works offline, and survives bad input.

Needs Chromium and npm (which fetches onnxruntime-web once), and is skipped where they are missing.
"""

import base64
import contextlib
import io
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
from PIL import Image
from serving import Server

from satlib.cli import main
from satlib.data import images, scenes
from satlib.evaluation import overlay
from satlib.model import search, shipped
from satlib.model.captioner import Captioner
from satlib.page import live

for needed in ("onnxscript", "skimage"):
    pytest.importorskip(needed, reason=f"the page needs {needed}")
if shutil.which("npm") is None:
    pytest.skip("no npm on the PATH (apt install npm)", allow_module_level=True)

VIEWS = ("whole", "crop")
pytestmark = pytest.mark.timeout(600)
LIVE = Path(live.__file__).parent / "static"
PHOTOGRAPHS = "flickr8k-lite0-soft"
# Asks the page's worker for something and gives its last answer; what it tells before that is collected.
ASK = """([what, details]) => new Promise((done) => {
    window.asker ??= new Worker("worker.js", { type: "module" });
    const told = [];
    const id = Math.random();
    window.asker.addEventListener("message", function heard({ data }) {
        if (data.id !== id) return;
        if (!data.done && data.failed === undefined) return void told.push(data);
        window.asker.removeEventListener("message", heard);
        for (const step of told) if (step.step) step.step.alpha = [...step.step.alpha];
        const pixels = data.pixels && new Uint8Array(data.pixels).toBase64();
        done({ ...data, pixels, shown: null, vocabulary: null, told });
    });
    if (details.bytes) details.file = new Blob([Uint8Array.fromBase64(details.bytes)], { type: details.type });
    delete details.bytes;
    window.asker.postMessage({ id, do: what, ...details });
})"""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The page as `satlib page FOLDER` writes it."""
    folder = tmp_path_factory.mktemp("small") / "page"
    assert main(["page", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A page with one model, for photographs, whose weights are float32."""
    folder = tmp_path_factory.mktemp("whole") / "page"
    live.write(folder, [shipped.model(PHOTOGRAPHS)], "float32")
    return folder


@contextlib.contextmanager
def visit(browser, folder, wait=True, thrifty=True, **context):
    """A new visitor on a new server; any error in the page fails the test. A thrifty one loads nothing before it is needed."""
    server, errors, asked = Server(folder), [], []
    visitor = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, "reduced_motion": "reduce", **context})
    visitor.on("request", lambda request: asked.append(request.url))
    if thrifty:
        visitor.add_init_script("Object.defineProperty(navigator, 'connection', { value: { saveData: true } })")
    page = visitor.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.server, page.asked = server, asked
    try:
        page.goto(f"{server.address}/")
        if wait:
            finished(page)
        yield page
    finally:
        visitor.close()
        server.stop()
    assert errors == []


def idle(page):
    """Wait until the page has done what it was asked for, or has given up. What asks for something marks it as busy at once."""
    page.locator("#words[aria-busy=false]").wait_for(state="attached", timeout=120_000)


def finished(page):
    """Wait until the page has said its caption: the caption."""
    idle(page)
    assert page.locator("#alert").is_hidden(), page.locator("#alert").text_content()
    assert page.locator("#again").is_enabled()
    return said(page)


def said(page):
    words = page.locator("#words button").all_text_contents()
    assert words[-1] == "end"
    return " ".join(words[:-1])


def refused(page):
    """Wait for the sentence that says what went wrong."""
    idle(page)
    assert page.locator("#alert").is_visible()
    return page.locator("#alert").text_content()


def ask(page, what, **details):
    answer = page.evaluate(ASK, [what, details])
    assert answer.get("failed") is None, answer
    return answer


def pixels(page, view):
    """The input of the encoder for the picture that is open; whole numbers, as Pillow's are."""
    given = base64.b64decode(ask(page, "pixels", view=view)["pixels"])
    return np.frombuffer(given, np.uint8).reshape(3, 224, 224).astype(np.float32)


def encoded(photo, kind="PNG", **options):
    file = io.BytesIO()
    photo.save(file, kind, **options)
    return {"bytes": base64.b64encode(file.getvalue()).decode(), "type": f"image/{kind.lower()}", "name": "photo"}


def upload(page, photo, name="photo.png", kind="PNG"):
    file = io.BytesIO()
    photo.save(file, kind)
    page.set_input_files("#file", {"name": name, "mimeType": f"image/{kind.lower()}", "buffer": file.getvalue()})


def crops(count, seed=0):
    """Parts of scikit-image's photographs, of any shape from 40 to 600 pixels a side."""
    from skimage import data

    wholes = [
        Image.fromarray(getattr(data, name)()).convert("RGB") for name in ("astronaut", "coffee", "chelsea", "rocket")
    ]
    random = np.random.default_rng(seed)
    for number in range(count):
        whole = wholes[number % len(wholes)]
        width, height = (int(random.integers(40, side + 1)) for side in whole.size)
        left, top = int(random.integers(0, whole.width - width + 1)), int(random.integers(0, whole.height - height + 1))
        yield whole.crop((left, top, left + width, top + height))


def right_pixels(photo, view):
    return images.to_tensor(images.square(photo, view)).float().numpy()


def pixels_differ(page, photo, view, kind="PNG", **options):
    """The largest difference between the page's pixels of a file and satlib's."""
    file = io.BytesIO()
    photo.save(file, kind, **options)
    ask(page, "open", **encoded(photo, kind, **options))
    return np.abs(pixels(page, view) - right_pixels(images.open_photo(file), view)).max()


def test_photographs_have_the_pixels_of_pillow(browser, small):
    with visit(browser, small, wait=False) as page:
        for kind, options in (("PNG", {}), ("JPEG", {"quality": 85})):
            for number, photo in enumerate(crops(20, seed=len(kind))):
                assert pixels_differ(page, photo, VIEWS[number % 2], kind, **options) <= 1


def test_odd_shapes_and_files_have_the_pixels_of_pillow(browser, small):
    """Also of kinds that need more than their colours: transparent, turned by EXIF, grey, with a palette."""
    random = np.random.default_rng(1)
    photo = next(crops(1, seed=8)).resize((300, 200))
    transparent, exif = photo.copy(), Image.Exif()
    transparent.putalpha(Image.fromarray(np.tile(np.linspace(0, 255, 300).astype(np.uint8), (200, 1))))
    exif[0x0112] = 6  # the camera was turned by a quarter
    with visit(browser, small, wait=False) as page:
        for size in [(224, 224), (1, 1), (3, 2000), (2000, 3), (224, 90), (500, 224), (256, 256)]:
            noise = Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), np.uint8))
            # Before version 13, Pillow begins with the width whatever the shape.
            limit = 0 if size[0] >= size[1] or int(PIL.__version__.partition(".")[0]) >= 13 else 1
            for view in VIEWS:
                assert pixels_differ(page, noise, view) <= limit, (size, view)
        for odd, kind, options in (
            (transparent, "PNG", {}),
            (photo, "JPEG", {"exif": exif, "quality": 90}),
            (photo.convert("L"), "PNG", {}),
            (photo.quantize(64), "PNG", {}),
            (photo, "WEBP", {"lossless": True}),
        ):
            assert pixels_differ(page, odd, "whole", kind, **options) <= 1, (odd.mode, kind)


def greedy(captioner, photo):
    batch = images.to_tensor(images.square(photo, captioner.view)).unsqueeze(0).float()
    with torch.inference_mode():
        return search.greedy(captioner.decoder, captioner.annotations(batch), captioner.recipe.decoding.max_length)[0]


WISH = {"words": [], "light": None, "once": False, "method": "greedy", "beam": 3, "temperature": 1, "onePlace": False}


def spoken(page, model, **wish):
    answer = ask(page, "say", model=model, wish=WISH | wish)
    return [message["step"] for message in answer["told"] if "step" in message]


def test_captions_are_those_of_satlib(browser, whole):
    captioner = Captioner.load(shipped.model(PHOTOGRAPHS))
    with visit(browser, whole, wait=False) as page:
        for photo in crops(10, seed=5):
            ask(page, "open", **encoded(photo))
            steps, right = spoken(page, PHOTOGRAPHS), greedy(captioner, photo)
            assert [step["word"] for step in steps[:-1]] == right.words
            np.testing.assert_allclose([step["alpha"] for step in steps], right.alphas, atol=1e-4)
            np.testing.assert_allclose([step["beta"] for step in steps], right.betas, atol=1e-4)
            assert sum(np.log(step["p"]) for step in steps) == pytest.approx(right.log_probability, abs=1e-2)


def test_beam_search_is_that_of_satlib(browser, whole):
    captioner = Captioner.load(shipped.model(PHOTOGRAPHS))
    config = captioner.recipe.decoding
    with visit(browser, whole, wait=False) as page:
        for photo in crops(3, seed=7):
            ask(page, "open", **encoded(photo))
            batch = images.to_tensor(images.square(photo, captioner.view)).unsqueeze(0).float()
            for beam in (1, 3, 10):
                with torch.inference_mode():
                    ((best, *_),) = search.beam_search(
                        captioner.decoder,
                        captioner.annotations(batch),
                        beam,
                        config.max_length,
                        config.length_normalisation,
                    )
                said = spoken(page, PHOTOGRAPHS, method="beam", beam=beam)
                assert [step["word"] for step in said[:-1]] == best.words, beam


def test_the_light_is_that_of_satlib(browser, small):
    photo = next(crops(1, seed=3))
    photo = photo.resize((448, round(448 * photo.height / photo.width)) if photo.width > photo.height else (448, 448))
    alpha = torch.softmax(torch.randn(49, generator=torch.Generator().manual_seed(0)) * 2, 0)
    pixels = np.asarray(photo)
    with visit(browser, small, wait=False) as page:
        got = page.evaluate(
            """async ([pixels, width, height, alpha]) => {
                const { lit, upsample } = await import("./light.js");
                const data = new Uint8ClampedArray(width * height * 4).fill(255);
                for (let i = 0; i < width * height; i++) for (let c = 0; c < 3; c++) data[4 * i + c] = pixels[3 * i + c];
                const part = { left: 0, top: 0, width, height };
                return [...lit(new ImageData(data, width, height), upsample(Float32Array.from(alpha), [7, 7], width, height), part).data];
            }""",
            [pixels.flatten().tolist(), photo.width, photo.height, alpha.tolist()],
        )
    (upsampled,) = overlay.upsample(alpha.view(1, 7, 7), (photo.height, photo.width)).numpy()
    right = overlay.light(pixels.astype(np.float32) / 255, upsampled)
    assert np.abs(np.array(got).reshape(photo.height, photo.width, 4)[..., :3] - right.astype(int)).max() <= 1


def painted(page, centre, radius=0.0):
    """Paint a diamond with the brush on the picture; all lengths are shares of its sides."""
    page.locator("#paint").click()
    box = page.locator("#picture").bounding_box()
    for number, (across, down) in enumerate([(0, 0), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, 0), (0, 0)]):
        page.mouse.move(
            box["x"] + (centre[0] + across * radius) * box["width"],
            box["y"] + (centre[1] + down * radius) * box["height"],
        )
        if number == 0:
            page.mouse.down()
    page.mouse.up()
    return finished(page)


def first_named(caption, scene):
    """The number of the object that a caption names first."""
    return next((number for number in scenes.mentions(caption.split(), scene) if number is not None), None)


def test_the_brush_moves_the_sentence_to_the_other_object(browser, small):
    """The visitor chooses the first word and paints on the object that was not named first: the sentence then begins
    with that: more of its first phrase's words are true of it (`scenes.mentions`)."""
    named = tried = 0
    with visit(browser, small) as page:
        for example in scenes.load(1, 1, 14).split("test"):
            scene = scenes.scene(example.image_id)
            upload(page, scene.photo())
            finished(page)
            page.locator("#model").select_option("scenes-soft")
            first = first_named(finished(page), scene)
            if first is None:
                continue  # its words are as true of one object as of the other
            other = scene.objects[1 - first]
            page.locator("#words button").first.click()
            after = painted(page, [side / scenes.SIDE for side in other.centre], 0.25 * other.diameter / scenes.SIDE)
            tried += 1
            named += first_named(after, scene) == 1 - first
    assert tried >= 10
    assert named >= 0.9 * tried, f"{named} of {tried}"


def test_a_visit(browser, small):
    """A first visit: a scene, a photograph, hard attention; what it loads, where from, and what it keeps for a visit without a network."""
    astronaut = next(crops(1, seed=11))
    with visit(browser, small, thrifty=False) as page:
        upload(page, astronaut)
        caption = finished(page)
        assert all(
            address.startswith(page.server.address) or address.startswith(("blob:", "data:")) for address in page.asked
        )
        loaded = {path.split("?")[0].lstrip("/") or "index.html" for line in page.server.sent for path in [line]}
        assert sum((small / name).stat().st_size for name in loaded if (small / name).is_file()) <= 22e6
        assert not any(name.startswith("scenes-hard") for name in loaded)
        page.server.stop()
        page.reload()
        finished(page)
        upload(page, astronaut)
        assert finished(page) == caption
        page.locator("#model").select_option("scenes-hard")
        assert "scenes-hard/" in (message := refused(page))
        assert message.endswith(
            "cannot be loaded: you are offline, or the server has stopped. Connect, then try again."
        )
        page.locator("#model").select_option(PHOTOGRAPHS)
        assert finished(page) == caption


class TestBadInput:
    def test_what_is_no_picture(self, browser, small):
        file = io.BytesIO()
        next(crops(1, seed=2)).save(file, "PNG")
        damaged = "half.png is damaged or incomplete. Copy it again, or choose another picture."
        with visit(browser, small) as page:
            before = said(page)
            for name, content, message in (
                ("words.txt", b"no picture", "words.txt is not a picture that this browser can read"),
                ("empty.png", b"", "empty.png is empty. Choose another file."),
                ("<img src=x onerror=alert(1)>.png", b"no", "<img src=x onerror=alert(1)>.png is"),
                ("half.png", file.getvalue()[: len(file.getvalue()) // 2], damaged),
            ):
                kind = "text/plain" if name == "words.txt" else "image/png"
                page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": content})
                page.locator("#alert", has_text=message).wait_for()
                assert refused(page).startswith(message)
                assert page.locator("img").count() == 0
                assert said(page) == before
            upload(page, next(crops(1)))
            finished(page)

    def test_a_model_file_cut_short(self, browser, small, tmp_path):
        page_folder, name = shutil.copytree(small, tmp_path / "page"), "encoder.onnx.gz"
        file = page_folder / "scenes-hard" / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with visit(browser, page_folder) as page:
            page.locator("#model").select_option("scenes-hard")
            assert refused(page).startswith(
                f"scenes-hard/{name} is incomplete, or belongs to another version of this page."
            )
            file.write_bytes(whole)
            page.locator("#model").select_option("scenes-soft")
            finished(page)
            page.locator("#model").select_option("scenes-hard")
            finished(page)

    def test_text_of_a_vocabulary_is_text(self, browser, small, tmp_path):
        page_folder = shutil.copytree(small, tmp_path / "page")
        evil = "<img src=x onerror=alert(1)>"
        contents = json.loads((page_folder / "page.json").read_text())
        words = json.loads((page_folder / "scenes-soft" / "vocabulary.json").read_text())
        (page_folder / "scenes-soft" / "vocabulary.json").write_text(json.dumps([evil for _ in words]))
        del contents["files"]["scenes-soft/vocabulary.json"]
        (page_folder / "page.json").write_text(json.dumps(contents))
        with visit(browser, page_folder) as page:
            assert evil in said(page)
            assert page.locator("img").count() == 0


def test_types(tmp_path):
    """TypeScript's checker reads the scripts' JSDoc."""
    for file in LIVE.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["npm", "run", "check"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
