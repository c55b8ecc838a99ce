"""The sections of a recipe that need no torch, so that the command line can read them at once.

The other two are declared beside the code that they configure: `decoder.DecoderConfig` and `reward.RewardConfig`.
"""

from dataclasses import dataclass

from satlib.data.text import LANGUAGES
from satlib.options import option

LOOKS = ("expected", "probable", "sample")  # what hard attention passes on when it generates captions
VIEWS = ("whole", "crop")  # which part of a photograph the encoder sees
SAVE_SECONDS = 600.0  # a checkpoint is written within an epoch when the last one is this old


@dataclass(frozen=True)
class DataConfig:
    """The captions, and how they become word ids."""

    name: str = option(
        "flickr8k", "the data set: its name, the path of your own folder, or the folder or address of shards"
    )
    language: str = option(
        "",
        "the language of the captions, if it is written without spaces between words; each character is then a token",
        choices=("", *LANGUAGES),
    )
    vocabulary_size: int = option(
        10_000,
        "K, the largest size of the vocabulary, special tokens included",
        at_least=3,
        at_most=1_000_000,
        unit="words",
    )
    min_count: int = option(
        1,
        "how often a word must occur in the training captions to enter the vocabulary; rarer words become unknown",
        at_least=1,
    )
    max_length: int = option(
        40,
        "the length of the longest caption that is trained on; longer ones are left out",
        at_least=1,
        at_most=1000,
        unit="words",
    )
    train_images: int = option(
        0,
        "the number of training images, from the first; 0 takes all of them (of drawn scenes, the default number)",
        at_least=0,
        unit="images",
    )
    buffer: int = option(
        4000,
        "the size of the shuffle buffer that the next caption is drawn from, for data in shards",
        at_least=1,
        at_most=10_000_000,
        unit="captions",
    )


@dataclass(frozen=True)
class EncoderConfig:
    """The network that turns an image into annotation vectors."""

    name: str = option("vgg19", "the encoder: one of those that satlib info lists, or timm:NAME")
    pretrained: bool = option(True, "whether the encoder starts from its trained weights")
    train: bool = option(
        False,
        "whether the encoder is trained with the decoder; if not, it is frozen and its annotation vectors are computed "
        "once, by satlib features",
    )
    frozen_statistics: bool = option(
        False,
        "whether an encoder that trains keeps its batch normalisation as it is: running statistics, scale and shift; "
        "advisable with pretrained weights and small batches",
    )
    scale: float = option(
        1.0,
        "the factor that annotation vectors are multiplied by; large vectors saturate an untrained LSTM. 0 measures it when "
        "training begins: 1 / root mean square of the vectors of some training images",
        at_least=0,
    )
    view: str = option(
        "whole",
        "the part of a photograph that the encoder sees: whole (all of it, squeezed to a square) or crop (its middle, as in "
        "the paper)",
        choices=VIEWS,
    )


@dataclass(frozen=True)
class ObjectiveConfig:
    """The loss."""

    maximise: str = option(
        "likelihood",
        "the training objective: likelihood (of the true captions) or reward (of captions that the model generates; needs a "
        "trained model, see --start)",
        choices=("likelihood", "reward"),
    )
    doubly_stochastic: float = option(
        1.0,
        "lambda, the weight of the doubly stochastic penalty (equation 14); with hard attention it is 0 unless the recipe "
        "gives it",
        at_least=0,
    )
    boxes: float = option(
        0.0,
        "the weight of the loss that draws the map of a phrase's last word into the boxes that people gave for the phrase "
        "(needs --entities); 0 trains without boxes",
        at_least=0,
    )
    label_smoothing: float = option(
        0.0, "the share of each target that is spread evenly over the vocabulary", at_least=0, below=1
    )
    distillation: float = option(
        0.5, "the weight of the distillation loss, if there are teachers (--teacher)", at_least=0, below=1
    )


