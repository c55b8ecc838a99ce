"""Captioning a folder: nothing is lost, mixed or learnt by mistake."""

import csv
import os
import resource
import shutil
import signal
import sys
import unicodedata
from pathlib import Path

import pytest
import tiny
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


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Four photographs, two of one name."""
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "a").mkdir()
    for name, example in zip(NAMES, tiny.data().examples, strict=False):
        tiny.draw(example).save(folder / name)
    return folder


@pytest.fixture
def photos(drawn, tmp_path, monkeypatch):
    """The same four in the folder "photos" of the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(drawn, "photos")
    return Path("photos")


def run(photos, captioner, table="t.csv", **options):
    """The photographs that are captioned: their paths; errors are raised."""
    paths = []
    for result in caption_folder(photos, captioner, table, **options):
        if result.error:
            raise result.error
        paths.append(str(result.path))
    return paths


def rows(table="t.csv"):
    return list(csv.DictReader(Path(table).read_text(encoding="utf-8").splitlines()))


class TestStops:
    """After whatever end, the same call leaves the table of a run that was never stopped."""

    def test_a_table_cut_at_any_byte_is_continued(self, photos, captioner, capsys):
        run(photos, captioner, best=2)
        table = Path("t.csv")
        whole = table.read_bytes()
        assert len(rows()) == 8

        places = {0, 1, len(HEADING) - 1, len(HEADING), *range(3, len(whole), 29)}
        for place, byte in enumerate(whole):
            # In the middle of a letter, and on both sides of a line break.
            if byte > 127 or byte == ord("\n"):
                places |= {place, place + 1}
        for place in sorted(places):
            table.write_bytes(whole[:place])
            capsys.readouterr()
            run(photos, captioner, best=2)
            assert table.read_bytes() == whole

            # What is dropped is said; a heading is only completed.
            said = "the last line is unfinished" in capsys.readouterr().err
            assert said == (place > len(HEADING) and whole[place - 1] != ord("\n"))

    def test_blocks_of_zeros_that_a_power_cut_leaves(self, photos, captioner):
        run(photos, captioner)
        table = Path("t.csv")
        whole = table.read_bytes()
        table.write_bytes(whole[:-20] + bytes(4000))
        assert run(photos, captioner) == [str(photos / NAMES[-1])]
        assert table.read_bytes() == whole

    def test_a_full_disk_is_one_line_and_costs_nothing(self, photos, captioner, monkeypatch):
        monkeypatch.setattr(files, "quiet", True)  # what is printed would be under the limit, too
        run(photos, captioner, "whole.csv")
        whole = Path("whole.csv").read_bytes()

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for size in (10, len(HEADING) + 5, len(whole) - 10):
            table = Path(f"{size}.csv")
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
            try:
                refused(lambda table=table: run(photos, captioner, table), f"cannot write {table}")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert table.read_bytes() == whole[:size]
            run(photos, captioner, table)
            assert table.read_bytes() == whole

    def test_a_process_that_is_killed_and_a_second_one_meanwhile(self, photos, captioner):
        run(photos, captioner, "whole.csv")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for _ in caption_folder(photos, captioner, "t.csv"):
                os.write(writing, b"one")
                signal.pause()

        assert os.read(reading, 3) == b"one"
        try:
            for name in ("t.csv", Path("t.csv").absolute(), "link.csv"):
                if name == "link.csv":
                    os.symlink("t.csv", name)
                refused(lambda name=name: run(photos, captioner, name), "by another process")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        assert len(rows()) == 1
        assert len(run(photos, captioner)) == 3
        assert Path("t.csv").read_bytes() == Path("whole.csv").read_bytes()

    def test_a_link_to_a_table_stays_one(self, photos, captioner):
        Path("there").mkdir()
        Path("there/t.csv").write_text(HEADING + "torn", encoding="utf-8")
        os.symlink("there/t.csv", "t.csv")
        assert len(run(photos, captioner)) == 4
        assert Path("t.csv").is_symlink()
        assert len(rows("there/t.csv")) == 4
        assert run(photos, captioner, "there/t.csv") == []


