"""Made-up annotations in the layout of Flickr30k Entities."""

CHILD = "[/EN#1/people A child] in [/EN#2/clothing a pink dress] near [/EN#3/scene the hills] ."
GIRL = "[/EN#1/people The girl] 's [/EN#2/clothing/other dress] , [/EN#0/notvisual which] is pink ."

# A person, a dress inside the person's box, and a scene, which has no box.
OBJECTS = (
    (("1",), (20, 10, 60, 90)),
    (("2",), (20, 50, 60, 70)),
    (("3",), None),
)


def annotation(size=(200, 100), objects=OBJECTS):
    """The XML of a photograph; an object without corners has no box."""
    body = ""
    for names, corners in objects:
        inner = "".join(f"<name>{name}</name>" for name in names)
        if corners is None:
            inner += "<scene>1</scene><nobndbox>1</nobndbox>"
        else:
            inner += "<bndbox>"
            for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True):
                inner += f"<{tag}>{value}</{tag}>"
            inner += "</bndbox>"
        body += f"<object>{inner}</object>\n"

    width, height = size
    head = f"<size><width>{width}</width><height>{height}</height></size>"
    return f"<annotation>\n{head}\n{body}</annotation>\n"


def write(folder, images):
    """A folder with {number: (XML, captions)}."""
    annotations = folder / "Annotations"
    sentences = folder / "Sentences"
    for part in (annotations, sentences):
        part.mkdir(parents=True, exist_ok=True)

    for number, (xml, captions) in images.items():
        text = "\n".join(captions) + "\n"
        (annotations / f"{number}.xml").write_text(xml, encoding="utf-8")
        (sentences / f"{number}.txt").write_text(text, encoding="utf-8")
    return folder
