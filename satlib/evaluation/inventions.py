"""What captions invent in photographs: CHAIR (Rohrbach et al., 2018, arXiv:1809.02156) with captions in place of COCO's masks.

An object counts as invented if no reference of the photograph mentions one of its kind: "invented objects" is CHAIR_i, "captions
that invent" CHAIR_s. Two limits: people do not mention all that they see, so the figures are too high, the same for every model;
and only the words of `KINDS` count. Words of one kind are equal: "man" for a woman is no invention here.
"""

from collections.abc import Mapping, Sequence

from satlib.data.text import tokenise

# Common objects of everyday photographs; a plural with -s or -es need not be listed.
KINDS = """
person people man men woman women boy girl child children kid baby babies toddler lady ladies guy gentleman gentlemen
teenager adult player athlete rider biker bicyclist cyclist motorcyclist skateboarder snowboarder skier surfer swimmer
climber hiker runner racer worker dancer singer musician policeman policemen crowd spectator family families team
bride; dog puppy puppies greyhound poodle terrier retriever shepherd hound; cat kitten; horse pony ponies; cow bull
cattle calf; sheep lamb goat; bird duck goose geese seagull pigeon swan; elephant; ball basketball football baseball
volleyball softball soccerball; frisbee disc; bat racket racquet; stick branch branches log; skateboard; snowboard;
surfboard; ski; sled sleigh toboggan; bike bicycle motorbike motorcycle scooter moped dirtbike; car truck van vehicle
jeep taxi suv; bus; train subway; boat canoe kayak raft ship sailboat; airplane plane jet helicopter; kite; bench;
chair couch sofa seat stool; table desk; bed; umbrella parasol; tent; backpack bag purse suitcase luggage; camera;
guitar drum piano violin trumpet instrument; microphone; phone cellphone telephone; computer laptop; book newspaper
magazine; bottle cup mug glass; cigarette cigar; food pizza sandwich sandwiches cake bread fruit apple banana; helmet;
hat cap hood beanie; glasses sunglasses goggles; tree; flower; grass lawn; sand; snow; rock boulder cliff; mountain
hill; water ocean sea lake river pond pool stream; waterfall fountain; street road sidewalk; bridge; building house
tower church; fence railing; wall; window; trampoline; statue sculpture; flag; fire bonfire
"""
_KIND = {
    form: words.split()[0]
    for words in KINDS.split(";")
    for word in words.split()
    for form in (word, f"{word}s", f"{word}es")
}


def objects(text: str) -> set[str]:
    """The kinds of objects that a caption mentions, each by its first word in `KINDS`."""
    return {_KIND[word] for word in tokenise(text) if word in _KIND}


def measure(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """The columns of an evaluation: in each caption, the objects, the invented ones, and whether there are any."""
    columns: dict[str, list[float]] = {"objects": [], "invented objects": [], "captions that invent": []}
    for image, caption in captions.items():
        mentioned = objects(caption)
        invented = mentioned - set().union(*map(objects, references[image]))
        for column, number in zip(columns.values(), (len(mentioned), len(invented), bool(invented)), strict=True):
            column.append(float(number))
    return columns