class TestWhoseCaptions:
    def test_rows_count_for_one_model_and_one_way_of_decoding(self, photos, captioner):
        other = tiny.decided(seed=6)
        ways = [
            (captioner, {}),
            (other, {}),
            (captioner, {"beam": 3}),
            (captioner, {"sample": 2}),
            (captioner, {"sample": 2, "seed": 1}),
            (captioner, {"sample": 2, "temperature": 0.5}),
        ]
        before = b""
        for model, options in ways:
            assert len(run(photos, model, **options)) == 4
            # What others have written stays as it is.
            assert Path("t.csv").read_bytes().startswith(before)
            before = Path("t.csv").read_bytes()
        for model, options in ways:
            assert run(photos, model, **options) == []
        assert len({row["model"] for row in rows()}) == len(ways)
        assert len(rows()) == 4 * (3 + 2 + 2 + 2)

    def test_more_captions_of_a_photograph_are_those_that_it_lacks(self, photos, captioner):
        run(photos, captioner, beam=3)
        assert len(run(photos, captioner, beam=3, best=3)) == 4
        run(photos, captioner, "whole.csv", beam=3, best=3)

        def of_photographs(table):
            captions = {}
            for row in rows(table):
                captions.setdefault(row["image"], []).append(row["caption"])
            return captions

        assert of_photographs("t.csv") == of_photographs("whole.csv")

    def test_a_model_is_known_by_its_name_and_its_weights(self, tmp_path, monkeypatch, captioner):
        monkeypatch.chdir(tmp_path)
        run_file = Path("runs/mine/model.safetensors")
        captioner.save(run_file)
        tiny.decided(seed=6).save(Path("runs/other.safetensors"))
        ids = []
        for path in ("runs/mine", run_file, tmp_path / run_file, "runs/other.safetensors"):
            ids.append(Captioner.load(path).id)
        name, checksum = ids[0].split(" ")
        assert name == "mine"
        assert captioner.id == f"tiny {checksum}"
        assert ids[:3] == [ids[0]] * 3
        assert ids[3].startswith("other ")
        assert checksum not in ids[3]

        # Trained further, under the same name.
        tiny.decided(seed=6).save(run_file)
        assert Captioner.load(run_file).id == f"mine {ids[3].split(' ')[1]}"

    def test_a_photograph_is_one_however_its_path_is_written(self, photos, captioner, monkeypatch):
        assert len(run(photos, captioner)) == 4
        assert [row["image"] for row in rows()] == [f"photos/{name}" for name in NAMES]

        here = Path.cwd()
        os.symlink("photos", "link")
        os.symlink("0.png", "photos/again.png")
        monkeypatch.setenv("HOME", str(here))
        for path in (here / "photos", "./photos/../photos", "link", "~/photos", [photos, "link"]):
            assert run(path, captioner) == []
            assert run(path, captioner, "~/t.csv") == []

        # From another folder, too.
        monkeypatch.chdir("photos/a")
        assert run([".", "..", "../0.png"], captioner, here / "t.csv") == []
        assert run("..", captioner, "inside.csv") != []
        assert all(Path(row["image"]).is_file() for row in rows("inside.csv"))
        assert run("..", captioner, "inside.csv") == []

        # The table moves with its photographs.
        monkeypatch.chdir(here)
        Path("moved").mkdir()
        shutil.move("photos", "moved/photos")
        shutil.move("t.csv", "moved/t.csv")
        assert run("moved/photos", captioner, "moved/t.csv") == []


def spreadsheet(encoding="utf-8", line_break="\r\n", comma=",", quote="", **more):
    """What a spreadsheet makes of a table of satlib's."""

    def save(text):
        lines = []
        for cells in csv.reader(text.splitlines()):
            cells = [cell.replace(".png", more.get("letters", "") + ".png") for cell in cells]
            writer_cells = [f'"{cell}"' if quote or comma in cell else cell for cell in cells]
            lines.append(comma.join(writer_cells) + line_break)
        return "".join(lines).encode(encoding)

    return save


