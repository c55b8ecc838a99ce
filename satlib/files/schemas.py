"""Forms of files that `satlib.evaluation.ground` reads."""

from msgspec import Struct

from satlib.files.reading import Name, Size


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
