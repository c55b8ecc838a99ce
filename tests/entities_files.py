"""Made-up annotations in the layout of Flickr30k Entities."""

CHILD = "[/EN#1/people A child] in [/EN#2/clothing a pink dress] near [/EN#3/scene the hills] ."
GIRL = "[/EN#1/people The girl] 's [/EN#2/clothing/other dress] , [/EN#0/notvisual which] is pink ."


def annotation(
    size=(200, 100),
    objects=((("1",), (20, 10, 60, 90)), (("2",), (20, 50, 60, 70)), (("3",), None)),
):
    """The XML of a photograph; an object without corners has no box."""
    body = ""
    for names, corners in objects:
        inner = "".join(f"<name>{name}</name>" for name in names)
        if corners is None:
            inner += "<scene>1</scene><nobndbox>1</nobndbox>"
        else:
            tags = zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True)
            inner += (
                "<bndbox>" + "".join(f"<{tag}>{value}</{tag}>" for tag, value in tags) + "</bndbox>"
            )
        body += f"<object>{inner}</object>\n"
    width, height = size
    return f"<annotation>\n<size><width>{width}</width><height>{height}</height></size>\n{body}</annotation>\n"


def write(folder, images):
    """A folder with {number: (XML, captions)}."""
    for name in ("Annotations", "Sentences"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number, (xml, captions) in images.items():
        (folder / "Annotations" / f"{number}.xml").write_text(xml, encoding="utf-8")
        (folder / "Sentences" / f"{number}.txt").write_text(
            "\n".join(captions) + "\n", encoding="utf-8"
        )
    return folder
