"""Captioning a folder: nothing is lost, mixed or learnt by mistake."""

import csv
import os
import resource
import shutil
import signal
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny
import torch
from refusals import refused

from satlib import caption_folder, files
from satlib.data import datasets, images
from satlib.evaluation import plots
from satlib.model.captioner import Captioner

HEADING = "image,caption,score,model\n"
NAMES = ("0.png", "1.png", "a/1.png", "a/é, 2.png")


@pytest.fixture(scope="module")
def captioner():
    return tiny.decided()


@pytest.fixture(autouse=True)
def photos(tmp_path, monkeypatch):
    """Four photographs in the folder "photos" of the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, example in zip(NAMES, tiny.data().examples, strict=False):
        file = Path("photos", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        tiny.draw(example).save(file)
    return Path("photos")


def run(captioner, photos="photos", table="t.csv", **options):
    """How many photographs are captioned; errors are raised."""
    count = 0
    for result in caption_folder(photos, captioner, table, **options):
        if result.error:
            raise result.error
        count += 1
    return count


def threads_of_a_new_thread():
    """How many torch shares an operation among, by default."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


def content(table="t.csv"):
    return Path(table).read_bytes()


def rows(table="t.csv"):
    return list(csv.DictReader(content(table).decode().splitlines()))


class TestStops:
    """After whatever end, the same call leaves the table of a run that was never stopped."""

    def test_a_table_cut_at_any_byte_is_continued(self, captioner, capsys):
        run(captioner, best=2)
        whole = content()
        assert len(rows()) == 8

        places = {0, 1, *range(3, len(whole), 29)}
        for place, byte in enumerate(whole):
            # In the middle of a letter, and on both sides of a line break.
            if byte > 127 or byte == ord("\n"):
                places |= {place, place + 1}
        for place in places:
            # A power cut may also leave blocks of zeros.
            for end in (b"", bytes(4000)):
                Path("t.csv").write_bytes(whole[:place] + end)
                unfinished = end or whole[place - 1] != ord("\n")
                if end and place <= len(HEADING) - 1:
                    continue  # not to be told from another file
                capsys.readouterr()
                run(captioner, best=2)
                assert content() == whole
                # A heading is completed; any other line is dropped, which is said.
                said = "the last line was unfinished" in capsys.readouterr().err
                assert said == bool(unfinished and place >= len(HEADING))

    def test_a_full_disk_is_one_line_and_costs_nothing(self, captioner, monkeypatch):
        monkeypatch.setattr(files, "quiet", True)  # what is printed would be under the limit, too
        run(captioner)
        whole = content()

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for size in (10, len(HEADING) + 5, len(whole) - 10):
            table = f"{size}.csv"
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
            try:
                refused(lambda table=table: run(captioner, table=table), f"cannot write {table}")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert content(table) == whole[:size]
            run(captioner, table=table)
            assert content(table) == whole

    def test_a_process_that_is_killed_and_a_second_one_meanwhile(self, captioner):
        run(captioner, table="whole.csv")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for _ in caption_folder("photos", captioner, "t.csv"):
                os.write(writing, b"one")
                signal.pause()

        assert os.read(reading, 3) == b"one"
        os.symlink("t.csv", "link.csv")
        try:
            for name in ("t.csv", "link.csv"):
                refused(lambda name=name: run(captioner, table=name), "by another process")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert len(rows()) == 1

        # A repair goes through a link, too.
        with open("t.csv", "a", encoding="utf-8") as file:
            file.write("photos/1.p")
        assert run(captioner, table="link.csv") == 3
        assert content() == content("whole.csv")
        assert Path("link.csv").is_symlink()