@dataclass(frozen=True)
class HardConfig:
    """The estimator of the gradient of hard attention's bound (section 4.1); no effect with soft attention."""

    samples: int = option(1, "N, the number of attention paths sampled per caption", at_least=1, at_most=1000)
    expectation: float = option(
        0.5,
        "the probability that an image uses the expected context vector in place of a sampled one",
        at_least=0,
        below=1,
    )
    anneal: float = option(
        0.0,
        "the share of training over which that probability falls from 1 to hard.expectation; 0 keeps it constant",
        at_least=0,
        below=1,
    )
    reward: str = option(
        "sentence",
        "the reward of a place: sentence (the paper's: log p of the whole caption) or to-come (log p of the words from t on)",
        choices=("sentence", "to-come"),
    )
    baseline: str = option(
        "moving-average",
        "the baseline that is subtracted from the reward: moving-average (the paper's), none, other-samples (their mean "
        "reward) or learned (a linear function of the LSTM state, added to the moving average)",
        choices=("moving-average", "none", "other-samples", "learned"),
    )
    lambda_r: float = option(1.0, "lambda_r, the weight of the score-function term", at_least=0)
    lambda_e: float = option(0.01, "lambda_e, the weight of the entropy term", at_least=0)


@dataclass(frozen=True)
class TrainingConfig:
    """The optimiser, the schedule, and early stopping."""

    optimiser: str = option(
        "adam",
        "the optimiser: adam, or rmsprop in Graves' form (the paper's choice for Flickr8k)",
        choices=("adam", "rmsprop"),
    )
    learning_rate: float = option(
        5e-4, "the peak learning rate of the decoder, and of an encoder that is trained from scratch", at_least=0
    )
    encoder_learning_rate: float = option(
        1e-4, "the peak learning rate of an encoder that is trained from pretrained weights", at_least=0
    )
    schedule: str = option(
        "constant",
        "the learning rate after the warm-up: constant, or cosine (falls to zero by the last epoch)",
        choices=("constant", "cosine"),
    )
    warmup: int = option(
        0, "the number of batches over which the learning rate grows from zero", at_least=0, unit="batches"
    )
    batch_size: int = option(
        64, "the number of captions in a batch; of images, if the objective is reward", at_least=1, at_most=100_000
    )
    epochs: int = option(30, "the largest number of epochs", at_least=1, unit="epochs")
    select: str = option(
        "bleu4",
        "the dev score that selects the best epoch: bleu4 or reward (of generated captions), or nll (of the true captions)",
        choices=("bleu4", "nll", "reward"),
    )
    patience: int = option(
        10,
        "the number of epochs without a better dev score after which training stops early",
        at_least=1,
        unit="epochs",
    )
    drop_places: float = option(
        0.0,
        "the share of the places that a batch leaves out, drawn anew for each batch; the decoder sees the others only",
        at_least=0,
        below=1,
    )
    drop_dimensions: float = option(
        0.0,
        "the dropout rate of the annotation vectors' dimensions: a caption loses the same ones in all places",
        at_least=0,
        below=1,
    )
    clip: float = option(5.0, "the largest norm of the gradient; 0 turns clipping off", at_least=0)
    average: float = option(
        0.0,
        "the decay of the moving average of the weights, which is evaluated and saved in place of the weights; 0 turns it off",
        at_least=0,
        below=1,
    )
    precision: str = option(
        "auto",
        "the number format of matrix products; auto is bf16 on a GPU with bf16 hardware, fp16 on any other GPU, and float32 elsewhere",
        choices=("auto", "float32", "bf16", "fp16"),
    )
    loop: str = option(
        "plain",
        "the decoder's loop over words: plain runs Decoder.step word by word; fast is a hand-written equivalent that uses "
        "about a third of the memory on a CPU",
        choices=("plain", "fast"),
    )
    seed: int = option(0, "the seed of all random numbers", at_least=0)


@dataclass(frozen=True)
class DecodingConfig:
    """How captions are generated."""

    beam: int = option(3, "the beam width; 1 is greedy decoding", at_least=1, at_most=100, unit="hypotheses")
    length_normalisation: float = option(
        0.0, "the exponent x that hypotheses are ranked by: log p / length^x; 0 ranks by log p", at_least=0
    )
    max_length: int = option(
        30, "the largest number of words in a generated caption", at_least=1, at_most=1000, unit="words"
    )
    look: str = option(
        "expected",
        "the context vector that hard attention passes on: expected (the weighted mean), probable (the place with the largest "
        "weight), or sample (a place drawn by the weights)",
        choices=LOOKS,
    )