class TestOthersTables:
    @pytest.mark.parametrize(
        "save",
        [
            pytest.param(spreadsheet("utf-8-sig"), id="Excel, CSV UTF-8"),
            pytest.param(spreadsheet(quote='"', line_break="\n"), id="all quoted"),
            pytest.param(lambda text: text.encode() + b"\r\n\n", id="blank lines at the end"),
        ],
    )
    def test_what_a_spreadsheet_saved_is_read(self, photos, captioner, save):
        assert len(run(photos / "0.png", captioner)) == 1
        table = Path("t.csv")
        table.write_bytes(save(table.read_text(encoding="utf-8")))
        before = table.read_bytes()
        assert len(run(photos, captioner)) == 3
        assert table.read_bytes().startswith(before)
        assert run(photos, captioner) == []

    @pytest.mark.parametrize(
        ("content", "parts"),
        [
            pytest.param(
                (HEADING + "café.png,a dog,0.5,x\n").encode("cp1252"),
                ("not UTF-8", "line 2"),
                id="cp1252",
            ),
            pytest.param(HEADING.encode("utf-16"), ("not UTF-8",), id="UTF-16"),
            pytest.param(
                HEADING.replace(",", ";").encode() + b"0.png;a dog;0,5;x\r\n",
                ("line 1", HEADING.strip()),
                id="semicolons",
            ),
            pytest.param(
                HEADING.replace("\n", "\r").encode() + b"0.png,a dog,0.5,x\r",
                ("t.csv",),
                id="an old Mac's line breaks",
            ),
            pytest.param(b"sep=,\n" + HEADING.encode(), ("line 1",), id="sep="),
            pytest.param(b"image,caption\n0.png,a dog\n", ("line 1",), id="a person's captions"),
            pytest.param(b"image,caption,split\n0.png,a d", ("line 1",), id="and unfinished"),
            pytest.param(b"what I must not forget", ("t.csv",), id="a line without an end"),
            pytest.param(b"\n\nnotes\n", ("t.csv",), id="blank lines first"),
            pytest.param(
                HEADING.encode() + b"0.png,a d1.png,a dog,0.5,x\n", ("line 2",), id="glued rows"
            ),
            pytest.param(HEADING.encode() + b"0.png,a dog\n", ("line 2",), id="a short row"),
            pytest.param(HEADING.encode() + b'"0.png,a dog,0.5,x\n', ("line 2",), id="a quote"),
            pytest.param(HEADING.encode() + b"x" * 140_000 + b"\n", ("line 2",), id="a long field"),
        ],
    )
    def test_another_table_is_refused_and_stays(self, photos, captioner, content, parts):
        table = Path("t.csv")
        table.write_bytes(content)
        refused(lambda: run(photos, captioner), *parts)
        assert table.read_bytes() == content

    def test_rows_without_a_model_stay_and_count_for_none(self, photos, captioner, capsys):
        earlier = "image,caption,confidence\nphotos/0.png,a dog,0.5\nphotos/1.png,a d"
        Path("t.csv").write_text(earlier, encoding="utf-8")
        assert len(run(photos, captioner)) == 4
        assert "name no model" in capsys.readouterr().err
        text = Path("t.csv").read_text(encoding="utf-8")
        assert text.startswith(HEADING + "photos/0.png,a dog,0.5,\nphotos/0.png,")
        assert run(photos, captioner) == []

    def test_there_must_be_a_folder_that_can_be_written_to(self, photos, captioner):
        Path("file").touch()
        for place in ("no folder/t.csv", "file/t.csv", "photos"):
            # A folder has another message: it cannot be read.
            refused(lambda place=place: run(photos, captioner, place), place)
        assert not Path("no folder").exists()
        assert len(list(photos.rglob("*.png"))) == 4

    @pytest.mark.parametrize("heading", ["image,caption,score,model", "image,caption,confidence"])
    def test_satlibs_captions_are_not_learnt(self, photos, captioner, heading):
        table = photos / "captions.csv"
        run(photos, captioner, table)
        refused(lambda: datasets.load(str(photos)), "captions.csv", "not a person's")

        # Whichever way a spreadsheet saved them.
        cells = ",".join(["0.png", "a dog", "0.5", "x"][: heading.count(",") + 1])
        table.write_text(f"\ufeff{heading}\r\n{cells}\r\n", encoding="utf-8")
        refused(lambda: datasets.load(str(photos)), "captions.csv", "not a person's")
        table.write_text("image,caption\n0.png,a dog\n", encoding="utf-8")
        assert len(datasets.load(str(photos))) == 1


