"""Do the tests notice mistakes? `python tools/mutate.py [satlib/model/attention.py ...] [--sample N] [--seed 0] [--processes 1]`.

Each module is changed in one place at a time (an operator, a sign, a comparison, a constant, an axis, a dropped statement,
argument, `detach` or decorator, ...), and the module's tests are run until one fails. A change that no test notices is printed:
either a test is missing, or the change is no mistake. The latter are listed with their reasons in tools/mutate-judged.toml and do
not count. The exit status is 1 if the tests notice less than 95 % of the remaining changes of a module.

A parent process imports torch and the tests' libraries once; each change is tried in a fork of it, which imports satlib afresh.
"""

import argparse
import ast
import gc
import importlib
import importlib.machinery
import importlib.util
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
from mutate_source import Mutant, mutants

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
JUDGED = Path(__file__).with_name("mutate-judged.toml")
LEAST = 0.95  # share of changes that must be caught
MEMORY = 6 * 2**30  # bytes that the tests of a change may use
_HARD, _REWARD, _DISTILLATION = "tests/test_hard.py::", "tests/test_reward.py::", "tests/test_distillation.py::"
_TRAINING, _SHARDS = "tests/test_training.py::", "tests/test_shards.py::TestTraining::"
_STOPPED = _TRAINING + "TestResuming::test_stopped_and_resumed_is_the_run_that_was_not"
_RUNS = (
    "tests/test_loss.py",
    *(
        _TRAINING + name
        for name in ("TestSchedule", "TestSession", "TestOptimiser", "TestOnEpoch", "TestNotFinite", "TestRefusals")
    ),
    _TRAINING + "TestScaledLoss",
    _TRAINING + "test_stops_after_patience_and_keeps_the_best",
    _TRAINING + "TestRun::test_a_run_is_a_folder",
    _TRAINING + "TestRun::test_the_log_says_the_loss_of_the_training",
    _TRAINING + "TestRun::test_dev_nll_is_the_mean_over_words_of_one_caption_at_a_time",
    _TRAINING + "TestRun::test_scenes_by_an_encoder_from_scratch",
    _STOPPED + "[1.5-adam, averaged, warm-up and cosine]",
    _STOPPED + "[0.2-an encoder that trains]",
    _TRAINING + "TestResuming::test_more_epochs_go_on_where_fewer_ended",
    _TRAINING + "TestResuming::test_handlers_are_given_back",
    "tests/test_scale.py",
    "tests/test_fast.py::TestTraining::test_a_run_of_an_older_version_may_choose_its_loop",
    _REWARD + "TestTraining::test_the_epoch_is_chosen_by_the_reward_of_greedy_captions",
    _REWARD + "TestTraining::test_needs_a_model_to_begin_with",
    _DISTILLATION + "TestTraining::test_the_loss_is_shared_out",
    _DISTILLATION + "TestTraining::test_resumed_is_the_run_that_was_not_stopped_and_by_the_same_teachers",
    _DISTILLATION + "TestTraining::test_not_with_rewards",
    _SHARDS + "test_what_a_stream_cannot_do",
    _HARD + "TestTraining::test_begins_with_the_weights_of_a_soft_model",
    _HARD + "TestTraining::test_start_of_another_shape_is_refused",
    _HARD + "TestTraining::test_start_with_another_vocabulary_is_refused",
    _HARD + "TestTraining::test_resumed_is_the_run_that_was_not_stopped",
)
TESTS: dict[str, tuple[str, ...]] = {  # module -> its tests, the quick ones first
    "attention": ("tests/test_attention.py", "tests/test_soft_attention.py", _HARD + "TestLooking"),
    "decoder": ("tests/test_decoder.py", "tests/test_fast.py", "tests/test_soft_attention.py"),
    "fast": ("tests/test_fast.py",),
    "fast_loop": ("tests/test_fast.py",),
    "objectives": (
        "tests/test_objectives.py",
        "tests/test_loss.py",
        _HARD + "TestTerms",
        _HARD + "TestLooking",
        _DISTILLATION + "TestLoss",
        _REWARD + "test_self_critical_by_hand",
        _REWARD + "test_places_drawn_after_the_end_do_not_count",
    ),
    "decoding": ("tests/test_decoding.py",),
    "batching": ("tests/test_batching.py",),
    "reward": (
        _REWARD + "TestConsensus",
        _REWARD + "TestConsensusParts",
        _REWARD + "test_bad_options",
    ),
    "meteor": ("tests/test_meteor.py",),
    "distillation": (
        "tests/test_scale.py::test_it_reaches_teachers",
        _DISTILLATION + "TestLoss",
        _DISTILLATION + "TestTeachers",
        _DISTILLATION + "TestTraining::test_the_loss_is_shared_out",
    ),
    **dict.fromkeys(("training", "checkpoint", "optimisation", "validation", "training_data"), _RUNS),
}
# Tests that start Java, or other processes, which would import the unchanged module.
LEFT_OUT = ("program_told_to_do_with_equal_words", "what_it_was_distilled_from", "evaluated_by_each_look", "kill_9")
# Imported before forking, so that no child has to load it; satlib itself is then removed from sys.modules.
LOADED = (
    "torch._dynamo",
    "satlib.training.loop",
    "satlib.evaluation.evaluate",
    "nltk.translate.bleu_score",
    "hypothesis.strategies",
)


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from a syntax tree."""

    tree: ast.Module

    def get_code(self, fullname: str) -> object:
        """The code of the changed tree."""
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")


class _Finder:
    """A finder that returns the changed version of one module."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self.name = name
        self.loader = _Changed(name, str(path))
        self.loader.tree = tree

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of that module; None for any other."""
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.loader.path, loader=self.loader)


class Tests:
    """Runs a module's tests in forks of this process, `processes` at a time."""

    def __init__(self, module: str, processes: int, folder: Path) -> None:
        self.module, self.processes, self.folder = module, processes, folder
        self.path = ROOT / f"satlib/{module}.py"
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))

    def whole(self) -> float:
        """Seconds of processor time that the tests take without a change.

        Raises:
            SystemExit: the tests fail.
        """
        _, status, used = os.wait4(self._start(None, 600), 0)
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"the tests of {self.module} fail without any change: {' '.join(TESTS[self.module])}")
        return used.ru_utime + used.ru_stime

    def survivors(self, chosen: Sequence[Mutant], seconds: float) -> Iterator[Mutant]:
        """The changes that no test notices; one whose tests take more than `seconds` of processor time counts as noticed."""
        running: dict[int, tuple[Mutant, float]] = {}
        left = list(reversed(chosen))
        while left or running:
            while left and len(running) < self.processes:
                mutant = left.pop()
                running[self._start(mutant, seconds)] = mutant, time.monotonic() + 20 * seconds
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                time.sleep(0.01)
                for process, (_, deadline) in running.items():
                    if time.monotonic() > deadline:  # it sleeps and uses no processor time
                        os.killpg(process, signal.SIGKILL)
                continue
            mutant, _ = running.pop(process)
            shutil.rmtree(self.folder / str(process), ignore_errors=True)
            if os.waitstatus_to_exitcode(status) == 0:
                yield mutant

    def _start(self, mutant: Mutant | None, seconds: float) -> int:
        """Fork a process that runs the tests and exits with pytest's status."""
        process = os.fork()
        if process:
            return process
        status = 1
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(quiet, number)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            if mutant is not None:
                mutant.apply()
            sys.meta_path.insert(0, _Finder(f"satlib.{self.module}", self.path, self.tree))
            given = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception"]
            given += [f"--basetemp={self.folder / str(os.getpid())}"]
            given += ["-k", " and ".join(f"not {name}" for name in LEFT_OUT), *TESTS[self.module]]
            status = int(pytest.main(given))
        finally:
            os._exit(status)


