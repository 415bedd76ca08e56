"""Write the JSON schemas of the files that gpubench writes for programs, from its dataclasses.

    python research/make_schemas.py    # writes docs/schema/*.json

A schema's number is the `format` of the file. It increases when a field is removed or changes its
meaning, but not for a new field.
"""

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # this tree's package

from gpubench.commands.diff.findings import Cause, DiffVerdict, Disturbance, Finding, Limits
from gpubench.commands.diff.formats import JSON_FORMAT as DIFF_FORMAT
from gpubench.commands.diff.weighted import Total
from gpubench.commands.judge.verdicts import JudgeVerdict
from gpubench.commands.judge.view import JSON_FORMAT as JUDGE_FORMAT
from gpubench.commands.show import JSON_FORMAT
from gpubench.results.row import COLUMNS, KEY
from gpubench.stats.detectable import Detectable

FOLDER = Path(__file__).parent.parent / "docs" / "schema"
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null"}


def typed(annotation: object) -> dict[str, Any]:
    """Return the schema of an annotation such as `float | None`. The annotation may be a text."""
    if annotation == DiffVerdict:
        return {"enum": [str(verdict) for verdict in DiffVerdict]}
    if annotation == Cause | None:
        return {"enum": [*map(str, Cause), None]}
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    names = [TYPES[name] for name in text.split(" | ")]
    return {"type": names[0] if len(names) == 1 else names}


def properties(cls: type) -> dict[str, Any]:
    """Return the schemas of the fields of a dataclass."""
    return {field.name: typed(field.type) for field in fields(cls)}


def of_object(members: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an object that must have exactly these members."""
    named = {"properties": members, "required": list(members), "additionalProperties": False}
    return {**more, "type": "object", **named}


def of_list(item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


def columns() -> dict[str, Any]:
    """Return the schemas of the columns of a sweep's CSV."""
    schemas = {}
    for column in COLUMNS:
        kind = str(column.type)
        if kind.startswith("tuple"):  # in a file, its numbers are one text
            kind = "str | None"
        schema = typed(kind) | {"description": column.metadata["meaning"]}
        if "str" not in kind:
            low, high = column.metadata["range"]
            schema |= {"minimum": low} | ({"maximum": high} if high < float("inf") else {})
        schemas[column.name] = schema
    return schemas


def document(title: str, version: int, members: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a file."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return of_object({"format": {"const": version}, "gpubench": typed("str"), **members}, **head)


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name."""
    text, number, lines = typed("str"), typed("int"), of_list(typed("str"))
    row = columns()
    key = {name: row[name] for name in KEY}
    members = {
        "headline": text,
        "exit_code": {"enum": [0, 1, 3, 4]},
        "strict": typed("bool"),
        "base": text,
        "new": text,
        "limits": of_object(properties(Limits)),
        "counts": of_object({str(verdict): number for verdict in DiffVerdict}),
        "drift": typed("float"),
        "drifted": typed("bool"),
        "untested": number,
        "detectable": of_object(properties(Detectable)),
        "totals": of_list(of_object(properties(Total))),
        "disturbances": of_list(of_object(properties(Disturbance))),
        "notes": lines,
        "advice": lines,
        "points": of_list(of_object(key | properties(Finding))),
        "untimed": of_list(of_object(key | {"reason": text})),
    }
    rows = document("gpubench show --format json", JSON_FORMAT, {"rows": of_list(of_object(row))})
    diff = document("gpubench diff --format json, of results", DIFF_FORMAT, members)
    number, name = typed("float | None"), typed("str | None")
    verdict = {
        "verdict": {"enum": [str(verdict) for verdict in JudgeVerdict]},
        "reason": text,
        "time_us": number,
        "baseline": name,
        "baseline_time_us": number,
        **dict.fromkeys(("ratio", "ratio_low", "ratio_high", "faster_low"), number),
        **dict.fromkeys(("threads", "baseline_threads"), typed("int | None")),
        "pairs": typed("int"),
    }
    members = {
        "exit_code": {"enum": [0, 1, 3]},
        **dict.fromkeys(("claim", "threshold", "level"), typed("float")),
        "csv": text,
        "verdicts": of_list(of_object(key | verdict)),
        "rows": of_list(of_object(row)),
    }
    judged = document("gpubench judge --json", JUDGE_FORMAT, members)
    return {
        f"rows-{JSON_FORMAT}.json": rows,
        f"diff-{DIFF_FORMAT}.json": diff,
        f"judge-{JUDGE_FORMAT}.json": judged,
    }


if __name__ == "__main__":
    for name, schema in schemas().items():
        text = json.dumps(schema, indent=1, ensure_ascii=False)
        (FOLDER / name).write_text(f"{text}\n", encoding="utf-8")