class TestWhoseCaptions:
    def test_rows_count_for_one_model_and_one_way_of_decoding(self, captioner):
        ways = [
            (captioner, {}),
            (tiny.decided(seed=6), {}),
            (captioner, {"beam": 3}),
            (captioner, {"sample": 2}),
            (captioner, {"sample": 2, "seed": 1}),
            (captioner, {"sample": 2, "temperature": 0.5}),
        ]
        before = b""
        for model, options in ways:
            assert run(model, **options) == 4
            # What others have written stays as it is.
            assert content().startswith(before)
            before = content()
        for model, options in ways:
            assert run(model, **options) == 0
        assert len({row["model"] for row in rows()}) == len(ways)

        # Of more captions, those that a photograph lacks.
        assert run(captioner, beam=3, best=3) == 4
        run(captioner, table="whole.csv", beam=3, best=3)
        three = rows("whole.csv")
        author = three[0]["model"]
        ours = [row for row in rows() if row["model"] == author]
        assert sorted(ours, key=str) == sorted(three, key=str)

    def test_a_model_is_known_by_its_name_and_its_weights(self, captioner):
        file = Path("runs/mine/model.safetensors")
        captioner.save(file)
        checksum = captioner.id.removeprefix("tiny ")
        for path in ("runs/mine", file, file.absolute()):
            assert Captioner.load(path).id == f"mine {checksum}"

        # Trained further, under the same name.
        tiny.decided(seed=6).save(file)
        assert Captioner.load(file).id.startswith("mine ")
        assert checksum not in Captioner.load(file).id

    def test_a_photograph_is_one_however_its_path_is_written(self, captioner, monkeypatch):
        assert run(captioner) == 4
        assert [row["image"] for row in rows()] == [f"photos/{name}" for name in NAMES]

        here = Path.cwd()
        os.symlink("photos", "link")
        os.symlink("0.png", "photos/again.png")
        monkeypatch.setenv("HOME", str(here))
        for path in (here / "photos", "photos/../photos", "link", "~/photos", ["link", "photos"]):
            assert run(captioner, path, "~/t.csv") == 0

        # From another folder, and into another: each row leads to its photograph.
        monkeypatch.chdir("photos/a")
        assert run(captioner, [".", "../0.png"], here / "t.csv") == 0
        assert run(captioner, "..", "inside.csv") == 4
        assert all(Path(row["image"]).is_file() for row in rows("inside.csv"))
        assert run(captioner, here / "photos", "inside.csv") == 0

        # The table moves with its photographs.
        monkeypatch.chdir(here)
        Path("moved").mkdir()
        shutil.move("photos", "moved")
        shutil.move("t.csv", "moved")
        assert run(captioner, "moved/photos", "moved/t.csv") == 0


