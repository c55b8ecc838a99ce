"""The forms of the files that satlib reads: each is declared once, here, and a file is compared with its form before it is used.

A file may come from a stranger, another program or a disk that was full. `satlib.files.atomic.read_json` and
`satlib.files.untrusted.matches` refuse what has another form, with the place of the mistake ("images[3].split"). Fields that a form does not name are allowed, unless it says
otherwise. Recipes are declared in `satlib.configs`, with a range for each option.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]
Values = dict[str, str | int | float | bool]  # a section of a recipe


class EncoderHeader(Struct):
    """The encoder of a model; `weights` is the SHA-256 of frozen ones."""

    name: str
    weights: str | None = None


class FamiliarityHeader(Struct):
    """`satlib.model.familiarity`: int8 directions in base64, a scale for each, and the largest distance that is familiar."""

    directions: str
    scales: Annotated[list[float], Meta(min_length=1)]
    threshold: float


class ModelHeader(Struct):
    """The header of model.safetensors (`satlib.model.captioner`)."""

    recipe: dict[str, str | Values]
    vocabulary: list[str]
    encoder: EncoderHeader
    card: dict[str, Any] = {}
    own_attention: str | None = field(name="own attention", default=None)
    origins: list[str] = []
    familiarity: FamiliarityHeader | None = None


class EpochRecord(Struct):
    """A line of a run's log; the other figures depend on the recipe."""

    epoch: Size
    kept: bool
    dev_nll: float
    dev_bleu4: float
    seconds: float = 0.0


class ProgressForm(Struct, forbid_unknown_fields=True):
    """How far a run has come (`satlib.training.checkpoint.Progress`)."""

    epoch: Count = 0
    batch: Count = 0
    sums: dict[str, float] = {}
    words: Count = 0
    captions: Count = 0
    sampled: Count = 0
    seconds: float = 0.0
    history: list[EpochRecord] = []


class CheckpointHeader(Struct):
    """The header of checkpoint.safetensors (`satlib.training.checkpoint`)."""

    recipe: dict[str, str | Values]
    captions: str
    progress: ProgressForm
    teachers: list[str] | None = None
    origins: list[str] = []
    scaler: dict[str, float] = {}


class Owner(Struct):
    """Who works in a run's folder (`satlib.training.run_lock`)."""

    pid: Count
    host: str
    since: str


class Statistics(Struct):
    """The statistics of each image in an evaluation (`satlib.evaluation.statistics`)."""

    columns: list[str]
    images: dict[str, list[float | None]]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.images.values()):
            raise ValueError("an image has more or fewer numbers than there are columns")


class Evaluation(Struct):
    """evaluation-SPLIT.json (`satlib.evaluation.evaluate`)."""

    recipe: str
    data: str
    split: str
    encoder: str
    attention: str
    protocol: str
    beam: Size
    metrics: dict[str, float]
    view: str = ""
    length_normalisation: float | None = None
    look: str | None = None
    captions: dict[str, str] = {}
    notes: list[str] = []
    origins: list[str] = []
    statistics: Statistics | None = None


class Rescored(Struct):
    """What `satlib score` needs of an earlier evaluation; the rest it passes on."""

    captions: dict[str, str]
    data: str | None = None
    split: str | None = None
    metrics: dict[str, float] = {}


class WordList(Struct):
    """vocabulary.json of a language that is written without spaces."""

    words: list[str]
    language: str


class KarpathySentence(Struct):
    """A caption."""

    raw: str


class KarpathyImage(Struct):
    """An image with its captions."""

    filename: Name
    split: str
    sentences: list[KarpathySentence]
    filepath: str = ""


class Karpathy(Struct):
    """dataset_*.json (`satlib.data.karpathy`)."""

    images: list[KarpathyImage]


class CocoImage(Struct):
    """An image of COCO."""

    id: int
    file_name: Name


class CocoCaption(Struct):
    """A caption of COCO."""

    id: int
    image_id: int
    caption: str


class CocoCaptions(Struct):
    """captions_*.json (`satlib.data.coco`)."""

    images: list[CocoImage]
    annotations: list[CocoCaption]


class CocoPhotograph(Struct):
    """An image of COCO and its size in pixels."""

    id: int
    file_name: Name
    width: Size
    height: Size


class CocoCategory(Struct):
    """A kind of object."""

    id: int
    name: Name


class CocoBox(Struct):
    """An object: left, top, width and height in pixels."""

    image_id: int
    category_id: int
    bbox: tuple[float, float, float, float]


class CocoInstances(Struct):
    """instances_*.json (`satlib.evaluation.ground`)."""

    images: list[CocoPhotograph]
    categories: list[CocoCategory]
    annotations: list[CocoBox]


class FolderRow(Struct):
    """A row of your own captions.json (`satlib.data.folder`)."""

    image: str
    caption: str | list[str]
    split: str | None = None


class ExportedFile(Struct):
    """A file of an export."""

    bytes: Count
    sha256: str


class ExportedImage(Struct):
    """The pictures of an exported model."""

    view: str


class ExportedWords(Struct):
    """The words of an exported model."""

    language: str


class ExportedDecoding(Struct):
    """How an exported model captions."""

    max_length: Annotated[int, Meta(ge=1, le=1000)]


class OnnxManifest(Struct):
    """manifest.json of `satlib export --onnx` (`satlib.page.reader`)."""

    format: str
    files: dict[Annotated[str, Meta(pattern=r"^[\w.-]+$")], ExportedFile]
    image: ExportedImage
    words: ExportedWords
    decoding: ExportedDecoding
