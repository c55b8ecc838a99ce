"""`satlib doctor`."""

import argparse
from pathlib import Path

from satlib.cli.arguments import MODEL, Commands, command, data_option, device_option, json_option, printed


def add_doctor(commands: Commands) -> None:
    """`satlib doctor`."""
    parser = command(
        commands,
        "doctor",
        doctor,
        "examine a run or a model for what usually goes wrong, and say what to do; 1 if something is",
    )
    parser.add_argument("model", type=Path, metavar="RUN", help=MODEL)
    json_option(parser)
    data_option(parser)
    device_option(parser)


def doctor(options: argparse.Namespace) -> int:
    """Examine a run or a model."""
    from satlib.data import datasets
    from satlib.model import device
    from satlib.training import doctor

    findings = doctor.examine(options.model, datasets.data_root(options.data), device.choose(options.device))
    if options.json:
        printed(doctor.to_json(findings))
    else:
        print(doctor.render(findings))
    return int(any(finding.state == "wrong" for finding in findings))


COMMANDS = (add_doctor,)