class TestOthersTables:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            pytest.param(HEADING, "\ufeff" + HEADING, id="a byte order mark"),
            pytest.param("\n", "\r\n", id="CRLF"),
            pytest.param("image,caption", '"image","caption"', id="quotation marks"),
            pytest.param("\n", "\n\n", id="blank lines"),
        ],
    )
    def test_what_a_spreadsheet_saved_is_read(self, captioner, old, new):
        assert run(captioner, "photos/a") == 2
        before = content().decode().replace(old, new).encode()
        Path("t.csv").write_bytes(before)
        assert run(captioner) == 2
        assert content().startswith(before)
        assert run(captioner) == 0

    @pytest.mark.parametrize(
        ("saved", "parts"),
        [
            ((HEADING + "é.png,a dog,0.5,x\n").encode("cp1252"), ("not UTF-8", "line 2")),
            (HEADING.encode("utf-16"), ("not UTF-8",)),
            (
                HEADING.replace(",", ";").encode() + b"0.png;a dog;0,5;x\r\n",
                ("line 1", HEADING[:-1]),
            ),
            (HEADING.replace("\n", "\r").encode() + b"0.png,a dog,0.5,x\r", ("t.csv",)),
            (b"image,caption\n0.png,a dog\n", ("line 1",)),
            (b"image,caption,split\n0.png,a d", ("line 1",)),
            (b"a line without an end", ("t.csv",)),
            (b"\n\nnotes\n", ("t.csv",)),
            (HEADING.encode() + b"0.png,a d1.png,a dog,0.5,x\n", ("line 2", "5 columns")),
            (HEADING.encode() + b'"0.png,a dog,0.5,x\n', ("line 2",)),
            (HEADING.encode() + b"x" * 140_000 + b"\n", ("line 2",)),
        ],
    )
    def test_another_table_is_refused_and_stays(self, captioner, saved, parts):
        Path("t.csv").write_bytes(saved)
        refused(lambda: run(captioner), *parts)
        assert content() == saved

    def test_there_must_be_a_folder_that_can_be_written_to(self, captioner):
        for place in ("no folder/t.csv", "photos/0.png/t.csv", "photos"):
            refused(lambda place=place: run(captioner, table=place), place)
        assert sorted(os.listdir()) == [".photos.lock", "photos"]

    def test_satlibs_captions_are_not_learnt(self, captioner, capsys):
        """Nor are those of a table from before it named the model, which is taken over."""
        table = Path("photos/captions.csv")
        table.write_text("image,caption,confidence\n0.png,a dog,0.5\n1.png,a d", encoding="utf-8")
        refused(lambda: datasets.load("photos"), "captions.csv", "not a person's")
        assert run(captioner, table=table) == 4
        assert "name no model" in capsys.readouterr().err
        assert content(table).startswith(f"{HEADING}0.png,a dog,0.5,\n".encode())
        assert len(rows(table)) == 5
        assert run(captioner, table=table) == 0
        refused(lambda: datasets.load("photos"), "captions.csv", "not a person's")


class TestPictures:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch):
        """A drawing that takes no time: these tests ask where it goes."""

        def draw(photo, words, alphas, path):
            path.parent.mkdir(exist_ok=True)
            path.write_text("a picture", encoding="utf-8")

        monkeypatch.setattr(plots, "attention_figure", draw)

    def test_each_photograph_keeps_its_own(self, photos, captioner):
        """Names that are the same without folder, ending, case or the form of an accent."""
        accents = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
        names = ["1-2.png", "1.jpg", "A.png", "a.png", "x.1.png", "x.2.png", "n" * 251 + ".png"]
        for name in [*names, *(f"{accent}.png" for accent in accents)]:
            shutil.copy(photos / "0.png", photos / "a" / name)

        pictures = {}
        for result in caption_folder(photos, captioner, out="out"):
            pictures[result.path] = result.picture
        found = list(Path("out").iterdir())
        assert sorted(found) == sorted(pictures.values())
        assert len({unicodedata.normalize("NFC", str(p)).casefold() for p in found}) == len(found)
        assert len(found) == len(images.files_in(photos))

        # A second run draws one anew, and touches no other.
        for picture in found:
            picture.unlink()
        run(captioner, (photos / "a/1.png").absolute(), None, out="out")
        assert list(Path("out").iterdir()) == [pictures[photos / "a/1.png"]]

    def test_pictures_are_no_photographs(self, captioner, monkeypatch):
        """Wherever they are drawn, and however that is written."""
        for out in ("photos/maps", Path("photos/maps").absolute()):
            for photos in ("photos", Path("photos").absolute()):
                assert run(captioner, photos, None, out=out) == 4
        refused(lambda: run(captioner, out=Path("photos").absolute()), "another folder")
        assert run(captioner, "photos/a", None, out=".") == 2


