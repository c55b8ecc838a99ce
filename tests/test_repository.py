"""What a forge reads of the repository: issue forms, the citation, the development container."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read(path):
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path):
    """GitHub shows a form only if it has these keys, unique ids and known kinds of fields."""
    form = read(path)
    assert {"name", "description", "body"} <= set(form) <= {"name", "description", "title", "labels", "body"}
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids) > 0
    for field in form["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "checkboxes")
        assert field["attributes"]["label"].strip()
        assert set(field) <= {"type", "id", "attributes", "validations"}


def test_the_citation():
    """The keys that Citation File Format 1.2.0 requires, of the software and of the paper."""
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    for work in (citation, *citation["references"]):
        assert {"title", "authors", "type"} <= set(work)
        assert all(("name" in author) != ("family-names" in author) for author in work["authors"])
    assert citation["message"]


def test_no_address_is_invented():
    """What has no address yet names none: the release's workflow puts the repository's in."""
    for name in ("CITATION.cff", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "pyproject.toml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "github.com/" not in text, name
        assert "@" not in text.replace("@v", ""), name


def test_the_development_container():
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    script, extra = container["postCreateCommand"].split()[1:]
    assert (ROOT / script).is_file()
    assert extra in ("dev", "site")
    assert {update["package-ecosystem"] for update in read(".github/dependabot.yml")["updates"]} == {
        "github-actions",
        "devcontainers",
    }
