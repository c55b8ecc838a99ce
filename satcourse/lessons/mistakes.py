"""What captions of scenes say wrongly, for notebook 10: were the maps on the right object all the same?"""

from collections.abc import Sequence

from satlib.data import scenes
from satlib.data.caption_set import Example
from satlib.evaluation.maps import Target


def scene_mistakes(example: Example, words: Sequence[str]) -> list[Target]:
    """The words of a caption that are wrong about the object that the rest of their phrase means.

    Their regions are the object's visible pixels. A phrase that matches both objects equally well
    (`scenes.mentions`) has no such words.
    """
    scene = scenes.scene(example.image_id)
    masks = scene.masks
    numbers = scenes.mentions(words, scene)  # for each word, of the object that it describes

    targets = []
    for phrase in scenes.grammar.phrases(words):
        described = {numbers[index] for index in phrase.attributes} - {None}
        for number in described:
            for index, (kind, _) in phrase.attributes.items():
                if numbers[index] is None:
                    target = Target(index, (kind,), masks[number])
                    targets.append(target)
    return targets