def load() -> None:
    """Import what the tests need, then remove satlib from sys.modules, so that each child imports it with its change."""
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # nbval takes longer to load than most tests to run
    for name in LOADED:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "satlib"]:
        del sys.modules[name]
    # The same examples for every change, and none from an earlier one; a failing example need not be shrunk.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutate", database=None, derandomize=True, phases=phases)
    hypothesis.settings.load_profile("mutate")
    gc.freeze()  # children collect garbage several times and need not scan these objects


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="modules, as satlib/model/attention.py; by default all in TESTS")
    parser.add_argument("--sample", type=int, metavar="N", help="try N changes of each module, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    modules = [Path(name).stem for name in arguments.files] or list(TESTS)
    if unknown := set(modules) - set(TESTS):
        parser.error(
            f"no tests are named for {', '.join(sorted(unknown))}; TESTS in {Path(__file__).name} is the table"
        )
    judged = {
        (entry["module"], entry["where"], entry["before"], entry["after"]): entry["reason"]
        for entry in tomllib.loads(JUDGED.read_text(encoding="utf-8"))["judged"]
    }
    load()
    table, enough = [], True
    with tempfile.TemporaryDirectory() as folder:
        for module in modules:
            tests = Tests(module, arguments.processes, Path(folder))
            every = mutants(tests.tree)
            chosen = every
            if arguments.sample is not None and arguments.sample < len(every):
                chosen = sorted(random.Random(arguments.seed).sample(every, arguments.sample), key=lambda m: m.line)
            excused = {m for m in chosen if (module, m.where, m.before, m.after) in judged}
            tried = [m for m in chosen if m not in excused]
            limit = 3 * tests.whole() + 10
            missed = 0
            for m in tests.survivors(tried, limit):
                missed += 1
                print(f"satlib/{module}.py:{m.line} ({m.where}): {m.before}  ->  {m.after}", flush=True)
            share = 1 - missed / max(1, len(tried))
            enough = enough and share >= LEAST
            table.append((module, len(every), len(chosen), len(excused), len(tried) - missed, f"{share:.1%}"))
    gc.unfreeze()
    print(f"{'module':12} {'changes':>8} {'tried':>8} {'judged':>8} {'caught':>8} {'share':>8}")
    for row in table:
        print(f"{row[0]:12} " + " ".join(f"{value:>8}" for value in row[1:]))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
