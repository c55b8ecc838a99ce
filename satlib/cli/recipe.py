"""`satlib recipe`: recipes and their options in words, as text or Markdown, from the options' own declarations.

docs/recipes.md is the output of `satlib recipe --explain --markdown`.
"""

import argparse
import textwrap
from collections.abc import Sequence

from satlib import recipe as recipes
from satlib.recipe import Recipe, toml

_WIDTH = 100  # columns of wrapped text
_PAGE = """\
# Recipes

<!-- The output of `satlib recipe --explain --markdown`. To change it, change the declarations of the options. -->

A recipe is a TOML file that defines a training run: the data, the encoder, the decoder, the loss, the optimiser, and how captions
are generated. An option that a recipe does not give has its default value.

- `satlib recipe` lists the recipes, `satlib recipe NAME` prints one with every value, and `satlib recipe NAME --explain` says what
  each value means and marks those that differ from the default.
- `satlib train NAME --set section.key=value` changes a value; `--set` may be repeated.
- `satlib train my.toml` trains by a recipe of your own. Start from a copy, `satlib recipe NAME > my.toml`, and change the name
  in it, which is also the name of the run's folder.

## The recipes that come with satlib

{recipes}

## The options

{options}
"""


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib recipe`."""
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a recipe's name or the path of a .toml file; without it, all are listed",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="give each option's default, valid values and meaning, and mark the values of NAME that differ from the default",
    )
    parser.add_argument("--markdown", action="store_true", help="write Markdown")


def recipe(options: argparse.Namespace) -> int:
    """Print recipes or their options."""
    if options.explain:
        print(explained(options.name, options.markdown))
    else:
        print(whole(options.name, options.markdown) if options.name else listing(options.markdown))
    return 0


def listing(markdown: bool = False) -> str:
    """The recipes that come with satlib, each with a line that describes it."""
    rows = [(name, recipes.description(name)) for name in recipes.names()]
    if markdown:
        return _table(("recipe", "what it trains"), [(f"`{name}`", text) for name, text in rows])
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {text}" for name, text in rows)


def whole(name: str, markdown: bool = False) -> str:
    """A recipe as TOML with every value, below its description.

    Raises:
        SatlibError: there is no such recipe, or it is not valid.
    """
    text, line = recipes.load(name).to_toml().rstrip(), recipes.description(name)
    text = f"# {line}\n{text}" if line else text
    return f"```toml\n{text}\n```" if markdown else text


def explained(name: str | None = None, markdown: bool = False) -> str:
    """Every option with its default, range, choices and meaning; for a recipe also its values.

    Raises:
        SatlibError: there is no such recipe, or it is not valid.
    """
    section = _section_markdown if markdown else _section_text
    chosen = None if name is None else recipes.load(name)
    sections = "\n\n".join(section(title, chosen) for title in recipes.SECTIONS)
    if name is None or chosen is None:
        return _PAGE.format(recipes=listing(markdown=True), options=sections).rstrip() if markdown else sections
    line = recipes.description(name)
    if markdown:
        return f"# {chosen.name}\n\n{line}\n\nValues in bold differ from the default.\n\n{sections}"
    return f"{chosen.name}: {line}\n* marks values that differ from the default.\n\n{sections}"


def _summary(section: str) -> str:
    return (recipes.SECTIONS[section].__doc__ or "").partition("\n")[0]


def _section_text(section: str, chosen: Recipe | None) -> str:
    lines = [f"[{section}] {_summary(section)}"]
    for key, option in recipes.declared(section).items():
        value = option.default if chosen is None else getattr(getattr(chosen, section), key)
        notes = [] if chosen is None else [f"default {toml(option.default)}"]
        notes += [text for text in (option.range, " | ".join(map(toml, option.choices))) if text]
        lines.append(
            f"{' *'[value != option.default]} {key} = {toml(value)}" + (f"  ({'; '.join(notes)})" if notes else "")
        )
        lines.append(
            textwrap.fill(
                option.meaning, _WIDTH, break_on_hyphens=False, initial_indent=6 * " ", subsequent_indent=6 * " "
            )
        )
    return "\n".join(lines)


def _section_markdown(section: str, chosen: Recipe | None) -> str:
    rows = []
    for key, option in recipes.declared(section).items():
        valid = ", ".join(f"`{toml(choice)}`" for choice in option.choices) or option.range
        cells = [f"`{key}`", f"`{toml(option.default)}`", valid, option.meaning]
        if chosen is not None:
            value = getattr(getattr(chosen, section), key)
            cells.insert(1, f"**`{toml(value)}`**" if value != option.default else f"`{toml(value)}`")
        rows.append(cells)
    heading = ["option", *([] if chosen is None else ["value"]), "default", "valid values", "meaning"]
    return f"### [{section}]\n\n{_summary(section)}\n\n{_table(heading, rows)}"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