class TestPictures:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch):
        """A drawing that takes no time: these tests ask where it goes."""

        def draw(photo, words, alphas, betas, path, view):
            path.parent.mkdir(exist_ok=True)
            path.write_text("a picture", encoding="utf-8")

        monkeypatch.setattr(plots, "attention_figure", draw)

    def test_each_photograph_keeps_its_own(self, photos, captioner):
        """Names that are the same without folder, ending, case or the form of an accent."""
        original = photos / "0.png"
        accents = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
        names = ["b/1.png", "b/1-2.png", "b/1.jpg", "A.png", "x.1.png", "x.2.png", "n" * 240]
        names += [f"b/{accent}.png" for accent in accents]
        for name in names:
            target = (photos / name).with_suffix(Path(name).suffix or ".png")
            target.parent.mkdir(exist_ok=True)
            shutil.copy(original, target)
        if not (photos / "a.png").exists():  # where the file system tells A from a
            shutil.copy(original, photos / "a.png")

        out = Path("out")
        pictures = {}
        for result in caption_folder(photos, captioner, out=out):
            pictures[result.path] = result.picture
        found = list(out.iterdir())
        assert len(found) == len(pictures) == len(images.files_in(photos))
        assert len({unicodedata.normalize("NFC", str(p)).casefold() for p in found}) == len(found)

        # A second run draws one anew and leaves all others.
        for picture in found:
            picture.unlink()
        chosen = photos / "b" / "1.png"
        (result,) = caption_folder(chosen.absolute(), captioner, out=out.absolute())
        assert result.picture == pictures[chosen].absolute()
        assert list(out.iterdir()) == [pictures[chosen]]

    def test_pictures_are_no_photographs(self, photos, captioner, monkeypatch):
        """Wherever they are drawn, and however that is written."""
        for out in (photos / "maps", Path("photos/maps").absolute(), "photos/../photos/maps"):
            assert len(list(caption_folder(photos, captioner, out=out))) == 4
            assert len(list(caption_folder(photos.absolute(), captioner, out=out))) == 4
        refused(lambda: run(photos, captioner, None, out=photos.absolute()), "another folder")
        monkeypatch.chdir("photos")
        assert len(list(caption_folder(".", captioner, out="maps"))) == 4
        assert len(list(caption_folder("a", captioner, out="."))) == 2


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "._0.png",
            ".0.png",
            ".thumbnails/0.png",
            ".ipynb_checkpoints/0.png",
            "a/.git/x/0.png",
            "__MACOSX/0.png",
            "@eaDir/0.png/SYNOPHOTO_THUMB_M.png",
            "$RECYCLE.BIN/0.png",
        ],
    )
    def test_hidden_files_are_no_photographs(self, photos, captioner, name):
        hidden = photos / name
        hidden.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photos / "0.png", hidden)
        assert run(photos, captioner) == [str(photos / name) for name in NAMES]

        # Nor are they for training: each photograph has its captions.
        for photo in NAMES:
            (photos / photo).with_suffix(".txt").write_text("a dog", encoding="utf-8")
        assert len(datasets.load(str(photos))) == 4

        # Asked for by name, they are.
        assert run(hidden, captioner, "hidden.csv") == [str(hidden)]
        assert len(run(hidden.parent, captioner, "folder.csv")) >= 1

    def test_a_folder_called_like_a_photograph(self, photos, captioner):
        shutil.move(photos / "a", photos / "a.png")
        assert len(run(photos, captioner)) == 4

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
    @pytest.mark.parametrize("name", [b"caf\xe9.png", b"two\nlines.png"])
    def test_a_name_that_no_table_can_hold_is_named_and_costs_no_other(
        self, photos, captioner, name
    ):
        odd = photos / os.fsdecode(name)
        shutil.copy(photos / "0.png", odd)
        results = list(caption_folder(photos, captioner, "t.csv"))
        (error,) = [result.error for result in results if result.error]
        assert repr(str(odd)) in str(error)
        assert len(rows()) == 4
        assert len(list(caption_folder(photos, captioner, "t.csv"))) == 1

        # A picture can have any name.
        (result,) = caption_folder(odd, captioner)
        assert result.picture.is_file()

        for photo in [*NAMES, odd.name]:
            (photos / photo).with_suffix(".txt").write_text("a dog", encoding="utf-8")
        refused(lambda: datasets.load(str(photos)), repr(odd.name))


class TestSamples:
    def test_near_zero_temperature_they_are_the_greedy_caption(self, photos, captioner):
        paths = [photos / name for name in NAMES]
        for greedy, samples in zip(
            captioner.caption(paths, beam=1), captioner.samples(paths, 3, 0.01), strict=True
        ):
            assert len(samples) == 3
            for sample in samples:
                assert sample.words == greedy.words
                assert sample.log_probability == pytest.approx(greedy.log_probability, abs=1e-4)
                assert (sample.alphas - greedy.alphas).abs().max() < 1e-5
                assert sample.betas.shape == greedy.betas.shape

    def test_a_seed_draws_the_same_of_a_photograph_whatever_else_is_asked_for(
        self, photos, captioner
    ):
        def texts(paths, **options):
            samples = captioner.samples(paths, 6, **options)
            return [[sample.text for sample in each] for each in samples]

        paths = [photos / name for name in NAMES]
        drawn = texts(paths)
        assert texts(paths) == drawn
        assert texts(paths[2:3]) == drawn[2:3]
        assert texts(paths, seed=1) != drawn
        assert max(len(set(each)) for each in drawn) > 1

    def test_of_every_kind_of_decoder(self, photos):
        for changes in (("decoder.kind=transformer",), ("decoder.attention=hard",)):
            captioner = tiny.decided(changes=changes)
            (samples,) = captioner.samples([photos / "0.png"], 2)
            for sample in samples:
                assert sample.alphas.shape == (len(sample.words) + 1, *tiny.GRID)
                assert 0 < sample.confidence <= 1
