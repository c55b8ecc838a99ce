"""What captions invent: words that are false of a scene, and objects that nobody mentions in a photograph.

**Scenes** know the truth. Each noun phrase is compared with the object of the scene that most of its words fit, and each of its
words is true or false of that object. A phrase invents an object if neither object has its colour and its shape. The relation
is judged where a caption is a sentence of the grammar whose two phrases fit different objects.

**Photographs** have captions only, so an object counts as invented if no reference of the photograph mentions one of its kind.
That is CHAIR (Rohrbach et al., 2018, arXiv:1809.02156) with captions in place of COCO's masks: "invented objects" is its CHAIR_i,
"captions that invent" its CHAIR_s. Two limits: people do not mention all that they see, so the figures are too high, the same for
every model; and only the words of `KINDS` count. Words of one line are one kind: "man" for a woman is no invention here.
"""

from collections.abc import Mapping, Sequence

from satlib.data import scenes
from satlib.data.caption_set import Example
from satlib.data.scenes import Scene
from satlib.data.scenes_grammar import Meaning
from satlib.data.text import tokenise
from satlib.evaluation.statistics import INVENTIONS

# Common objects of everyday photographs, one kind a line; a plural with -s or -es need not be listed.
KINDS = """
person people man men woman women boy girl child children kid baby babies toddler lady ladies guy gentleman gentlemen teenager adult player
 athlete rider biker bicyclist cyclist motorcyclist skateboarder snowboarder skier surfer swimmer climber hiker runner racer worker dancer
 singer musician policeman policemen crowd spectator family families team bride
dog puppy puppies greyhound poodle terrier retriever shepherd hound
cat kitten
horse pony ponies
cow bull cattle calf
sheep lamb goat
bird duck goose geese seagull pigeon swan
elephant
ball basketball football baseball volleyball softball soccerball
frisbee disc
bat racket racquet
stick branch branches log
skateboard
snowboard
surfboard
ski
sled sleigh toboggan
bike bicycle motorbike motorcycle scooter moped dirtbike
car truck van vehicle jeep taxi suv
bus
train subway
boat canoe kayak raft ship sailboat
airplane plane jet helicopter
kite
bench
chair couch sofa seat stool
table desk
bed
umbrella parasol
tent
backpack bag purse suitcase luggage
camera
guitar drum piano violin trumpet instrument
microphone
phone cellphone telephone
computer laptop
book newspaper magazine
bottle cup mug glass
cigarette cigar
food pizza sandwich sandwiches cake bread fruit apple banana
helmet
hat cap hood beanie
glasses sunglasses goggles
tree
flower
grass lawn
sand
snow
rock boulder cliff
mountain hill
water ocean sea lake river pond pool stream
waterfall fountain
street road sidewalk
bridge
building house tower church
fence railing
wall
window
trampoline
statue sculpture
flag
fire bonfire
"""
_KIND_OF = {
    form: line.split()[0]
    for line in KINDS.strip().replace("\n ", " ").splitlines()
    for word in line.split()
    for form in (word, f"{word}s", f"{word}es")
}


def measure(texts: Mapping[str, str], examples: Sequence[Example], data: str) -> dict[str, list[float]]:
    """Columns of statistics, a number for each image: how many things of each sort a caption says, and how many of them are false.

    Args:
        texts: a caption for each image, by its id.
        examples: the images.
        data: the name of their set.
    """
    rows = []
    for example in examples:
        text, image_id = texts[example.image_id], example.image_id
        row = of_scene(text, scenes.scene(image_id)) if data == "scenes" else of_photograph(text, example.references)
        rows.append(row | {"captions that invent": int(row["invented objects"] > 0)})
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def objects(text: str) -> set[str]:
    """The kinds of objects that a caption mentions."""
    return {_KIND_OF[word] for word in tokenise(text) if word in _KIND_OF}


def of_photograph(text: str, references: Sequence[str]) -> dict[str, int]:
    """How many kinds of objects a caption mentions, and how many of these no reference does."""
    ours, theirs = objects(text), set().union(*map(objects, references))
    return {"objects": len(ours), "invented objects": len(ours - theirs)}


def of_scene(text: str, scene: Scene) -> dict[str, int]:
    """How many attributes, objects and relations a caption of a scene states, and how many of these are false."""
    found = dict.fromkeys((*INVENTIONS, *INVENTIONS.values()), 0)
    phrases, fitted = scenes.grammar.phrases(tokenise(text)), {}
    for phrase in phrases:
        said = list(phrase.attributes.values())
        best = max(scene.objects, key=lambda thing: sum(getattr(thing, name) == value for name, value in said))
        fitted[phrase.kind] = best
        for name, value in said:
            found[f"{name}s"] += 1
            found[f"wrong {name}"] += getattr(best, name) != value
        found["objects"] += 1
        found["invented objects"] += not any(
            all(getattr(thing, name) == value for name, value in said if name in ("colour", "shape"))
            for thing in scene.objects
        )
    meaning = scenes.grammar.parse(text)
    if meaning is not None and fitted[meaning.first] is not fitted[meaning.second]:
        first, second = fitted[meaning.first].kind, fitted[meaning.second].kind
        found["relations"] += 1
        found["wrong relation"] += Meaning.of(first, meaning.relation, second) != scene.meaning
    return found