class TestBatches:
    """Two batches at a time, each in a thread."""

    @pytest.fixture(autouse=True)
    def _threads(self):
        """The number of threads stays that of the other tests."""
        threads = torch.get_num_threads()
        yield
        torch.set_num_threads(threads)

    @pytest.mark.parametrize("options", [{}, {"sample": 2, "seed": 1}])
    def test_they_change_no_caption_and_no_setting(self, photos, options):
        captioner = tiny.decided()
        for number, example in enumerate(tiny.data(40).examples):
            tiny.draw(example).save(photos / f"b{number:02}.png")
        (photos / "b20.png").write_bytes(b"")
        paths = images.files_in(photos)
        torch.set_num_threads(4)

        def captions(photos):
            found = {}
            for result in caption_folder(photos, captioner, **options, out="out", table="t.csv"):
                found[result.path] = [caption.text for caption in result.captions]
                torch.rand(1)  # the caller's own random numbers
            Path("t.csv").unlink()
            return found

        captioner.train()  # its dropout must stay off while another batch ends
        together = captions("photos")
        assert captioner.training
        assert threads_of_a_new_thread() == torch.get_num_threads() == 4
        assert list(together) == paths
        assert together[photos / "b20.png"] == []
        captioner.eval()
        assert together == {path: captions(path)[path] for path in paths}


class TestNames:
    def test_hidden_files_are_no_photographs(self, photos, captioner):
        hidden = ("._0.png", ".thumbnails/0.png", "a/.git/x/0.png", "__MACOSX/0.png")
        of_systems = ("@eaDir/0.png/SYNOPHOTO_THUMB_M.png", "$RECYCLE.BIN/0.png")
        for name in hidden + of_systems:
            (photos / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(photos / "0.png", photos / name)
        shutil.move(photos / "a", photos / "a.png")  # a folder called like a photograph
        assert run(captioner) == 4

        # Nor are they for training: each photograph has its captions.
        for photo in images.files_in(photos):
            photo.with_suffix(".txt").write_text("a dog", encoding="utf-8")
        assert len(datasets.load("photos")) == 4
        # Asked for by name, they are.
        assert run(captioner, [photos / "._0.png", photos / ".thumbnails"]) == 2

    @pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
    def test_a_link_to_a_folder_is_not_followed_and_that_is_said(self, photos, captioner, capsys):
        (photos / "more").symlink_to(photos.parent, target_is_directory=True)
        assert run(captioner) == 4
        assert "links to folders are not followed (more)" in capsys.readouterr().err

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
    @pytest.mark.parametrize("name", [b"caf\xe9.png", b"two\nlines.png"])
    def test_a_name_that_no_table_can_hold_costs_no_other(self, photos, captioner, name):
        odd = photos / os.fsdecode(name)
        shutil.copy(photos / "0.png", odd)
        for others in (4, 0):
            results = list(caption_folder(photos, captioner, "t.csv"))
            (error,) = [result.error for result in results if result.error]
            assert repr(str(odd)) in str(error)
            assert len(results) == others + 1
        assert len(rows()) == 4
        # A picture can have any name.
        assert run(captioner, odd, None) == 1


class TestSamples:
    def test_near_zero_temperature_they_are_the_greedy_caption(self, photos, captioner):
        """Of every kind of decoder."""
        transformer = tiny.decided(changes=("decoder.kind=transformer",))
        for model in (captioner, tiny.decided("hard"), transformer):
            (greedy,) = model.caption([photos / "0.png"], beam=1)
            for sample in model.samples([photos / "0.png"], 3, temperature=0.01)[0]:
                assert sample.words == greedy.words
                assert sample.log_probability == pytest.approx(greedy.log_probability, abs=1e-4)
                assert (sample.alphas - greedy.alphas).abs().max() < 1e-5
                assert sample.betas.shape == greedy.betas.shape

    def test_a_seed_draws_the_same_of_a_photograph_whatever_else_is_asked_for(
        self, photos, captioner
    ):
        paths = [photos / name for name in NAMES]

        def texts(paths, **options):
            return [[each.text for each in of] for of in captioner.samples(paths, 6, **options)]

        drawn = texts(paths)
        assert texts(paths[2:3]) == drawn[2:3]
        assert texts(paths, seed=1) != drawn
        assert len(set(drawn[0])) > 1
        for temperature in (0, -1, float("nan")):
            refused(lambda t=temperature: texts(paths, temperature=t), "from 0.01 to 100")
