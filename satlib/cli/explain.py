"""The options of recipes in words, from their declarations: `satlib recipe --explain`."""

import textwrap

from satlib import recipe as recipes
from satlib.recipe import Recipe, toml


def explained(recipe: Recipe | None = None) -> str:
    """Every option with its range or choices and its meaning; with a recipe's values, or else the defaults."""
    title = f"{recipe.name}: values marked * differ from the default.\n\n" if recipe else ""
    return title + "\n\n".join(_section(section, recipe) for section in recipes.SECTIONS)


def _section(section: str, recipe: Recipe | None) -> str:
    lines = [f"[{section}] {recipes.SECTIONS[section].__doc__}"]
    for key, option in recipes.declared(section).items():
        value = getattr(getattr(recipe, section), key) if recipe else option.default
        notes = [f"default {toml(option.default)}"] if recipe else []
        notes += [note for note in (option.range, " | ".join(map(toml, option.choices))) if note]
        mark = "*" if value != option.default else " "
        lines.append(f"{mark} {key} = {toml(value)}" + (f"  ({'; '.join(notes)})" if notes else ""))
        lines.append(textwrap.indent(textwrap.fill(option.meaning, 94, break_on_hyphens=False), 6 * " "))
    return "\n".join(lines)
